"""Sees to it that the grant goes by what workers themselves stand for, whatever a worker that its guest took over writes into it.

All workers write the grant, so nothing in it tells who wrote it: what is wrong there is mended, and vGPUs go apart for a while (apart.py), but
nobody is blamed for it. Blame needs evidence that only the culprit can have made: its vGPU's own object, which no other vGPU can write
(worker/page/layout.h). So there are two kinds of things to be seen, in a look every 20 ms while anybody wants the GPU.

Mended, and an alarm, without blame:
  a word that no worker writes, counts of unused grants and turns that are not likely (forgeries.py)
  seen by two looks in a row: a bit in `users`, `waiting` or `running` that is not what its owner's phase says
  a turn that began in the future, or a holder that is kept off the device in the future
  a holder that by its own word does not use the grant, or that has it beyond its turn and charges itself nothing, while no kernel of it keeps
  a device that takes none back: the next one gets it

Evidence, which ends the vGPU's workers, with the reason:
  figures that cannot be true: charges that became less, that are more than there was time, or that reach into the future
  a limit whose count is put back, by its own charges (kept_limit.py)
  turns that are not paid for: for UNPAID_NS of time more than twice what it charged itself, it said that it has its turn, held the grant, and
  others said that they wait

Until there is evidence, time that was held and not charged is charged by the daemon, as far as it is more than twice what was charged: `owe` is
called with how much that is by now. It shrinks when charges come late, as they do behind a long call of the driver.

Wrong when: a taken-over worker submits without a turn. The page tells of no work that its worker keeps silent about.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from backend_host.device.audit import Audit, Claim
from backend_host.device.control import MAX_VGPUS, ControlPage
from backend_host.device.forgeries import Forgeries
from backend_host.device.kept_limit import KeptLimit
from backend_host.device.occupancy import keeps_device
from backend_host.looking import Looking

LOOK_S = 0.02
"""Two looks are within 50 ms, also where a look comes late by half of its time."""
_QUIET_S = 0.2
"""While no two vGPUs have programs, or none of them wants the GPU, nobody can take anything from another."""
_AGAIN_S = 0.001
"""What is wrong is looked at once more after that: an honest worker may be between a bit and its phase in both looks, and is soon behind it."""
_TIME_MOST_NS = 50_000_000
"""A look that comes later tells nothing of the time since the last one: the daemon stood still."""
PAID_DIVISOR = 2
"""An honest turn charges more than half of itself: of a slice of 6 ms at least 3, after 2 ms for another's work in the way and the switch."""
GRACE_NS = 100_000_000
"""So much unpaid time is nobody's affair: charges come late, by 0.5 ms as a rule, by as long as a call of the driver takes else."""
STILL_NS = 200_000_000
"""A holder with work on the device charges itself each 0.5 ms. On a host of two cores with a load of 18 its worker got none for 40 ms."""
UNPAID_NS = 8_000_000_000
"""Beyond what a worker can honestly be late with: the grant is taken from whoever keeps others waiting for 5 s beyond its slice (grants.py)."""
_AHEAD_NS = 1_000_000_000
"""What a figure may be ahead of the clock: tails are charged in advance, 50 us each, by each worker."""

log = logging.getLogger("fairgv.device")


@dataclass
class _Kept:
    """What is known of one vGPU since it came."""

    generation: int
    first: Claim
    first_ns: int
    last: Claim
    most_workers: int = 1
    unpaid_ns: int = 0
    is_blamed: bool = False
    limit: KeptLimit = field(default_factory=KeptLimit)


@dataclass
class _Turn:
    """A grant that keeps others waiting: since when, and since when its holder's figures stand still."""

    word: int
    since_ns: int
    figures: tuple[int, int]
    figures_ns: int
    keeps_device: bool = False
    asked_ns: int = 0


class Auditor(Looking):
    """One thread over one control page. `end` is called with a vGPU's number and why its workers are to be ended; `owe` with what it is to be
    charged beside its own charges, each time that this has changed; `alarm` with what somebody wrote that no worker writes, and the counts of
    unused grants that are believed all the same."""

    def __init__(
        self,
        page: ControlPage,
        end: Callable[[int, str], None],
        owe: Callable[[int, int], None],
        alarm: Callable[[str, Sequence[int]], None],
        *,
        is_preemptive: bool,
    ) -> None:
        super().__init__("auditor")
        self._page = page
        self._end = end
        self._owe = owe
        self._alarm = alarm
        self._is_preemptive = is_preemptive
        self._kept: dict[int, _Kept] = {}
        self._before: Audit | None = None
        self._turn: _Turn | None = None
        self._forgeries = Forgeries()
        self.nr_mended = 0
        """Times that the grant was mended."""

    def _run(self) -> None:
        period_s = _QUIET_S
        while not self._is_stopping.wait(period_s):
            period_s = LOOK_S if self._tried(self.look, log, "a look at what workers write failed") else _QUIET_S

    def look(self) -> bool:
        """One look, which is what the thread does again and again; whether somebody can take from another before `_QUIET_S` is over: two vGPUs
        have programs, and one of them wants the GPU, or had it since the last look."""
        audit = self._page.audit()
        before, self._before = self._before, audit
        charged = {vgpu: self._look_at(vgpu, audit.claim(vgpu), audit.at_ns) for vgpu in range(MAX_VGPUS)}
        self._pay_in_space(audit, charged)
        is_busy = audit.nr_served > 1 and (audit.is_wanted or any(charged.values()))
        if before is None:
            return is_busy
        self._collect(before, audit)
        if why := self._forgeries.seen(before, audit):
            self.nr_mended += 1
            self._alarm(why, self._forgeries.nr_unused(audit))
            self._page.set_unused(self._forgeries.nr_unused(audit))
        if not audit.is_apart and audit.wrong and before.wrong:
            time.sleep(_AGAIN_S)
            self._mended(self._page.mend(before, audit), audit)
        self._take_back(before, audit)
        return is_busy

    def _mended(self, nr: int, audit: Audit) -> None:
        self.nr_mended += nr
        if nr and self._forgeries.mended(audit.at_ns):
            self._alarm(" and ".join(audit.wrong) or "a grant that is kept", self._forgeries.nr_unused(audit))

    def _look_at(self, vgpu: int, claim: Claim | None, now_ns: int) -> int:
        """What it was charged since the last look."""
        if claim is None:
            self._kept.pop(vgpu, None)
            return 0
        kept = self._kept.get(vgpu)
        if kept is None or kept.generation != claim.generation:
            self._kept[vgpu] = _Kept(claim.generation, claim, now_ns, claim)
            return 0
        kept.most_workers = max(kept.most_workers, claim.nr_workers)
        is_put_back = kept.limit.is_put_back(claim, self._page.slice_ns, now_ns)
        why = "it put back the count of its limit" if is_put_back else _untrue(kept, claim, now_ns)
        if why and not kept.is_blamed:
            self._blame(vgpu, kept, why)
        charged_ns = max(0, claim.charged_ns - kept.last.charged_ns)
        self._pay(vgpu, kept, charged_ns)
        kept.last = claim
        return charged_ns

    def _pay_in_space(self, audit: Audit, charged: Mapping[int, int]) -> None:
        """What others of the holder's space are charged pays for its turn, too: a space is charged once for each ns."""
        if (vgpu := audit.holder) is None or (holder := audit.claim(vgpu)) is None or not holder.space:
            return
        if (kept := self._kept.get(vgpu)) is None:
            return
        for other, charged_ns in charged.items():
            claim = audit.claim(other)
            if other != vgpu and claim is not None and claim.space == holder.space:
                self._pay(vgpu, kept, charged_ns)

    def _pay(self, vgpu: int, kept: _Kept, paid_ns: int) -> None:
        owed_ns = max(0, kept.unpaid_ns - GRACE_NS)
        kept.unpaid_ns = max(0, kept.unpaid_ns - paid_ns)
        if owed_ns != (now_owed_ns := max(0, kept.unpaid_ns - GRACE_NS)):
            self._owe(vgpu, now_owed_ns)

    def _collect(self, before: Audit, audit: Audit) -> None:
        """The holder owes a part of the time since the last look, if it says that it has its turn, and others say that they wait. Of shorter
        turns as many are seen as come to that time together."""
        vgpu = audit.holder
        if vgpu is None or not self._keeps_others_waiting(audit, vgpu) or (kept := self._kept.get(vgpu)) is None:
            return
        nr_sharing = max(1, audit.nr_working) if self._is_preemptive else 1
        self._pay(vgpu, kept, -(min(audit.at_ns - before.at_ns, _TIME_MOST_NS) // PAID_DIVISOR // nr_sharing))
        if kept.unpaid_ns > UNPAID_NS // PAID_DIVISOR and not kept.is_blamed:
            self._blame(vgpu, kept, "it has the GPU while others wait, and does not charge itself for it")

    @staticmethod
    def _keeps_others_waiting(audit: Audit, vgpu: int) -> bool:
        claim = audit.claim(vgpu)
        return claim is not None and claim.uses and audit.others_wait(vgpu)

    def _take_back(self, before: Audit, audit: Audit) -> None:
        """From a holder that does not use the grant: by its own word, or by its charges, beyond its turn's length."""
        vgpu = audit.holder
        if vgpu is None or not audit.others_wait(vgpu):
            self._turn = None
            return
        claims = [claim for look in (before, audit) if (claim := look.claim(vgpu)) is not None]
        figures = (claims[-1].charged_ns, claims[-1].charged_until_ns) if claims else (0, 0)
        turn = self._turn
        if turn is None or turn.word != audit.word:
            self._turn = _Turn(audit.word, audit.at_ns, figures, audit.at_ns)
            return
        if turn.figures != figures:
            turn.figures, turn.figures_ns = figures, audit.at_ns
        still_ns = STILL_NS if any(claim.works for claim in claims) else 1
        turn_ns = max((claim.turn_ns for claim in claims), default=0)
        is_over = audit.at_ns - turn.since_ns > turn_ns + int(LOOK_S * 1e9)
        is_still = audit.at_ns - turn.figures_ns >= still_ns
        is_used = any(claim.uses for claim in claims)
        if is_used and not (is_over and is_still and not self._keeps_device(turn, vgpu, audit.at_ns)):
            return
        if self._page.take_grant(audit.word, is_used=is_used):
            self._mended(1, audit)

    def _keeps_device(self, turn: _Turn, vgpu: int, now_ns: int) -> bool:
        """See `occupancy`; asked once in STILL_NS."""
        if now_ns - turn.asked_ns >= STILL_NS:
            turn.asked_ns, turn.keeps_device = now_ns, keeps_device(self._page, vgpu)
        return turn.keeps_device

    def _blame(self, vgpu: int, kept: _Kept, why: str) -> None:
        self._end(vgpu, why)
        kept.is_blamed = True


def _untrue(kept: _Kept, claim: Claim, now_ns: int) -> str | None:
    """Why its figures cannot be true. Charges come late where a worker stood still: at the first look they reached up to a time before it."""
    time_ns = now_ns - min(kept.first_ns, kept.first.charged_until_ns or kept.first_ns) + _AHEAD_NS
    used_ns, held_ns = claim.used_ns - kept.first.used_ns, claim.held_ns - kept.first.held_ns
    if claim.used_ns < kept.last.used_ns or claim.held_ns < kept.last.held_ns:
        return "its charges became less"
    if used_ns > time_ns or held_ns > time_ns * kept.most_workers:
        return "it was charged for more time than there was"
    if claim.charged_until_ns > now_ns + _AHEAD_NS:
        return "it is charged up to a time that is to come"
    return None
