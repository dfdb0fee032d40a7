"""Random histories of vGPUs over a policy, with service kept in exact fractions beside it. Test code of several files."""

import random
from dataclasses import dataclass, field
from fractions import Fraction

from scheduler.policy import Policy
from tests.scheduler.choosing import Choosing

TOLERANCE = Fraction(1, 1000)  # ns; tags are rounded to far less


@dataclass
class Account:
    """What one vGPU did. `normalised` is its service over its weight, `largest` the most of it between two of its dispatches."""

    weight: int
    least_weight: int
    is_backlogged: bool = False
    normalised: Fraction = Fraction(0)
    since_dispatch: Fraction = Fraction(0)
    largest: Fraction = Fraction(0)
    unpaid_ns: int = 0
    least_lead: dict[int, Fraction] = field(default_factory=dict)
    """While it is active: how far each other one was ahead of it at the least."""


class History:
    """Drives a policy and checks, at every charge, the bound of docs/fairness.md.

    While a vGPU is active, that is backlogged or holding the GPU, nobody, whatever they do, gets ahead of it by more than the largest
    normalised charge of the two together, and what each may be owed after a pause: `owed_ns` of GPU time, or the largest normalised charge of
    all. `owed_ns` 0: nobody pauses.
    """

    def __init__(self, policy: Policy, weights: list[int], owed_ns: int) -> None:
        self.policy = Choosing(policy)
        self.owed_ns = owed_ns
        self.now_ns = 0
        self.holder: int | None = None
        self.accounts = {vgpu: Account(weight, weight) for vgpu, weight in enumerate(weights)}
        for vgpu, weight in enumerate(weights):
            self.policy.joined(vgpu, weight, 0)

    def is_active(self, vgpu: int) -> bool:
        return self.accounts[vgpu].is_backlogged or vgpu == self.holder

    def wake(self, vgpu: int) -> None:
        if not self.is_active(vgpu):
            self._begin(vgpu)
            self.queue(vgpu)

    def queue(self, vgpu: int) -> None:
        self.accounts[vgpu].is_backlogged = True
        if vgpu == self.holder:
            self.holder = None
        self.policy.backlogged(vgpu, self.now_ns)

    def sleep(self, vgpu: int) -> None:
        if self.is_active(vgpu):
            self.accounts[vgpu].is_backlogged = False
            if vgpu == self.holder:
                self.holder = None
            self.accounts[vgpu].least_lead.clear()
            self.policy.blocked(vgpu, self.now_ns)

    def change_weight(self, vgpu: int, weight: int) -> None:
        account = self.accounts[vgpu]
        account.weight = weight
        account.least_weight = min(account.least_weight, weight)
        self.policy.weight_changed(vgpu, weight, self.now_ns)

    def dispatch(self) -> int | None:
        """Who the policy picks takes the GPU; whoever held it has queued or slept before."""
        choice = self.policy.pick(self.now_ns)
        assert (choice is None) == (not any(account.is_backlogged for account in self.accounts.values()))
        if choice is None:
            return None
        account = self.accounts[choice]
        assert account.is_backlogged
        account.is_backlogged = False
        account.since_dispatch = Fraction(0)
        self.holder = choice
        self.policy.dispatched(choice, self.now_ns)
        return choice

    def charge(self, vgpu: int, used_ns: int) -> None:
        account = self.accounts[vgpu]
        service = Fraction(used_ns, account.weight)
        account.normalised += service
        account.since_dispatch += service
        account.largest = max(account.largest, account.since_dispatch)
        self.policy.charged(vgpu, used_ns, self.now_ns)
        self._check()

    def _begin(self, vgpu: int) -> None:
        mine = self.accounts[vgpu]
        mine.least_lead = {other: account.normalised - mine.normalised for other, account in self.accounts.items()}

    def _owed(self, account: Account, longest: Fraction) -> Fraction:
        return max(Fraction(self.owed_ns, account.least_weight), longest) if self.owed_ns else Fraction(0)

    def _check(self) -> None:
        longest = max(account.largest for account in self.accounts.values())
        for vgpu in self.accounts:
            if not self.is_active(vgpu):
                continue
            mine = self.accounts[vgpu]
            for other, account in self.accounts.items():
                lead = account.normalised - mine.normalised
                least = mine.least_lead[other] = min(mine.least_lead[other], lead)
                owed = self._owed(mine, longest) + self._owed(account, longest)
                bound = account.largest + mine.largest + owed + TOLERANCE
                assert lead - least <= bound, f"{other} got {float(lead - least)} ns ahead of {vgpu}"


def play(history: History, rng: random.Random, nr_decisions: int) -> None:
    """Arrivals, sleeps, overruns, late charges and changes of weight, as the generator says."""
    vgpus = list(history.accounts)
    lengths_ns = {vgpu: rng.choice((20_000, 500_000, 6_000_000, 90_000_000)) for vgpu in vgpus}
    for _ in range(nr_decisions):
        history.now_ns += rng.choice((0, 1_000, 300_000, 2_000_000, 50_000_000))
        for vgpu in vgpus:
            if vgpu != history.holder and rng.random() < 0.3:
                (history.wake if rng.random() < 0.7 else history.sleep)(vgpu)
            account = history.accounts[vgpu]
            if account.unpaid_ns and rng.random() < 0.5:  # late: it may hold the GPU again, wait, or sleep
                history.charge(vgpu, account.unpaid_ns)
                account.unpaid_ns = 0
        if rng.random() < 0.05:
            history.change_weight(rng.choice(vgpus), rng.randint(1, 8))
        holder = history.dispatch()
        if holder is None:
            continue
        for _ in range(rng.randint(1, 3)):
            history.now_ns += lengths_ns[holder] // 3
            history.charge(holder, rng.randint(1, lengths_ns[holder]))
        history.accounts[holder].unpaid_ns += rng.choice((0, 0, 7_000, 400_000))
        (history.queue if rng.random() < 0.8 else history.sleep)(holder)
