"""What one look of the auditor saw, as data: see audit.h."""

from dataclasses import dataclass

from backend_host.worker._worker import ffi


@dataclass(frozen=True)
class Claim:
    """What a vGPU says of itself. Times in ns; `generation` is that of the place it has, which no two vGPUs share."""

    generation: int
    used_ns: int
    held_ns: int
    charged_until_ns: int
    nr_workers: int
    uses: bool
    waits: bool
    works: bool

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
        self.is_wrong: bool = seen.is_start_ahead or any(seen.users) or any(seen.waiting)
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
        uses=bool(each.uses),
        waits=bool(each.waits),
        works=bool(each.works),
    )
