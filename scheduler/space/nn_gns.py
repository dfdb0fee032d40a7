"""Guided neighbour search from the split that the nearest neighbour predicts (G-Space, NN_GNS)."""

from scheduler.space.gns import GuidedSearch
from scheduler.space.grid import Split


class NearestGuidedSearch(GuidedSearch):
    """Begins nearer to the end than `gns`, maybe over the target."""

    name = "nn-gns"

    def start(self) -> Split:
        return self.given.predictions[self.predictor].best(self.given.target)
