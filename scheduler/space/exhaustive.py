"""Every split of the grid, those first that give the critical program most: brute force, for comparison."""

from scheduler.space.search import Step, Steps, Walk


class Exhaustive(Walk):
    """Finds the best, late."""

    name = "exhaustive"

    def steps(self) -> Steps:
        for split in sorted(self.given.grid, reverse=True):
            yield Step(split, f"{split}: one after the other")
