"""Counts and turns in the grant that no honest worker makes, as the auditor sees them from look to look.

They are no evidence against anybody, since any worker may have written them. What is seen here alarms, and that costs little (apart.py): so it
is asked what is likely, not what is sure.

Wrong when: whoever writes takes turns out of turn so seldom, or counts so few unused grants, that it stays below what is usual. It gains as
little by that: 5 % of the time, and turns that it pays for.
"""

from dataclasses import dataclass

from backend_host.device.audit import Audit, Claim
from backend_host.device.control import MAX_VGPUS
from backend_host.worker._worker import lib

_UNUSED_NS: int = lib.FGW_GRANT_UNUSED_NS
_WINDOW_NS = 1_000_000_000
_UNUSED_MOST = 25
"""Unused grants of a vGPU in a second: 50 ms, in which others were kept waiting for it. Beyond that it is asked who counts."""
_OUT_OF_TURN_MOST = 3
"""Standings change between two looks, by a policy's word: one turn that seems out of turn is none."""
_LATE_NS = 10_000_000
"""A turn that two looks bracket may be longer by that: a look comes late."""


_MENDS_PER_S, _MENDS_MOST = 3, 6
"""Beside a load of 30 on two cores honest workers lost their CPU between a bit and its phase about once a second, for two looks. An attack on
bits is mended by each second look, so it is known as one after 0.3 s; what goes on below that costs neighbours 40 ms three times a second."""


@dataclass
class _Count:
    """Of one vGPU: its unused grants, and how many there were as the last window began."""

    generation: int
    at_begin: int
    begun_ns: int
    last: int


class Forgeries:
    """What an auditor remembers of one page."""

    def __init__(self) -> None:
        self._counts: dict[int, _Count] = {}
        self._nr_out_of_turn = 0
        self._mends = 0.0
        self._mended_ns = 0

    def mended(self, now_ns: int) -> bool:
        """Something was mended that may be an honest worker's, too. Whether that happens too often."""
        leaked = (now_ns - self._mended_ns) * _MENDS_PER_S / 1e9
        self._mends, self._mended_ns = max(0.0, self._mends - leaked) + 1, now_ns
        return self._mends >= _MENDS_MOST

    def seen(self, before: Audit, audit: Audit) -> str:
        """What of it there is since the last look; "": nothing."""
        if audit.is_apart or before.is_apart:
            self._counts.clear()  # what the daemon counted is true
            return ""
        if audit.is_word_wrong:
            return "a grant of nobody"
        whose = [vgpu for vgpu in range(MAX_VGPUS) if self._miscounted(vgpu, audit, audit.at_ns - before.at_ns)]
        if whose:
            return f"unused grants of vGPU {whose[0]}"
        return "turns out of turn" if self._is_out_of_turn(before, audit) else ""

    def nr_unused(self, audit: Audit) -> list[int]:
        """How many grants each vGPU did not use, as far as that is believed: what came in a window with too many is not."""
        believed = [0] * MAX_VGPUS
        for vgpu in range(MAX_VGPUS):
            claim, count = audit.claim(vgpu), self._counts.get(vgpu)
            if claim is not None:
                believed[vgpu] = count.at_begin if count is not None else 0
        return believed

    def _miscounted(self, vgpu: int, audit: Audit, passed_ns: int) -> bool:
        claim = audit.claim(vgpu)
        if claim is None:
            self._counts.pop(vgpu, None)
            return False
        count = self._counts.get(vgpu)
        if count is None or count.generation != claim.generation:
            self._counts[vgpu] = _Count(claim.generation, claim.nr_unused, audit.at_ns, claim.nr_unused)
            return False
        more = (claim.nr_unused - count.last) % (1 << 32)
        count.last = claim.nr_unused
        nr_windows = max(1, (audit.at_ns - count.begun_ns) // _WINDOW_NS)
        if (
            more > passed_ns // _UNUSED_NS + 1
            or (claim.nr_unused - count.at_begin) % (1 << 32) > _UNUSED_MOST * nr_windows
        ):
            return True
        if audit.at_ns - count.begun_ns > _WINDOW_NS:
            count.at_begin, count.begun_ns = claim.nr_unused, audit.at_ns
        return False

    def _is_out_of_turn(self, before: Audit, audit: Audit) -> bool:
        """Whether again and again ones have turns that stand behind who waits, or keep one open beyond its length."""
        vgpu = audit.holder
        if vgpu is None or (holder := audit.claim(vgpu)) is None or audit.is_closed:
            return False
        earlier = before.claim(vgpu)
        if holder.is_urgent or (earlier is not None and earlier.is_urgent):
            return False  # and goes before all, as the daemon says
        turn_ns = audit.at_ns - before.at_ns + _LATE_NS + (holder.turn_ns if audit.turn == before.turn else 0)
        first = min((claim.standing for claim in _put_off(before, audit, vgpu)), default=holder.standing)
        is_behind = holder.standing_per_ns > 0 and holder.standing - first > holder.standing_per_ns * turn_ns
        self._nr_out_of_turn = self._nr_out_of_turn + 1 if is_behind else 0
        return self._nr_out_of_turn >= _OUT_OF_TURN_MOST


def _put_off(before: Audit, audit: Audit, holder: int) -> list[Claim]:
    """Who waited in both looks, and before the first one."""
    return [
        claim
        for vgpu in range(MAX_VGPUS)
        if vgpu != holder
        and (claim := audit.claim(vgpu)) is not None
        and (earlier := before.claim(vgpu)) is not None
        and claim.waits
        and earlier.waits
        and claim.waiting_since_ns < before.at_ns
    ]
