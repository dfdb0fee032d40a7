"""Random histories of vGPUs over a policy, with service kept in exact fractions beside it. Test code of several files.

`History` holds a policy to the bound of fair queuing, `Shares` to the requests of vGPUs.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from scheduler.elastic import ACTIVE_NS, Claim, Elastic, allotments
from scheduler.fair import PARTS_OF_WEIGHT
from scheduler.policy import Bounded, Policy
from tests.scheduler.choosing import Choosing

TOLERANCE = Fraction(1, 1000)  # ns; tags are rounded to far less

ROUNDED = Fraction(2, PARTS_OF_WEIGHT)
"""Of the GPU: what a share is off by at most because weights are kept in parts."""


@dataclass
class Account:
    """What one vGPU did. `normalised` is its service over its weight, `largest` the most of it between two of its dispatches.

    `debts` are what it was indebted by, over the weights of then.
    """

    weight: int
    least_weight: int
    is_backlogged: bool = False
    normalised: Fraction = Fraction(0)
    since_dispatch: Fraction = Fraction(0)
    largest: Fraction = Fraction(0)
    debts: Fraction = Fraction(0)
    unpaid_ns: int = 0
    least_lead: dict[int, Fraction] = field(default_factory=dict)
    """While it is active: how far each other one was ahead of it at the least."""


class History:
    """Drives a policy and checks, at every charge, the bound of docs/fairness.md.

    While a vGPU is active, that is backlogged or holding the GPU, nobody, whatever they do, gets ahead of it by more than the largest
    normalised charge of the two together, and what each may be owed after a pause: `owed_ns` of GPU time, or the largest normalised charge of
    all. `owed_ns` 0: nobody pauses. Who has debts loses them besides, and nobody else does.
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

    def indebt(self, vgpu: int, debt_ns: int) -> None:
        self.accounts[vgpu].debts += Fraction(debt_ns, self.accounts[vgpu].weight)
        self.policy.indebted(vgpu, debt_ns, self.now_ns)

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
                bound = account.largest + mine.largest + owed + mine.debts + TOLERANCE
                assert lead - least <= bound, f"{other} got {float(lead - least)} ns ahead of {vgpu}"


def play(history: History, rng: random.Random, nr_decisions: int, debtor: int | None = None) -> None:
    """Arrivals, sleeps, overruns, late charges and changes of weight, as the generator says; `debtor` has debts, too."""
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
        if debtor is not None and rng.random() < 0.1:
            history.indebt(debtor, rng.randint(1, 10_000_000_000))
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


@dataclass
class Tenant:
    """What one vGPU asks for and does. `charged_ns` counts from the last change of weights on.

    `most_parts` is the largest weight that it had.
    """

    claim: Claim
    is_waiting: bool = False
    last_ns: int = -ACTIVE_NS
    parts: int = 0
    most_parts: int = 0
    charged_ns: int = 0
    since_dispatch_ns: int = 0
    largest_ns: int = 0


class Shares:
    """Drives a policy and checks, at every charge, what docs/fairness.md promises by requests. vGPU 0, for whom it does, always has work.

    Who is active, and by which weights they are charged, is found out here anew at each event, by looking at all.
    """

    def __init__(self, policy: Policy, claims: list[Claim], owed_ns: int) -> None:
        self.policy = Choosing(policy)
        self.owed_ns = owed_ns
        self.tenants = {vgpu: Tenant(claim) for vgpu, claim in enumerate(claims)}
        self.now_ns = 0
        self.holder: int | None = None
        self.longest = Fraction(0)
        for vgpu, claim in enumerate(claims):
            self.policy.joined(vgpu, int(claim.weight), 0)
        for vgpu, claim in enumerate(claims):
            self.bound(vgpu, claim)
        self.wake(0)

    def bound(self, vgpu: int, claim: Claim) -> None:
        self.tenants[vgpu].claim = claim
        self._look()
        self.policy.weight_changed(vgpu, int(claim.weight), self.now_ns)
        if isinstance(self.policy.policy, Bounded):
            self.policy.policy.bounds_changed(vgpu, float(claim.request), float(claim.limit), self.now_ns)
        self._compare()

    def wake(self, vgpu: int) -> None:
        self.tenants[vgpu].is_waiting = True
        self.holder = None if vgpu == self.holder else self.holder
        self._look()
        self.policy.backlogged(vgpu, self.now_ns)
        self._compare()

    def sleep(self, vgpu: int) -> None:
        self._look()
        self.tenants[vgpu].is_waiting = False
        self.holder = None if vgpu == self.holder else self.holder
        self.policy.blocked(vgpu, self.now_ns)
        self._compare()

    def dispatch(self) -> int:
        choice = self.policy.pick(self.now_ns)
        assert choice is not None
        self.holder = choice
        self.tenants[choice].is_waiting = False
        self.tenants[choice].since_dispatch_ns = 0
        self._look()
        self.policy.dispatched(choice, self.now_ns)
        self._compare()
        return choice

    def charge(self, vgpu: int, used_ns: int) -> None:
        tenant = self.tenants[vgpu]
        tenant.last_ns = self.now_ns
        self._look()
        tenant.charged_ns += used_ns
        tenant.since_dispatch_ns += used_ns
        tenant.largest_ns = max(tenant.largest_ns, tenant.since_dispatch_ns)
        self.longest = max(self.longest, Fraction(tenant.since_dispatch_ns, tenant.parts))
        self.policy.charged(vgpu, used_ns, self.now_ns)
        self._compare()
        self._check()

    def _look(self) -> None:
        """The active ones, their weights, and whether these have changed."""
        for vgpu, tenant in self.tenants.items():
            if tenant.is_waiting or vgpu == self.holder:
                tenant.last_ns = self.now_ns
        recent = [tenant for tenant in self.tenants.values() if self.now_ns - tenant.last_ns < ACTIVE_NS]
        got = allotments({i: tenant.claim for i, tenant in enumerate(recent)})
        weights = sum(tenant.claim.weight for tenant in recent)
        before = [tenant.parts for tenant in self.tenants.values()]
        for tenant in self.tenants.values():
            tenant.parts = int(tenant.claim.weight) * PARTS_OF_WEIGHT
        for i, tenant in enumerate(recent):
            tenant.parts = max(1, int(got[i] * weights / sum(got.values()) * PARTS_OF_WEIGHT))
            tenant.most_parts = max(tenant.most_parts, tenant.parts)
        if before != [tenant.parts for tenant in self.tenants.values()]:
            for tenant in self.tenants.values():
                tenant.charged_ns = 0

    def _compare(self) -> None:
        """The policy charges by these weights."""
        if isinstance(self.policy.policy, Elastic):
            for vgpu, tenant in self.tenants.items():
                assert self.policy.standing(vgpu, self.now_ns).per_ns == PARTS_OF_WEIGHT / tenant.parts

    def _check(self) -> None:
        first, charged_ns = self.tenants[0], sum(tenant.charged_ns for tenant in self.tenants.values())

        def reach(tenant: Tenant) -> Fraction:
            owed_ns = max(Fraction(self.owed_ns), self.longest * tenant.most_parts)
            return (tenant.largest_ns + owed_ns) * Fraction(PARTS_OF_WEIGHT, tenant.parts) + TOLERANCE

        others = [tenant for tenant in self.tenants.values() if tenant is not first]
        less_ns = sum(Fraction(tenant.parts, PARTS_OF_WEIGHT) * (reach(tenant) + reach(first)) for tenant in others)
        request = max(Fraction(0), min(first.claim.request, first.claim.limit) - ROUNDED)
        due_ns = request * (charged_ns - less_ns)
        assert first.charged_ns >= due_ns, f"{first.charged_ns} ns, {float(due_ns)} are due"


def work(shares: Shares, rng: random.Random, nr_turns: int, draw: Callable[[], Claim] | None = None) -> None:
    """Turns, overruns, late charges, pauses and sleeps of all but vGPU 0; new bounds, if any can be drawn."""
    lengths_ns = {vgpu: rng.choice((20_000, 500_000, 6_000_000, 90_000_000)) for vgpu in shares.tenants}
    for _ in range(nr_turns):
        shares.now_ns += rng.choice((0, 1_000, 300_000))
        for vgpu in list(shares.tenants)[1:]:
            if vgpu != shares.holder and rng.random() < 0.2:
                (shares.wake if rng.random() < 0.7 else shares.sleep)(vgpu)
            if rng.random() < 0.02:
                shares.charge(vgpu, rng.randint(1, 1_000_000))
        if draw is not None and rng.random() < 0.02:
            shares.bound(rng.choice(list(shares.tenants)), draw())
        if rng.random() < 0.005:
            shares.now_ns += ACTIVE_NS
        holder = shares.dispatch()
        shares.now_ns += lengths_ns[holder]
        shares.charge(holder, rng.randint(1, lengths_ns[holder]))
        (shares.wake if holder == 0 or rng.random() < 0.8 else shares.sleep)(holder)


STRETCH_NS = 6_000_000_000
"""For so long bounds stay."""

SETTLING_NS = 1_500_000_000
"""Of that, what was owed before may be made up for, and those that sleep cease to count."""

HABITS_MS = {
    "busy": ((30, 30, 6), (0,)),
    "pausing": ((1, 2), (3, 8)),
    "sleeping": ((1, 2, 12), (20, 200, 900, 1500)),
    "all": ((1, 12, 30), (0, 0, 3, 9, 12, 500)),
}
"""How long turns last, and rests behind them."""


def shares_while_bounds_change(policy: Elastic, rng: random.Random) -> list[tuple[float, float]]:
    """In each stretch the request of vGPU 0, which always has work, and its part of all that was charged. Turns last 1 to 30 ms."""
    choosing, now_ns = Choosing(policy), 0
    habits = dict.fromkeys(range(rng.randint(2, 6)), "busy")
    rested_ns, waiting, got = dict.fromkeys(habits, 0), set[int](), list[tuple[float, float]]()
    for vgpu in habits:
        choosing.joined(vgpu, rng.choice((1, 1, 2, 5, 100, 10_000)), 0)
    for end_ns in range(STRETCH_NS, 5 * STRETCH_NS, STRETCH_NS):
        left, requests = 100, dict.fromkeys(habits, 0)
        for vgpu in rng.sample(sorted(habits), len(habits)):
            requests[vgpu] = min(left, rng.choice((0, 0, 20, 50, 100)))
            left -= requests[vgpu]
            limit = rng.choice((100, 100, 100, max(requests[vgpu], 40)))
            policy.bounds_changed(vgpu, requests[vgpu] / 100, limit / 100, now_ns)
            habits[vgpu] = rng.choice(("busy", "pausing", "sleeping", "all")) if vgpu else "busy"
        charged_ns, first_ns = 0, 0
        while now_ns < end_ns:
            for vgpu in habits:
                if vgpu not in waiting and rested_ns[vgpu] <= now_ns:
                    waiting.add(vgpu)
                    choosing.backlogged(vgpu, now_ns)
            choice = choosing.pick(now_ns)
            assert choice is not None
            waiting.remove(choice)
            choosing.dispatched(choice, now_ns)
            turn_ns, rest_ns = (rng.choice(lengths_ms) * 1_000_000 for lengths_ms in HABITS_MS[habits[choice]])
            now_ns += turn_ns
            choosing.charged(choice, turn_ns, now_ns)
            rested_ns[choice] = now_ns + rest_ns
            if rested_ns[choice] > now_ns:
                choosing.blocked(choice, now_ns)
            if now_ns > end_ns - STRETCH_NS + SETTLING_NS:
                charged_ns += turn_ns
                first_ns += turn_ns if choice == 0 else 0
        got.append((requests[0] / 100, first_ns / charged_ns))
    return got
