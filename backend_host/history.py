"""What each vGPU got of its Gpu lately: in the last second, ten seconds, minute.

Its GPU time is noted now and then with the moment, and kept for the longest window.

Wrong when: nobody notes anything for a while. A window then begins at the note before it, and is that much longer than it says.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

WINDOWS_S = (1, 10, 60)
APART_NS = 100_000_000
"""Notes are at least so far apart: 600 a minute for a vGPU."""
_MOST_NS = WINDOWS_S[-1] * 1_000_000_000


@dataclass
class _Kept:
    """Moments, and the GPU time of the vGPU at each, both in ns; the oldest first. One is older than the longest window, if any can be."""

    notes: deque[tuple[int, int]] = field(default_factory=deque)

    def note(self, now_ns: int, used_ns: int) -> None:
        if self.notes and now_ns - self.notes[-1][0] < APART_NS:
            return
        self.notes.append((now_ns, used_ns))
        while len(self.notes) > 1 and self.notes[1][0] <= now_ns - _MOST_NS:
            self.notes.popleft()


class UseHistory:
    """Of the vGPUs of one Gpu, by their numbers. Not thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def begin(self, vgpu: int, now_ns: int) -> None:
        """It has come, and has used nothing yet."""
        self._kept[vgpu] = _Kept(deque([(now_ns, 0)]))

    def end(self, vgpu: int) -> None:
        """It has gone."""
        self._kept.pop(vgpu, None)

    def note(self, now_ns: int, used_ns: Mapping[int, int]) -> None:
        """How much GPU time each has used by now, in ns; others are left as they are."""
        for vgpu, used in used_ns.items():
            if vgpu in self._kept:
                self._kept[vgpu].note(now_ns, used)

    def shares(self, vgpu: int, now_ns: int, used_ns: int) -> tuple[float, ...]:
        """Its part of the GPU, from 0 to 1, in each of `WINDOWS_S`, or since it came if that is later; `used_ns` is what it has used by now."""
        notes = self._kept[vgpu].notes if vgpu in self._kept else deque([(now_ns, used_ns)])
        shares = []
        for window_s in WINDOWS_S:
            place = bisect_right(notes, now_ns - window_s * 1_000_000_000, key=lambda note: note[0])
            since_ns, then_ns = notes[max(0, place - 1)]
            shares.append((used_ns - then_ns) / (now_ns - since_ns) if now_ns > since_ns else 0.0)
        return tuple(shares)
