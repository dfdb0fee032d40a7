"""The splits that a search may ask for.

A split (n, k) takes k blocks of the best-effort kernel off each of the first n multiprocessors. (0, 0) leaves best effort all, and (N, K)
leaves it nothing; in between n goes in steps, as multiprocessors are nearly alike and looking costs time.

Wrong when: a kernel is not the one whose blocks were counted. K is of one best-effort kernel, and so is a grid.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Split(NamedTuple):
    """Best effort has `k` blocks fewer on each of the first `n` multiprocessors."""

    n: int
    k: int

    def __str__(self) -> str:
        return f"({self.n}, {self.k})"

    def gives(self, other: "Split") -> bool:
        """Whether the critical program has all that the other split gives it, on each multiprocessor."""
        return self.n >= other.n and self.k >= other.k


NOTHING = Split(0, 0)
"""Best effort has all of the GPU."""


@dataclass(frozen=True)
class Grid:
    """`ns` and `ks` are what n and k may be besides 0, ascending: the last ones are N and K."""

    ns: tuple[int, ...]
    ks: tuple[int, ...]

    @classmethod
    def of(cls, multiprocessors: int, step: int, most_each: int) -> "Grid":
        """Every `step` multiprocessors, and every block. The last step is shorter where the multiprocessors do not divide."""
        return cls((*range(step, multiprocessors, step), multiprocessors), tuple(range(1, most_each + 1)))

    @property
    def ends(self) -> "Grid":
        """(0, 0) and (N, K) alone."""
        return Grid(self.ns[-1:], self.ks[-1:])

    @property
    def whole(self) -> Split:
        """All of the GPU for the critical program."""
        return Split(self.ns[-1], self.ks[-1])

    def __contains__(self, split: object) -> bool:
        return split == NOTHING or (isinstance(split, Split) and split.n in self.ns and split.k in self.ks)

    def __iter__(self) -> Iterator[Split]:
        """From (0, 0) to (N, K)."""
        yield NOTHING
        for n in self.ns:
            for k in self.ks:
                yield Split(n, k)

    def __len__(self) -> int:
        return 1 + len(self.ns) * len(self.ks)

    def neighbours(self, split: Split) -> list[Split]:
        """The up to eight around it, those first that give the critical program most blocks. (0, 0) is next to all splits of the least n."""
        if split == NOTHING:
            found = [Split(self.ns[0], k) for k in self.ks]
        else:
            column, row = self.ns.index(split.n), self.ks.index(split.k)
            ns, ks = self.ns[max(0, column - 1) : column + 2], self.ks[max(0, row - 1) : row + 2]
            found = [Split(n, k) for n in ns for k in ks if (n, k) != split] + ([NOTHING] if column == 0 else [])
        return sorted(found, key=lambda each: (each.n * each.k, each), reverse=True)
