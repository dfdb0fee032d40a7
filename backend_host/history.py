"""What each vGPU, and all of them together, got of their Gpu lately: in the last second, ten seconds, minute; and who was active.

GPU time is noted now and then with the moment, and kept for the longest window.

Wrong when: nobody notes anything for a while. A window then begins at the note before it, and is that much longer than it says. And when work
takes longer than a window: it is charged as it ends, all at once, so that a share may be above 1.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scheduler.elastic import ACTIVE_NS

WINDOWS_S = (1, 10, 60)
APART_NS = 100_000_000
"""Notes are at least so far apart: 600 a minute for a vGPU."""
_MOST_NS = WINDOWS_S[-1] * 1_000_000_000


@dataclass
class _Kept:
    """Moments, and the GPU time used until each, both in ns; the oldest first. One is older than the longest window, if any can be."""

    notes: list[tuple[int, int]]
    active_ns: int = -ACTIVE_NS
    """When it was last seen active."""

    def note(self, now_ns: int, used_ns: int) -> None:
        if now_ns - self.notes[-1][0] < APART_NS:
            return
        self.notes.append((now_ns, used_ns))
        while len(self.notes) > 1 and self.notes[1][0] <= now_ns - _MOST_NS:
            del self.notes[0]

    def shares(self, now_ns: int, used_ns: int) -> tuple[float, ...]:
        shares = []
        for window_s in WINDOWS_S:
            place = bisect_right(self.notes, (now_ns - window_s * 1_000_000_000, math.inf))
            since_ns, then_ns = self.notes[max(0, place - 1)]
            shares.append((used_ns - then_ns) / (now_ns - since_ns) if now_ns > since_ns else 0.0)
        return tuple(shares)


class UseHistory:
    """Of one Gpu since `now_ns`, and of the vGPUs on it by their numbers. Not thread-safe."""

    def __init__(self, now_ns: int) -> None:
        self._kept: dict[int, _Kept] = {}
        self._used: dict[int, int] = {}
        """GPU time of each as last noted, in ns."""
        self._gone_ns = 0
        """That of those that have gone, less what any had used before it came."""
        self._all = _Kept([(now_ns, 0)])

    def begin(self, vgpu: int, now_ns: int, used_ns: int = 0) -> None:
        """It has come; what it had used before is of another history."""
        self._kept[vgpu] = _Kept([(now_ns, used_ns)])
        self._used[vgpu] = used_ns
        self._gone_ns -= used_ns

    def end(self, vgpu: int, used_ns: int = 0) -> None:
        """It has gone, and used so much until then."""
        if self._kept.pop(vgpu, None) is not None:
            self._gone_ns += max(used_ns, self._used.pop(vgpu))

    def note(self, now_ns: int, used_ns: Mapping[int, int], active: Iterable[int] = ()) -> None:
        """How much GPU time each has used by now, in ns, and who waits for the GPU or holds it; others are left as they are."""
        for vgpu, used in used_ns.items():
            if (kept := self._kept.get(vgpu)) is not None:
                if used > self._used[vgpu]:
                    kept.active_ns = now_ns
                kept.note(now_ns, used)
                self._used[vgpu] = used
        for vgpu in active:
            if vgpu in self._kept:
                self._kept[vgpu].active_ns = now_ns
        self._all.note(now_ns, self._all_ns({}))

    def active(self, now_ns: int, used_ns: Mapping[int, int]) -> set[int]:
        """Who used the GPU, waited for it or held it within the last second: those among whom it is shared, by the policies' own measure."""
        return {
            vgpu
            for vgpu, kept in self._kept.items()
            if now_ns - kept.active_ns < ACTIVE_NS or used_ns.get(vgpu, 0) > self._used[vgpu]
        }

    def shares(self, vgpu: int, now_ns: int, used_ns: int) -> tuple[float, ...]:
        """Its part of the GPU, from 0 to 1, in each of `WINDOWS_S`, or since it came if that is later; `used_ns` is what it has used by now."""
        kept = self._kept.get(vgpu)
        return kept.shares(now_ns, used_ns) if kept is not None else (0.0,) * len(WINDOWS_S)

    def all_shares(self, now_ns: int, used_ns: Mapping[int, int]) -> tuple[float, ...]:
        """The part of the time, from 0 to 1, that the GPU was used, by whomever, as `shares` has it; `used_ns`: what each has used by now."""
        return self._all.shares(now_ns, self._all_ns(used_ns))

    def _all_ns(self, used_ns: Mapping[int, int]) -> int:
        return self._gone_ns + sum(max(used, used_ns.get(vgpu, 0)) for vgpu, used in self._used.items())
