"""The searches by name."""

from collections.abc import Mapping
from types import MappingProxyType

from scheduler.space.climb import Climb
from scheduler.space.exhaustive import Exhaustive
from scheduler.space.gns import GuidedSearch
from scheduler.space.linear import Linear
from scheduler.space.nn import Nearest
from scheduler.space.nn_gns import NearestGuidedSearch
from scheduler.space.nn_ns import NearestNeighbourSearch
from scheduler.space.nn_srs import ScalarRefinement
from scheduler.space.ns import NeighbourSearch
from scheduler.space.search import Given, Search, Walk
from scheduler.space.whole import Whole

SEARCHES: Mapping[str, type[Walk]] = MappingProxyType(
    {
        Climb.name: Climb,
        Nearest.name: Nearest,
        NeighbourSearch.name: NeighbourSearch,
        GuidedSearch.name: GuidedSearch,
        NearestNeighbourSearch.name: NearestNeighbourSearch,
        NearestGuidedSearch.name: NearestGuidedSearch,
        ScalarRefinement.name: ScalarRefinement,
        Linear.name: Linear,
        Exhaustive.name: Exhaustive,
        Whole.name: Whole,
    }
)
"""A new search adds one line here."""

DEFAULT_SEARCH = Climb.name


class UnknownSearchError(ValueError):
    """No search has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no search is called {name!r}; there are: {', '.join(sorted(SEARCHES))}")


def make_search(name: str, given: Given) -> Search:
    """A fresh search of that name. UnknownSearchError names those that exist; MissingPredictionError says that it needs more."""
    try:
        search = SEARCHES[name]
    except KeyError:
        raise UnknownSearchError(name) from None
    return search(given)
