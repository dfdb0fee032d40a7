"""The thread that knows who is next: it feeds the policy with what the control page shows and publishes how the policy ranks the vGPUs.

It is never on the path between two slices: the workers hand the grant over by themselves, to the one of least standing among those that
wait. While these stay the same it looks now and then, and not at each hand-over, for which it would take a core, provided that the policy ranks
by what is charged alone. A policy that raises, or that ranks by what is no number, is replaced by first come, first served.

Wrong when: this thread is kept off the processor for many slices. Standings then grow with what is charged and by nothing else: shares
stay right for those that keep working, and one that wakes may be served too early by what it missed.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from backend_host.budgets import Budgets
from backend_host.device.control import ControlPage
from backend_host.device.occupancy import keeps_device
from backend_host.device.readings import Grant, VgpuReading, charges
from backend_host.entitled import entitled_shares
from backend_host.entitlement import WHOLE, Entitlement
from backend_host.fairness import Fairness, Received
from backend_host.history import UseHistory
from backend_host.service.journal import about
from scheduler.first_come import FirstCome
from scheduler.policy import Bounded, Policy, Standing

_BELL_TIMEOUT_S = 0.1
_QUIET_TIMEOUT_S = 1.0

OVERRUN_NS = 5_000_000_000
"""A holder that keeps others waiting this much longer than its slice loses the grant, unless a kernel of it keeps a device that takes none
back. What it has in flight goes on."""
MOST_LEAD_NS = 3_600_000_000_000
"""What a vGPU is ahead by is forgotten beyond an hour when a daemon adopts it."""

log = logging.getLogger("fairgv.grants")


class PolicyError(Exception):
    """A policy answered what no policy may answer."""


@dataclass(frozen=True)
class _Turn:
    """A holder's time between two hand-overs; `charged_ns` is what it had been charged when it was first seen."""

    sequence: int
    since_ns: int
    charged_ns: int


class GrantKeeper:
    """Runs one policy over one control page. Thread-safe; `start` once, `stop` once."""

    def __init__(self, page: ControlPage, policy: Policy, budgets: Budgets | None = None) -> None:
        """`budgets`: how long turns last of which the policy says nothing; None: a slice."""
        self._page = page
        self._budgets = budgets
        self._policy = policy
        self._entitlements: dict[int, Entitlement] = {}
        self._waiting: set[int] = set()
        self._active: set[int] = set()
        self._sequence = page.holder().sequence
        self._accounts: list[VgpuReading] = []
        self._published: dict[int, Standing] = {}
        """As the page has it: with nothing charged yet."""
        self._turn: _Turn | None = None
        self._owed: dict[int, int] = {}
        self._advanced: dict[int, int] = {}
        """Charged for what it owes: what it then charges itself is not charged again, up to that."""
        self._looked_ns = 0
        self._history = UseHistory(time.monotonic_ns())
        self._fairness = Fairness()
        self._lock = threading.Lock()
        self.nr_looks = 0
        """Of the thread, at the page: a keeper that is well looks each second at least."""
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="grants", daemon=True)

    @property
    def policy_name(self) -> str:
        """The policy in force, which is the fallback after a policy failed."""
        return self._policy.name

    @property
    def takes_requests(self) -> bool:
        """Whether the policy in force knows requests."""
        return isinstance(self._policy, Bounded)

    def start(self) -> None:
        """Begins to choose."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; the last choice stays published."""
        self._is_stopping = True
        self._page.ring_bell()
        self._thread.join()

    def join(self, vgpu: int, entitlement: Entitlement) -> None:
        """A vGPU takes part from now on, its account at zero."""
        with self._lock:
            self._accounts = [account for account in self._accounts if account.vgpu != vgpu]  # its predecessor's
            self._entitlements[vgpu] = entitlement
            self._published.pop(vgpu, None)
            self._owed.pop(vgpu, None)
            self._advanced.pop(vgpu, None)
            self._history.begin(vgpu, time.monotonic_ns())
            self._fairness.begin(vgpu, time.monotonic_ns())
            self._guarded(lambda: self._tell_joined(vgpu, entitlement, time.monotonic_ns()))
        self.step(time.monotonic_ns())

    def adopt(self, entitlements: Mapping[int, Entitlement]) -> None:
        """vGPUs of a daemon that died take part from now on, with their accounts as they are. Of those that want the GPU each begins as far
        ahead of the last as it stood; one that did not begins beside that."""
        with self._lock:
            now_ns = time.monotonic_ns()
            leads = self._leads(entitlements)
            for vgpu, entitlement in entitlements.items():
                account = self._page.vgpu(vgpu)
                if account is None:
                    continue
                self._accounts.append(account)
                self._entitlements[vgpu] = entitlement
                self._history.begin(vgpu, now_ns, account.used_ns)
                self._fairness.begin(vgpu, now_ns, account.charged_ns)
                self._guarded(lambda vgpu=vgpu, each=entitlement: self._tell_joined(vgpu, each, now_ns))  # type: ignore[misc]
            for vgpu, lead_ns in leads.items():
                self._guarded(lambda vgpu=vgpu, ns=lead_ns: self._policy.indebted(vgpu, ns, now_ns))  # type: ignore[misc]
        self.step(time.monotonic_ns())

    def _leads(self, vgpus: Collection[int]) -> dict[int, int]:
        """GPU time that each of those that want the GPU is ahead of the last of them, by how they stand in the page."""
        audit = self._page.audit()
        standing = {}
        for vgpu in vgpus:
            claim = audit.claim(vgpu)
            value = self._page.standing(vgpu)
            if claim is not None and (claim.waits or claim.uses) and claim.standing_per_ns > 0 and math.isfinite(value):
                standing[vgpu] = (value, claim.standing_per_ns)
        last = min((value for value, _ in standing.values()), default=0.0)
        leads = {vgpu: (value - last) / per_ns for vgpu, (value, per_ns) in standing.items()}
        return {vgpu: min(int(lead_ns), MOST_LEAD_NS) for vgpu, lead_ns in leads.items()}

    def change(self, vgpu: int, entitlement: Entitlement) -> None:
        """From now on its share follows another entitlement."""
        with self._lock:
            before, self._entitlements[vgpu] = self._entitlements[vgpu], entitlement
            if entitlement.weight != before.weight:
                self._guarded(lambda: self._policy.weight_changed(vgpu, entitlement.weight, time.monotonic_ns()))
            if (entitlement.request, entitlement.limit) != (before.request, before.limit):
                self._guarded(lambda: self._tell_bounds(vgpu, entitlement, time.monotonic_ns()))
        self.step(time.monotonic_ns())

    def indebt(self, vgpu: int, debt_ns: int) -> None:
        """It waits as if it had used the GPU for so long."""
        with self._lock:
            if vgpu in self._entitlements:
                self._guarded(lambda: self._policy.indebted(vgpu, debt_ns, time.monotonic_ns()))
        self.step(time.monotonic_ns())

    def owe(self, vgpu: int, owed_ns: int) -> None:
        """It had the GPU for so long by now and has not charged itself for it. It stands as if it had; late charges are not charged twice."""
        with self._lock:
            self._owed[vgpu] = owed_ns
        self._page.ring_bell()

    def recent_shares(self, vgpu: int, used_ns: int) -> tuple[float, ...]:
        """Its part of the GPU in each of `history.WINDOWS_S`, with what it has used by now."""
        with self._lock:
            return self._history.shares(vgpu, time.monotonic_ns(), used_ns)

    def all_recent_shares(self, used_ns: Mapping[int, int]) -> tuple[float, ...]:
        """The part of the time that the GPU was used, in each of `history.WINDOWS_S`, with what each vGPU has used by now."""
        with self._lock:
            return self._history.all_shares(time.monotonic_ns(), used_ns)

    def entitled_shares(self, used_ns: Mapping[int, int]) -> dict[int, float]:
        """The part of the GPU that each active vGPU is entitled to beside the other active ones, with what each has used by now."""
        with self._lock:
            active = self._history.active(time.monotonic_ns(), used_ns) | self._active
            return entitled_shares({vgpu: each for vgpu, each in self._entitlements.items() if vgpu in active})

    def received(self, vgpu: int) -> Received:
        """What it got of what was due to it in the last minute."""
        with self._lock:
            return self._fairness.received(vgpu)

    def turn_ns(self, vgpu: int) -> int:
        """How long its turns may last while others wait."""
        with self._lock:
            published = self._published.get(vgpu)
        return (published.budget_ns if published is not None else None) or self._page.slice_ns

    def leave(self, vgpu: int) -> None:
        """A vGPU takes part no more."""
        with self._lock:
            self._entitlements.pop(vgpu, None)
            self._waiting.discard(vgpu)
            account = self._page.vgpu(vgpu)
            self._history.end(vgpu, account.used_ns if account is not None else 0)
            self._fairness.end(vgpu)
            self._page.set_standing(vgpu, math.inf, 0, charged_ns=0)
            self._guarded(lambda: self._policy.left(vgpu, time.monotonic_ns()))

    def _tell_joined(self, vgpu: int, entitlement: Entitlement, now_ns: int) -> None:
        self._policy.joined(vgpu, entitlement.weight, now_ns)
        self._tell_bounds(vgpu, entitlement, now_ns)

    def _tell_bounds(self, vgpu: int, entitlement: Entitlement, now_ns: int) -> None:
        if isinstance(self._policy, Bounded):
            self._policy.bounds_changed(vgpu, entitlement.request / WHOLE, entitlement.limit / WHOLE, now_ns)

    def _run(self) -> None:
        bell = self._page.bell()
        while not self._is_stopping:
            self.step(time.monotonic_ns())
            self.nr_looks += 1
            timeout_s = _BELL_TIMEOUT_S if self._waiting else _QUIET_TIMEOUT_S
            if not self._ranks_by_charges():
                bell = self._page.wait_bell(timeout_s, bell)
                continue
            bell = self._page.wait_news(timeout_s, bell, self._active)

    def _ranks_by_charges(self) -> bool:
        """Whether the workers know of each change of rank: what does not grow with charges changes by turns, say, or by waiting."""
        published = [self._published.get(vgpu) for vgpu in self._active]
        return all(standing is None or standing.per_ns > 0 for standing in published)

    def step(self, now_ns: int) -> None:
        """One look at the page; what the thread does at each ring of its bell."""
        with self._lock:
            if not self._guarded(lambda: self._look(now_ns)):
                self._guarded(lambda: self._look(now_ns))

    def _guarded(self, action: Callable[[], None]) -> bool:
        """With the lock held. False when the policy failed and was replaced; whoever is a member then stays one."""
        try:
            action()
        except Exception:
            log.exception("the policy %s failed; first come, first served from now on", self._policy.name)
            self._fall_back()
            return False
        return True

    def _look(self, now_ns: int) -> None:
        grant = self._page.holder()
        self._tell_charges(grant, now_ns)
        if grant.sequence != self._sequence and grant.vgpu is not None and grant.vgpu in self._entitlements:
            self._policy.dispatched(grant.vgpu, now_ns)
            self._waiting.discard(grant.vgpu)
        self._sequence = grant.sequence
        # Whoever was just given the GPU is still marked as waiting until its worker has woken up.
        entries = (entry.vgpu for entry in self._page.backlogged())
        waiting = [vgpu for vgpu in entries if vgpu in self._entitlements and vgpu != grant.vgpu]
        if (
            waiting
            and grant.vgpu is not None
            and self._overruns(grant, now_ns)
            and not keeps_device(self._page, grant.vgpu)
        ):
            name = self._page.called(grant.vgpu)
            log.warning("%s holds the GPU far beyond its slice; it goes to the next one", name, extra=about(name))
            self._page.evict(grant.sequence)
        # Who waits for its memory gets its turn once that is there; it has a backlog all the same.
        displaced = (entry.vgpu for entry in self._page.displaced())
        waiting += [vgpu for vgpu in displaced if vgpu in self._entitlements and vgpu not in (grant.vgpu, *waiting)]
        for vgpu in sorted(self._waiting.difference(waiting)):
            self._policy.blocked(vgpu, now_ns)
        for vgpu in waiting:  # the longest waiting first
            if vgpu not in self._waiting:
                self._policy.backlogged(vgpu, now_ns)
        self._waiting = set(waiting)
        self._active = self._waiting | ({grant.vgpu} if grant.vgpu is not None else set())
        self._history.note(now_ns, {account.vgpu: account.used_ns for account in self._accounts}, self._active)
        self._publish(now_ns)

    def _tell_charges(self, grant: Grant, now_ns: int) -> None:
        accounts = [account for vgpu in self._entitlements if (account := self._page.vgpu(vgpu)) is not None]
        used = self._with_owed(charges(self._accounts, accounts))
        moment_ns, self._looked_ns = self._looked_ns, now_ns
        for account in self._holders_since(accounts, used, grant):
            self._policy.dispatched(account.vgpu, moment_ns)
            moment_ns = min(max(moment_ns, account.charged_until_ns), now_ns)
            self._policy.charged(account.vgpu, used.pop(account.vgpu), moment_ns)
        self._accounts = accounts
        self._fairness.look(now_ns, accounts, self._active, self._entitlements)
        for vgpu, used_ns in used.items():
            if used_ns:
                self._policy.charged(vgpu, used_ns, now_ns)

    def _with_owed(self, used: dict[int, int]) -> dict[int, int]:
        """What is to be told to the policy: charges, and what is owed beside them."""
        for vgpu, owed_ns in self._owed.items():
            if vgpu in used:
                advanced_ns = self._advanced.get(vgpu, 0)
                late_ns = min(used[vgpu], max(0, advanced_ns - owed_ns))
                more_ns = max(0, owed_ns - advanced_ns)
                used[vgpu] += more_ns - late_ns
                self._advanced[vgpu] = advanced_ns + more_ns - late_ns
        return used

    def _holders_since(self, accounts: list[VgpuReading], used: dict[int, int], grant: Grant) -> list[VgpuReading]:
        """Who held the GPU and used it since a look that saw nobody wait for it, in the order in which they were done with it.

        A GPU that is free is taken without a ring of the bell: the next look may come when another waits, or has it. What was used until
        then kept nobody off. Virtual time follows it as it would have with a look in between; else it would be a debt.
        """
        if self._waiting:
            return []
        before = {account.vgpu: account.nr_grants for account in self._accounts}
        held = [
            account
            for account in accounts
            if used[account.vgpu] and (account.vgpu in self._active or account.nr_grants != before.get(account.vgpu, 0))
        ]
        return sorted(held, key=lambda account: (account.vgpu == grant.vgpu, account.charged_until_ns))

    def _overruns(self, grant: Grant, now_ns: int) -> bool:
        """Whether the holder keeps the GPU beyond its slice, or has it renewed again and again and is hardly charged for it."""
        limit_ns = self._page.slice_ns + OVERRUN_NS
        charged_ns = next((account.charged_ns for account in self._accounts if account.vgpu == grant.vgpu), 0)
        if self._turn is None or self._turn.sequence != grant.sequence:
            self._turn = _Turn(grant.sequence, grant.since_ns, charged_ns)
        held_ns = now_ns - self._turn.since_ns
        return now_ns - grant.since_ns > limit_ns or (
            held_ns > limit_ns and charged_ns - self._turn.charged_ns < held_ns // 2
        )

    def _publish(self, now_ns: int) -> None:
        told_ns = {account.vgpu: account.charged_ns for account in self._accounts}
        if self._budgets is not None and self._budgets.is_due(now_ns):
            self._budgets.look(self._page.workers(), self._page.slice_ns, now_ns)
        for vgpu in self._entitlements:
            standing = checked(self._policy.standing(vgpu, now_ns))
            if standing.budget_ns is None and self._budgets is not None:
                standing = standing._replace(budget_ns=self._budgets.of(vgpu))
            charged_ns = told_ns.get(vgpu, 0)
            at_none = standing._replace(value=standing.value - standing.per_ns * charged_ns)
            if self._published.get(vgpu) != at_none:
                self._published[vgpu] = at_none
                self._page.set_standing(vgpu, *standing[:2], charged_ns, standing.budget_ns or 0)

    def _fall_back(self) -> None:
        now_ns = time.monotonic_ns()
        self._policy = FirstCome()
        self._waiting = set()
        self._active = set()
        self._published = {}
        for vgpu, entitlement in self._entitlements.items():
            self._tell_joined(vgpu, entitlement, now_ns)


def checked(standing: object) -> Standing:
    """What a policy answered, when it can be compared; PolicyError otherwise."""
    match standing:
        case (int() | float() as value, int() | float() as per_ns, None | int() as budget_ns) if (
            not math.isnan(value) and 0 <= per_ns < math.inf and (budget_ns is None or budget_ns > 0)
        ):
            return Standing(float(value), float(per_ns), budget_ns)
    raise PolicyError(f"a standing is a number, its growth, and how long a turn may last, not {standing!r}")
