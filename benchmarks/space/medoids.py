"""Which of many vectors stand best for all: k-medoids, in the same way each time."""

import math
from collections.abc import Sequence

Vector = Sequence[float]


def normalised(vectors: Sequence[Vector], bounds: Sequence[tuple[float, float]]) -> list[tuple[float, ...]]:
    """Each number from its least (0) to its greatest (1); what lies beyond is at the bound."""
    return [
        tuple(
            min(1.0, max(0.0, (x - low) / (high - low))) if high > low else 0.0
            for x, (low, high) in zip(vector, bounds, strict=True)
        )
        for vector in vectors
    ]


def bounds_of(vectors: Sequence[Vector]) -> list[tuple[float, float]]:
    """Least and greatest of each number."""
    return [(min(column), max(column)) for column in zip(*vectors, strict=True)]


def medoids(vectors: Sequence[Vector], nr: int) -> list[int]:
    """
    Indexes of `nr` vectors, ascending, or fewer where there are not so many different ones. The nearest to all comes first, then who is
    farthest from those that there are; then each group chooses the one that is nearest to all of it, until nothing changes.
    """
    distances = [[_distance(one, other) for other in vectors] for one in vectors]
    every = range(len(vectors))
    chosen = [min(every, key=lambda at: sum(distances[at]))]
    while len(chosen) < nr:
        lonely = {at: min(distances[at][other] for other in chosen) for at in every}
        farthest = max(every, key=lambda at: lonely[at])
        if lonely[farthest] == 0:
            break
        chosen.append(farthest)
    while True:
        groups: dict[int, list[int]] = {medoid: [] for medoid in chosen}
        for at in every:
            groups[min(chosen, key=lambda medoid: distances[at][medoid])].append(at)
        better = [min(group, key=lambda at: sum(distances[at][other] for other in group)) for group in groups.values()]
        if better == chosen:
            return sorted(chosen)
        chosen = better


def _distance(one: Vector, other: Vector) -> float:
    return math.dist(one, other)
