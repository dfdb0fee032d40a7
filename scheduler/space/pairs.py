"""A space's searches: one for each pair of a critical and a best-effort program that meet in it, begun where the pair ended last time.

Wrong when: a name means another program by now. Its search begins at a split that is over the target, and goes back at once.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping

from scheduler.space.grid import Grid, Split
from scheduler.space.registry import DEFAULT_SEARCH, make_search
from scheduler.space.search import Given, Search
from scheduler.space.surface import Surface

MOST_PAIRS = 256
"""Where the last so many pairs ended is kept; a guest may name a new program each time."""


class Pairs:
    """The pair that runs now, and where others ended."""

    def __init__(self, search: str = DEFAULT_SEARCH) -> None:
        self._name = search
        self._ended: OrderedDict[Hashable, Split] = OrderedDict()
        self._pair: Hashable = None
        self._search: Search | None = None

    def __len__(self) -> int:
        """Pairs of which it is known where they ended."""
        return len(self._ended)

    def turn_to(
        self, pair: Hashable, grid: Grid, target: float, predictions: Mapping[str, Surface] | None = None
    ) -> Search:
        """The search of a pair. It is the same one until another pair is turned to; a grid or a target that changed makes another pair."""
        key = (pair, grid, target)
        if self._search is None or key != self._pair:
            self._keep()
            given = Given(grid, target, self._ended.get(key), predictions or {})
            self._pair, self._search = key, make_search(self._name, given)
        return self._search

    def _keep(self) -> None:
        if self._search is not None and self._search.is_settled:
            self._ended[self._pair] = self._search.split
            self._ended.move_to_end(self._pair)
            if len(self._ended) > MOST_PAIRS:
                self._ended.popitem(last=False)
