"""The best split of the nearest pair of the micro-benchmark's, taken as it is: nearest neighbour (G-Space, section 4.4)."""

from scheduler.space.search import NEAREST, Step, Steps, Walk


class Nearest(Walk):
    """Tries nothing. For every second pair of the paper's it missed the target."""

    name = "nn"
    predictor = NEAREST
    is_blind = True

    def steps(self) -> Steps:
        split = self.given.predictions[self.predictor].best(self.given.target)
        yield Step(split, f"{split}: as {self.predictor} predicts")
