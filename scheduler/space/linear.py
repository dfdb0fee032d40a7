"""The best split by linear regression over the micro-benchmark's pairs, taken as it is (G-Space, section 4.4)."""

from scheduler.space.nn import Nearest
from scheduler.space.search import LINEAR


class Linear(Nearest):
    """Slowdowns are no straight lines, so it is further off than the nearest neighbour."""

    name = "linear"
    predictor = LINEAR
