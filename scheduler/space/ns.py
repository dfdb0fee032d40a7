"""Neighbour search (G-Space, section 4.5): looks at all neighbours of where it is, moves to the best, and ends where none is better.

Over the target the best is the one of least slowdown, within it the one of most progress. Here it begins with all of the GPU for the critical
program, from where every step gains little.
"""

from scheduler.space.grid import Split
from scheduler.space.search import Outcome, Step, Steps, Walk


class NeighbourSearch(Walk):
    """Sure and slow."""

    name = "ns"

    def start(self) -> Split:
        return self.given.grid.whole

    def steps(self) -> Steps:
        start = self.start()
        anchor = yield Step(start, f"{start}: where it begins")
        yield from neighbour_steps(self, anchor)


def neighbour_steps(search: Walk, anchor: Outcome) -> Steps:
    """From an outcome on."""
    while True:
        around = search.given.grid.neighbours(anchor.split)
        for split in around:
            if split not in search.seen:
                yield Step(split, f"{split}: a neighbour of {anchor.split}")
        best = max((search.seen[split] for split in around), key=rank)
        if rank(best) <= rank(anchor):
            return
        anchor = best


def rank(outcome: Outcome) -> tuple[bool, float]:
    """Greater is better."""
    return (True, outcome.progress) if outcome.holds else (False, -outcome.load)
