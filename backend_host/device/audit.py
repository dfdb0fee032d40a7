"""What one look of the auditor saw, as data: see audit.h."""

from typing import NamedTuple

from backend_host.worker._worker import ffi


class Claim(NamedTuple):
    """What a vGPU says of itself. Times in ns; `generation` is that of the place it has, which no two vGPUs share.

    A tuple, as 64 of them are made in each look: as frozen dataclasses they took 0.1 ms longer.
    """

    generation: int
    used_ns: int
    held_ns: int
    charged_until_ns: int
    nr_workers: int
    nr_unused: int
    standing: float
    standing_per_ns: float
    waiting_since_ns: int
    uses: bool
    waits: bool
    works: bool
    limit_permille: int
    limited_until_ns: int
    nr_limits: int
    turn_ns: int
    space: int = 0
    is_urgent: bool = False

    @property
    def charged_ns(self) -> int:
        return self.used_ns + self.held_ns


class Audit:
    """One look. vGPUs are named by their numbers."""

    def __init__(self, seen: ffi.CData) -> None:
        self.seen = seen
        self.at_ns: int = seen.at_ns
        self.word: int = seen.word
        self.holder: int | None = seen.holder - 1 if seen.holder else None
        self.turn = (seen.word >> 32, seen.holder)
        """Another one for each turn."""
        self.is_closed = bool(seen.word >> 16 & 1)
        self.is_apart: bool = seen.is_apart
        self.is_word_wrong: bool = seen.is_word_wrong
        sets = {"users": seen.users, "waiting": seen.waiting, "running": seen.running}
        times = {"a start": seen.is_start_ahead, "a spared holder": seen.is_spare_ahead}
        self.wrong = [
            *(name for name, words in sets.items() if any(words)),
            *(name for name, is_ahead in times.items() if is_ahead),
        ]
        """What is not as its owner says, or in the future."""
        self._claims = {number: _claim(each) for number, each in enumerate(seen.claims) if each.generation}

    def claim(self, vgpu: int) -> Claim | None:
        """None: there is no such vGPU."""
        return self._claims.get(vgpu)

    def others_wait(self, vgpu: int) -> bool:
        """Whether another one says that it waits."""
        return any(claim.waits for other, claim in self._claims.items() if other != vgpu)

    @property
    def nr_served(self) -> int:
        """How many have workers."""
        return sum(claim.nr_workers > 0 for claim in self._claims.values())

    @property
    def is_wanted(self) -> bool:
        """Whether any has the GPU, waits for it or has work on it, by its own word; or something is wrong."""
        return bool(self.wrong) or any(claim.uses or claim.waits or claim.works for claim in self._claims.values())

    @property
    def nr_working(self) -> int:
        """How many say that they have work on the device."""
        return sum(claim.works for claim in self._claims.values())


def _claim(each: ffi.CData) -> Claim:
    return Claim(
        generation=each.generation,
        used_ns=each.used_ns,
        held_ns=each.held_ns,
        charged_until_ns=each.charged_until_ns,
        nr_workers=each.nr_workers,
        nr_unused=each.nr_unused,
        standing=each.standing,
        standing_per_ns=each.standing_per_ns,
        waiting_since_ns=each.waiting_since_ns,
        uses=bool(each.uses),
        waits=bool(each.waits),
        works=bool(each.works),
        limit_permille=each.limit_permille,
        limited_until_ns=each.limited_until_ns,
        nr_limits=each.nr_limits,
        turn_ns=each.turn_ns,
        space=each.space,
        is_urgent=bool(each.is_urgent),
    )
