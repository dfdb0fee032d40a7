"""Xen's Credit scheduler over vGPUs, the baseline that FairGV's paper compares with (section 5.3).

Every period of GPU time is handed out as credits, by weight, to the vGPUs that took part; GPU time burns them. Who has credits left is UNDER
and goes before whoever is OVER; within each of the two it goes round robin. What a vGPU can save or owe is limited to one period.

Good when: every turn is about one slice and no kernel is longer than a period. Bad when: kernels are long (what is owed beyond a period is
forgiven) or programs sleep (what is saved makes them first in line when they wake).
Wrong when: taken for Xen's sampled accounting. Here credits burn by what was charged, which is kinder to this policy than the original.

`credit-hs` in the paper's words: guests spin for answers and then sleep, as they do here under every policy.
"""

import math
from dataclasses import dataclass

from scheduler.policy import Standing

PERIOD_NS = 30_000_000

_OVER = float(1 << 40)  # more than there are arrivals


@dataclass(slots=True)
class _Account:
    """One vGPU's credits, in ns of GPU time; `took_part` since credits were last handed out.

    `arrival` is its place in the line, -1 while it does not wait; `arrived_over` says that it got the place when it was OVER.
    """

    weight: int
    credits_ns: int = 0
    arrival: int = -1
    arrived_over: bool = False
    took_part: bool = False

    @property
    def is_over(self) -> bool:
        return self.credits_ns < 0

    @property
    def is_backlogged(self) -> bool:
        return self.arrival >= 0


class Credit:
    """UNDER before OVER, round robin within. An event costs O(1), once a period O(vGPUs) besides."""

    name = "credit-hs"

    def __init__(self) -> None:
        self._accounts: dict[int, _Account] = {}
        self._period_ends_ns: int | None = None
        self._nr_arrivals = 0

    def joined(self, vgpu: int, weight: int, now_ns: int) -> None:
        if vgpu in self._accounts:
            self.weight_changed(vgpu, weight, now_ns)
        else:
            self._accounts[vgpu] = _Account(weight)

    def left(self, vgpu: int, now_ns: int) -> None:
        self._accounts.pop(vgpu, None)

    def weight_changed(self, vgpu: int, weight: int, now_ns: int) -> None:
        if vgpu in self._accounts:
            self._accounts[vgpu].weight = weight

    def backlogged(self, vgpu: int, now_ns: int) -> None:
        self._hand_out(now_ns)
        account = self._accounts.get(vgpu)
        if account is not None and not account.is_backlogged:
            account.took_part = True
            self._enqueue(account)

    def blocked(self, vgpu: int, now_ns: int) -> None:
        self._hand_out(now_ns)
        self._dequeue(vgpu)

    def dispatched(self, vgpu: int, now_ns: int) -> None:
        self._hand_out(now_ns)
        self._dequeue(vgpu)

    def charged(self, vgpu: int, used_ns: int, now_ns: int) -> None:
        account = self._accounts.get(vgpu)
        if account is not None and used_ns > 0:
            account.took_part = True
            account.credits_ns -= used_ns
            self._reclassify(account)
        self._hand_out(now_ns)

    def indebted(self, vgpu: int, debt_ns: int, now_ns: int) -> None:
        self.charged(vgpu, debt_ns, now_ns)

    def standing(self, vgpu: int, now_ns: int) -> Standing:
        account = self._accounts.get(vgpu)
        if account is None:
            return Standing(math.inf)
        place = account.arrival if account.is_backlogged else self._nr_arrivals
        return Standing(_OVER + place if account.is_over else place)

    def _enqueue(self, account: _Account) -> None:
        account.arrival = self._nr_arrivals
        account.arrived_over = account.is_over
        self._nr_arrivals += 1

    def _dequeue(self, vgpu: int) -> None:
        if vgpu in self._accounts:
            self._accounts[vgpu].arrival = -1

    def _reclassify(self, account: _Account) -> None:
        """It goes to the tail of the other class, when its credits say so."""
        if account.is_backlogged and account.arrived_over != account.is_over:
            self._enqueue(account)

    def _hand_out(self, now_ns: int) -> None:
        """At the end of each period, its length in credits, by weight. Periods without an event are handed out together."""
        if self._period_ends_ns is None:
            self._period_ends_ns = now_ns + PERIOD_NS
        if now_ns < self._period_ends_ns:
            return
        nr_periods = 1 + (now_ns - self._period_ends_ns) // PERIOD_NS
        self._period_ends_ns += nr_periods * PERIOD_NS
        members = [account for account in self._accounts.values() if account.took_part]
        total_weight = sum(account.weight for account in members)
        for account in members:
            earned_ns = nr_periods * PERIOD_NS * account.weight // total_weight
            account.credits_ns = min(max(account.credits_ns + earned_ns, -PERIOD_NS), PERIOD_NS)
            account.took_part = account.is_backlogged
            self._reclassify(account)
