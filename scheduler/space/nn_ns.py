"""Neighbour search from the split that the nearest neighbour predicts (G-Space, NN_NS)."""

from scheduler.space.grid import Split
from scheduler.space.ns import NeighbourSearch
from scheduler.space.search import NEAREST


class NearestNeighbourSearch(NeighbourSearch):
    """Begins nearer to the end than `ns`, maybe over the target."""

    name = "nn-ns"
    predictor = NEAREST

    def start(self) -> Split:
        return self.given.predictions[self.predictor].best(self.given.target)
