"""What waited at the gates of a Gpu's spaces, as it was last told, vGPUs that have left included: so that nothing of it falls.

Wrong when: one waits and leaves between two looks. What came to it since the first of them is told of by its own counters alone.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Gated(NamedTuple):
    """Launches that waited, and how long together."""

    nr: int = 0
    ns: int = 0

    def plus(self, other: "Gated") -> "Gated":
        """Both."""
        return Gated(self.nr + other.nr, self.ns + other.ns)


class GatedBySpace:
    """Of one Gpu. For one thread at a time."""

    def __init__(self) -> None:
        self._there: dict[str, dict[int, Gated]] = {}
        """By space, and by vGPU."""
        self._gone: dict[str, Gated] = {}

    def look(self, space: str, now: Mapping[int, Gated]) -> Gated:
        """Of all that are in the space or were: of these as they are now, of others as they were."""
        there = self._there.setdefault(space, {})
        there.update(now)
        total = self._gone.get(space, Gated())
        for each in there.values():
            total = total.plus(each)
        return total

    def leave(self, space: str, vgpu: int) -> None:
        """This number may be another one's from now on."""
        gone = self._there.get(space, {}).pop(vgpu, Gated())
        self._gone[space] = self._gone.get(space, Gated()).plus(gone)

    def end(self, space: str) -> None:
        """Nobody is left; another one of its name begins with nothing."""
        self._there.pop(space, None)
        self._gone.pop(space, None)
