"""Scalar refinement (G-Space, NN_SRS): the micro-benchmark's surface is taken to be right but for one factor on the target.

The split that the surface has for the target is tried. What it turns out to take of the target scales the target that the surface is asked for
next, until it answers what was tried before. A neighbour search ends it.
"""

from scheduler.space.ns import neighbour_steps, rank
from scheduler.space.search import NEAREST, Step, Steps, Walk

WIDE = 0.9
"""Of the target: what takes less may take more."""


class ScalarRefinement(Walk):
    """The paper's best."""

    name = "nn-srs"
    predictor = NEAREST

    def steps(self) -> Steps:
        predicted, factor = self.given.predictions[self.predictor], 1.0
        while (split := predicted.best(self.given.target * factor)) not in self.seen:
            outcome = yield Step(split, f"{split}: predicted best for {factor:.2f} of the target")
            if WIDE <= outcome.load <= 1:
                break
            factor /= outcome.load
        yield from neighbour_steps(self, max(self.seen.values(), key=rank))
