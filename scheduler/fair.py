"""Fair queuing by start tags: each vGPU gets the GPU in proportion to its weight, however long its kernels are and however it sleeps.

A vGPU's tag grows by what it used over its weight; the least tag goes first (FairGV, section 3.2.1). Nothing has to be known beforehand: an
overrun, a kernel longer than the slice, a charge that comes late are all paid by the tag. Virtual time is the least tag of the active ones,
those that wait or hold the GPU, and never goes back; whoever wakes starts there, beside one that stands behind it, or at its own tag when that
is higher, so that sleeping earns nothing. docs/fairness.md states the bound on unfairness, with its proof.

Good when: shares matter. Bad when: latency of one vGPU matters more than the shares of the others; there is no priority here.
Wrong when: a vGPU leaves and joins again to be rid of what it overran. Who may do that is the caller's business.

Tags are integers, and what a division leaves over is kept for the next charge: however many charges there are, and however small, a tag is
never off by more than one unit, 1/65536 ns.
"""

import math
from dataclasses import dataclass, field
from itertools import islice

from sortedcontainers import SortedList

from scheduler.policy import Standing

PAUSE_NS = 10_000_000
"""Whoever has nothing to submit for less than this has not slept. Programs that wait for each kernel pause after each kernel; they would lose
what they are still owed at every pause. It may be longer where turns are, see `PAUSE_DIVISOR`."""

PAUSE_DIVISOR = 4
"""A pause may also last for a quarter of the longest turn lately: 20 ms are nothing beside a kernel of 6 s. By GPU time, whatever the weights
are: a turn of 30 ms counts for minutes at a weight of next to nothing, and a sleep of seconds is no pause for that."""

OWED_NS = 100_000_000
"""Whoever wakes from a pause keeps what it is owed, up to this much GPU time: one that is to run several slices for one of another's may pause
in the first of them. It keeps more of those whose turns are longer, see `_Leads`."""

_UNITS_PER_NS = 1 << 16
PARTS_OF_WEIGHT = 1 << 16
"""Weights are kept in such parts of 1."""


class _Leads:
    """How far a turn lately took its vGPU's tag beyond virtual time: by the longest kernel, where a device cannot take one back. The others are
    owed as much then, and may pause while they catch up. Of one vGPU, or of all.

    Kept for two stretches of virtual time, each as long as the lead itself: once virtual time has moved by that, who led by so much has its
    next turn, and leads anew. So what was seen once is forgotten.
    """

    def __init__(self) -> None:
        self._lead = self._lead_before = self._since = 0
        self._turn_ns = self._turn_before_ns = 0

    def note(self, lead: int, parts: int, virtual_time: int) -> None:
        """A tag is so far beyond virtual time, at a weight of so many parts."""
        if virtual_time - self._since >= self.largest():
            self._lead_before, self._lead, self._since = self._lead, 0, virtual_time
            self._turn_before_ns, self._turn_ns = self._turn_ns, 0
        self._lead = max(self._lead, lead)
        self._turn_ns = max(self._turn_ns, lead * parts // (_UNITS_PER_NS * PARTS_OF_WEIGHT))

    def reweigh(self, parts: int, new_parts: int) -> None:
        """Of one vGPU, whose weight changes, and whose lead stays as GPU time."""
        self._lead = self._lead * parts // new_parts
        self._lead_before = self._lead_before * parts // new_parts

    def measure(self, lead: int, virtual_time: int) -> None:
        """Anew: virtual time has gone back, and the furthest tag is so far beyond it. How long turns were stays."""
        self._lead, self._lead_before, self._since = lead, 0, virtual_time

    def largest(self) -> int:
        """Of the last two stretches."""
        return max(self._lead, self._lead_before)

    def longest_ns(self) -> int:
        """The longest of these turns, in GPU time."""
        return max(self._turn_ns, self._turn_before_ns)


@dataclass(slots=True)
class _Account:
    """One vGPU. `tag` is its start tag while it is active and its finish tag while it is not; `rest` is what the tag does not show yet.

    `debt` is how much of what the tag is beyond virtual time no turn has made, as of its last charge.
    """

    parts: int
    tag: int
    rest: int = 0
    debt: int = 0
    leads: _Leads = field(default_factory=_Leads)
    """How far its turns lately took it beyond virtual time."""
    is_backlogged: bool = False
    pause_ends_ns: int | None = None
    """Of one that rests, in a pause until then; None: it is active, or sleeps."""


class _Pausing:
    """Who is in a pause: has nothing to submit, and has not slept."""

    def __init__(self) -> None:
        self._by_tag: SortedList[tuple[int, int, int]] = SortedList()  # with the end of the pause, and the vGPU
        self._by_end: SortedList[tuple[int, int, int]] = SortedList()  # the other way round

    def add(self, tag: int, ends_ns: int, vgpu: int) -> None:
        """One that is not among them."""
        self._by_tag.add((tag, ends_ns, vgpu))
        self._by_end.add((ends_ns, tag, vgpu))

    def remove(self, tag: int, ends_ns: int, vgpu: int) -> None:
        """One that may have slept by now."""
        self._by_tag.discard((tag, ends_ns, vgpu))
        self._by_end.discard((ends_ns, tag, vgpu))

    def forget(self, now_ns: int) -> None:
        """Those that sleep by now."""
        while self._by_end and self._by_end[0][0] <= now_ns:
            ends_ns, tag, vgpu = self._by_end.pop(0)
            self._by_tag.remove((tag, ends_ns, vgpu))

    def least(self, now_ns: int, but: int) -> list[tuple[int, int]]:
        """Tag and vGPU of the last one that does not sleep by now, but for one; or nothing."""
        found = ((tag, vgpu) for tag, ends_ns, vgpu in self._by_tag if now_ns < ends_ns and vgpu != but)
        return list(islice(found, 1))


class FairQueuing:
    """Least start tag first. An event costs O(log vGPUs)."""

    name = "fair"

    def __init__(self, pause_ns: int = PAUSE_NS, owed_ns: int = OWED_NS) -> None:
        self._pause_ns = pause_ns
        self._owed_ns = owed_ns
        self._accounts: dict[int, _Account] = {}
        self._queue: SortedList[tuple[int, int]] = SortedList()  # of the backlogged: tag, vGPU
        self._holder: int | None = None
        self._virtual_time = 0
        self._leads = _Leads()
        self._pausing = _Pausing()

    def joined(self, vgpu: int, weight: int, now_ns: int) -> None:
        if vgpu in self._accounts:
            self.weight_changed(vgpu, weight, now_ns)
        else:
            self._accounts[vgpu] = _Account(weight * PARTS_OF_WEIGHT, tag=0)  # it starts where it wakes

    def left(self, vgpu: int, now_ns: int) -> None:
        account = self._accounts.get(vgpu)
        if account is not None:
            self._rest(vgpu, account, now_ns)
            self._end_pause(vgpu, account)
            del self._accounts[vgpu]
            self._advance()

    def weight_changed(self, vgpu: int, weight: int, now_ns: int) -> None:
        self._set_parts(vgpu, weight * PARTS_OF_WEIGHT)

    def backlogged(self, vgpu: int, now_ns: int) -> None:
        account = self._accounts.get(vgpu)
        if account is None or account.is_backlogged:
            return
        self._wake(vgpu, account, now_ns)
        if vgpu == self._holder:
            self._holder = None
        account.is_backlogged = True
        self._queue.add((account.tag, vgpu))
        self._advance()

    def blocked(self, vgpu: int, now_ns: int) -> None:
        account = self._accounts.get(vgpu)
        if account is not None and self._is_active(vgpu, account):
            self._rest(vgpu, account, now_ns)
            self._advance()

    def dispatched(self, vgpu: int, now_ns: int) -> None:
        if vgpu == self._holder:
            return
        account = self._accounts.get(vgpu)
        if account is not None:
            self._wake(vgpu, account, now_ns)
            self._dequeue(vgpu, account)
        if self._holder is not None:
            self._rest(self._holder, self._accounts[self._holder], now_ns)
        self._holder = vgpu if account is not None else None
        self._advance()

    def charged(self, vgpu: int, used_ns: int, now_ns: int) -> None:
        account = self._accounts.get(vgpu)
        if account is not None and used_ns > 0:
            self._grow(vgpu, account, used_ns, now_ns)
            lead = account.tag - account.debt - self._virtual_time
            for leads in (self._leads, account.leads):
                leads.note(lead, account.parts, self._virtual_time)

    def indebted(self, vgpu: int, debt_ns: int, now_ns: int) -> None:
        account = self._accounts.get(vgpu)
        if account is not None and debt_ns > 0:
            account.debt += self._grow(vgpu, account, debt_ns, now_ns)

    def standing(self, vgpu: int, now_ns: int) -> Standing:
        account = self._accounts.get(vgpu)
        if account is None:
            return Standing(math.inf)
        return Standing(self._start_tag(vgpu, account, now_ns) / _UNITS_PER_NS, PARTS_OF_WEIGHT / account.parts)

    def _grow(self, vgpu: int, account: _Account, used_ns: int, now_ns: int) -> int:
        """Its tag goes on from where it starts; by how much. What virtual time has caught up with of its debt is paid."""
        start_tag = self._start_tag(vgpu, account, now_ns)
        account.debt = min(account.debt, max(0, start_tag - self._virtual_time))
        growth, account.rest = divmod(used_ns * (_UNITS_PER_NS * PARTS_OF_WEIGHT) + account.rest, account.parts)
        self._move(vgpu, account, start_tag + growth)
        self._advance()
        return growth

    def _move(self, vgpu: int, account: _Account, tag: int) -> None:
        """To another tag, active or not."""
        if account.is_backlogged:
            self._queue.remove((account.tag, vgpu))
            self._queue.add((tag, vgpu))
        elif account.pause_ends_ns is not None:
            self._pausing.remove(account.tag, account.pause_ends_ns, vgpu)
            self._pausing.add(tag, account.pause_ends_ns, vgpu)
        account.tag = tag

    def _set_parts(self, vgpu: int, parts: int) -> None:
        """Charges from now on count over a weight of so many parts. The tag stays."""
        account = self._accounts.get(vgpu)
        if account is not None:
            account.rest = account.rest * parts // account.parts
            account.parts = parts

    def _is_active(self, vgpu: int, account: _Account) -> bool:
        return account.is_backlogged or vgpu == self._holder

    def _start_tag(self, vgpu: int, account: _Account, now_ns: int) -> int:
        """Its tag if it is active, else the one it would wake with. One at work unnoticed, with a kernel that outlived its slice, is awake."""
        if self._is_active(vgpu, account):
            return account.tag
        usual, leads = self._usual(account), self._leads
        kept = self._virtual_time - max(usual, leads.largest())
        tag, other = min(self._least_awake(vgpu, now_ns), default=(self._virtual_time, None))
        beside = min(tag, self._virtual_time)
        if self._is_awake(vgpu, account, now_ns):
            leads = leads if other is None else self._accounts[other].leads
            beside -= max(usual, leads.largest())
        return max(account.tag, kept, beside)

    def _usual(self, account: _Account) -> int:
        """What it keeps in a pause where nobody leads by more."""
        return self._owed_ns * (_UNITS_PER_NS * PARTS_OF_WEIGHT) // account.parts

    def _is_awake(self, vgpu: int, account: _Account, now_ns: int) -> bool:
        """It is active, or in a pause."""
        return self._is_active(vgpu, account) or (account.pause_ends_ns is not None and now_ns < account.pause_ends_ns)

    def _least_awake(self, but: int, now_ns: int) -> list[tuple[int, int]]:
        """Tag and vGPU of the last ones, but for one, among those that wait, hold the GPU, or are in a pause. Whoever slept begins beside that
        one, which else had the GPU alone until it has caught up."""
        return [*self._least_active(), *self._pausing.least(now_ns, but)]

    def _wake(self, vgpu: int, account: _Account, now_ns: int) -> None:
        """It is active from now on."""
        self._pausing.forget(now_ns)
        tag = self._start_tag(vgpu, account, now_ns)
        self._end_pause(vgpu, account)
        account.tag = tag

    def _rest(self, vgpu: int, account: _Account, now_ns: int) -> None:
        """It neither waits nor holds the GPU; what begins is a pause, until it lasts too long."""
        self._dequeue(vgpu, account)
        if vgpu == self._holder:
            self._holder = None
        self._end_pause(vgpu, account)
        if self._pause_ns:
            account.pause_ends_ns = now_ns + max(self._pause_ns, self._leads.longest_ns() // PAUSE_DIVISOR)
            self._pausing.add(account.tag, account.pause_ends_ns, vgpu)

    def _end_pause(self, vgpu: int, account: _Account) -> None:
        if account.pause_ends_ns is not None:
            self._pausing.remove(account.tag, account.pause_ends_ns, vgpu)
            account.pause_ends_ns = None

    def _dequeue(self, vgpu: int, account: _Account) -> None:
        if account.is_backlogged:
            account.is_backlogged = False
            self._queue.remove((account.tag, vgpu))

    def _advance(self) -> None:
        """Virtual time follows the least tag of the active ones."""
        self._virtual_time = max(self._virtual_time, min((tag for tag, _ in self._least_active()), default=0))

    def _least_active(self) -> list[tuple[int, int]]:
        """Tag and vGPU of the last of those that wait, and of the holder."""
        last = [self._queue[0]] if self._queue else []
        return last if self._holder is None else [*last, (self._accounts[self._holder].tag, self._holder)]
