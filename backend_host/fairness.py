"""How even the shares of a Gpu were in the last minute: what each vGPU was entitled to, and what it got of that.

A vGPU is active while it holds the grant or waits for it. At each look of the keeper the time since the one before goes to those that were
active then, and to those that their limits kept from a turn, by their weights, requests and limits: that is what they were entitled to. The
time that all were charged meanwhile, divided in the same way, was due to them. So a GPU that stands idle takes nothing from anybody.

Wrong when: a vGPU comes or goes between two looks. They are 0.1 s apart where somebody waits, and 1 s where nobody does.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from backend_host.device.readings import VgpuReading
from backend_host.entitled import entitled_shares
from backend_host.entitlement import Entitlement

WINDOW_NS = 60_000_000_000
APART_NS = 1_000_000_000
"""Notes are so far apart: 61 for a vGPU."""
STEADY = 0.9
"""Who is active for so much of the minute counts as one that wanted the GPU all the time: looks may miss a pause, or the end of one."""


@dataclass(frozen=True)
class Received:
    """Of a vGPU, in the last minute, or since it came."""

    entitled: float = 0.0
    """The part of the GPU, 0 to 1, that was its by weight, request and limit."""
    active: float = 0.0
    """The part of the time that it held the GPU or waited for it."""
    of_due: float | None = None
    """What it was charged over what was due to it: 1 is fair. None: nothing was due."""
    is_steady: bool = False
    """It was active all the minute long."""


NOTHING = Received()


class _Sums(NamedTuple):
    """Up to a moment, all in ns."""

    at: int
    charged: int = 0
    entitled: float = 0.0
    active: int = 0
    due: float = 0.0


@dataclass
class _Kept:
    now: _Sums
    notes: deque[_Sums] = field(default_factory=deque)
    """The oldest first. One is older than the window, if any can be."""

    def note(self) -> None:
        if self.notes and self.now.at - self.notes[-1].at < APART_NS:
            return
        self.notes.append(self.now)
        while len(self.notes) > 1 and self.notes[1].at <= self.now.at - WINDOW_NS:
            self.notes.popleft()


class Fairness:
    """Of the vGPUs of one Gpu, by their numbers. Not thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def begin(self, vgpu: int, now_ns: int, charged_ns: int = 0) -> None:
        """It has come, and was charged so much before."""
        self._kept[vgpu] = kept = _Kept(_Sums(now_ns, charged_ns))
        kept.note()

    def end(self, vgpu: int) -> None:
        """It has gone."""
        self._kept.pop(vgpu, None)

    def look(
        self,
        now_ns: int,
        accounts: Sequence[VgpuReading],
        active: Collection[int],
        entitlements: Mapping[int, Entitlement],
    ) -> None:
        """What each was charged by now. `active`: who held or waited since the last look."""
        known = {account.vgpu: account for account in accounts if account.vgpu in self._kept}
        held_back = {vgpu for vgpu, account in known.items() if account.back_ns > self._kept[vgpu].now.at}
        wanted = (held_back | set(active)) & known.keys() & entitlements.keys()
        parts = entitled_shares({vgpu: entitlements[vgpu] for vgpu in wanted})
        charged = {vgpu: max(0, known[vgpu].charged_ns - self._kept[vgpu].now.charged) for vgpu in known}
        all_charged, all_parts = sum(charged.values()), sum(parts.values())
        for vgpu, kept in self._kept.items():
            if vgpu not in known:
                continue
            before, part = kept.now, parts.get(vgpu, 0.0)
            passed = max(0, now_ns - before.at)
            due = all_charged * part / all_parts if all_parts else charged[vgpu]
            kept.now = _Sums(
                now_ns,
                before.charged + charged[vgpu],
                before.entitled + passed * part,
                before.active + (passed if vgpu in active else 0),
                before.due + due,
            )
            kept.note()

    def received(self, vgpu: int) -> Received:
        """Up to the last look."""
        kept = self._kept.get(vgpu)
        if kept is None or kept.now.at == kept.notes[0].at:
            return NOTHING
        now, since = kept.now, kept.notes[0]
        passed, due = now.at - since.at, now.due - since.due
        active = (now.active - since.active) / passed
        of_due = (now.charged - since.charged) / due if due > 0 else None
        is_steady = active >= STEADY and passed >= WINDOW_NS
        return Received((now.entitled - since.entitled) / passed, active, of_due, is_steady)


def min_max_ratio(received: Iterable[Received]) -> float | None:
    """Of those that wanted the GPU all the minute long. None: they are fewer than two, so there is nothing to compare."""
    ratios = [each.of_due for each in received if each.is_steady and each.of_due is not None]
    return min(ratios) / max(ratios) if len(ratios) > 1 and max(ratios) > 0 else None
