"""All of the GPU for the critical program while a round lasts, as FLEP does it (Wu et al., ASPLOS 2017)."""

from scheduler.space.search import Step, Steps, Walk


class Whole(Walk):
    """The target holds wherever it can, and best effort has nothing while a round lasts."""

    name = "whole"

    def steps(self) -> Steps:
        whole = self.given.grid.whole
        yield Step(whole, f"{whole}: all of the GPU while a round lasts")
