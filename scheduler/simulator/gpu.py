"""A GPU and the policy that shares it: who holds it, until when, who waits. What the daemon and its workers do with real ones.

The holder submits one kernel after the other. Its turn is over when its slice is and somebody who waits stands before it, when it has had
nothing to submit for so long that it is not waited for (scheduler/patience.py), when a newcomer is to go first (scheduler/newcomer.py), or when
it has reached its limit (scheduler/allowance.py). A turn lasts a slice, or by the bursts of its program (budgets.py). What is used, and what
is kept from others, is charged before every decision.
"""

import math
from collections.abc import Callable, Sequence

from scheduler import newcomer, patience
from scheduler.allowance import Allowance, has_limit
from scheduler.policy import Bounded, Policy
from scheduler.simulator.budgets import Budgets
from scheduler.simulator.device import Device
from scheduler.simulator.events import Event, Events
from scheduler.simulator.kept import KeptTurn
from scheduler.simulator.member import Member
from scheduler.simulator.policies.extensions import Coscheduled
from scheduler.simulator.settings import Settings
from scheduler.simulator.turn import End, Turn

_LOOK_NS = 500_000
"""A holder whose kernel can stop looks for newcomers this often: workers are charged for long kernels as often."""

_BESIDE_NS = 1_000_000
"""A kernel goes on for so long beside the next turn when that is expected to be short."""


class Gpu:
    """One device, one policy. Guests call `submit`; processors say `vcpu_switched`."""

    def __init__(self, events: Events, policy: Policy, settings: Settings) -> None:
        self.nr_handovers = 0
        self.members: dict[int, Member] = {}
        self.device = Device(events, settings.sharing_loss_percent, self._kernel_done)
        self._events = events
        self._policy = policy
        self._coscheduled = policy if isinstance(policy, Coscheduled) else None
        self._settings = settings
        self._budgets = Budgets(settings.slice_ns, settings.quota_max_ns) if settings.quota == "bursts" else None
        self._make_turn = KeptTurn if settings.keeps_turns else Turn
        self._turn: Turn | None = None
        self._context: int | None = None
        self._is_switching = False
        self._waiting: dict[int, None] = {}  # the longest waiting first
        self._timer: Event | None = None

    def join(
        self, vgpu: int, weight: int, completed: Callable[[], None], request: float = 0.0, limit: float = 1.0
    ) -> None:
        """A vGPU; `completed` is called at the end of each of its kernels. Bounds as in `VgpuSpec`."""
        permille = round(limit * 1000)
        allowance = Allowance(permille, self._settings.slice_ns) if has_limit(permille) else None
        self.members[vgpu] = Member(completed, allowance)
        self._policy.joined(vgpu, weight, self._events.now_ns)
        if isinstance(self._policy, Bounded):
            self._policy.bounds_changed(vgpu, request, limit, self._events.now_ns)

    def submit(self, vgpu: int, kernels_ns: Sequence[int]) -> None:
        """Kernels, by length, behind those that the vGPU submitted before."""
        member = self.members[vgpu]
        member.queue.extend(kernels_ns)
        most_ns = patience.turn_ns(self._slice_ns(vgpu), member.pauses.burst_ns, self._settings.is_preemptive)
        member.goes_on(self._events.now_ns, most_ns)
        if self.device.is_busy(vgpu) or member.is_stopped:
            return
        if self._turn is not None and vgpu == self._turn.vgpu:
            if not self._is_switching:
                self._go_on(self._turn)
        elif vgpu not in self._waiting:
            self._queue(vgpu)
            self._reconsider()

    def vcpu_switched(self, vgpu: int, is_scheduled: bool) -> None:
        """The vCPU of a vGPU was put on a processor or taken off. Only for policies that want to hear it."""
        if self._coscheduled is None:
            return
        hear = self._coscheduled.vcpu_scheduled if is_scheduled else self._coscheduled.vcpu_descheduled
        hear(vgpu, self._events.now_ns)
        self._reconsider()

    def settle(self) -> None:
        """Charges everybody what they used, and the holder what it kept from others, up to now."""
        for vgpu, used_ns in self.device.take_used().items():
            self.members[vgpu].used_ns += used_ns
            self._charge(vgpu, used_ns)
        turn = self._turn
        if turn is not None and turn.idle_since_ns is not None:
            held_ns = self._events.now_ns - turn.held_until_ns
            turn.held_until_ns = self._events.now_ns
            if held_ns and self._waiting:
                self.members[turn.vgpu].held_ns += held_ns
                self._charge(turn.vgpu, held_ns)

    def _charge(self, vgpu: int, ns: int) -> None:
        self._policy.charged(vgpu, ns, self._events.now_ns)
        self.members[vgpu].charge_limit(ns, self._events.now_ns)

    def _slice_ns(self, vgpu: int) -> int:
        budget_ns = self._policy.standing(vgpu, self._events.now_ns).budget_ns
        if budget_ns is None and self._budgets is not None:
            budget_ns = self._budgets.of(vgpu, self.members, self._events.now_ns)
        return self._settings.slice_ns if budget_ns is None else budget_ns

    # Who waits.

    def _queue(self, vgpu: int) -> None:
        """One that has work and neither holds the GPU nor waits: it waits from now on, unless it has reached its limit."""
        now_ns = self._events.now_ns
        self.settle()
        member = self.members[vgpu]
        if member.is_over_limit(now_ns):
            self._stop(vgpu)
            return
        member.wants(now_ns)
        self._waiting[vgpu] = None
        self._policy.backlogged(vgpu, now_ns)

    def _stop(self, vgpu: int) -> None:
        """It does not wait until it may run again."""
        member = self.members[vgpu]
        member.is_stopped = True
        back_in_ns = member.back_in_ns(self._settings.slice_ns, self._events.now_ns)
        self._events.after(max(1, back_in_ns), lambda: self._come_back(vgpu))

    def _come_back(self, vgpu: int) -> None:
        member = self.members[vgpu]
        member.is_stopped = False
        if member.has_work:
            self._queue(vgpu)
            self._reconsider()

    def _reconsider(self) -> None:
        """Somebody came, or may run now who might not before."""
        if self._turn is None:
            self._hand_over()
        else:
            self._look()

    def _next(self, now_ns: int) -> int | None:
        """Who waits and stands lowest, and of equals who has waited longest, as workers choose. Nobody where the policy holds all back."""
        standings = {vgpu: self._policy.standing(vgpu, now_ns).value for vgpu in self._waiting}
        choice = min(standings, key=standings.__getitem__, default=None)
        return None if choice is None or standings[choice] == math.inf else choice

    def _wanted_by_others_ns(self) -> int:
        """Since when somebody waits; now, where nobody does."""
        longest = next(iter(self._waiting), None)
        since_ns = None if longest is None else self.members[longest].backlogged_since_ns
        return self._events.now_ns if since_ns is None else since_ns

    # The turn of the holder.

    def _kernel_done(self, vgpu: int) -> None:
        member = self.members[vgpu]
        member.nr_kernels += 1
        member.done_ns += member.running_ns
        if not member.queue:
            self.settle()
            member.run_dry(self._events.now_ns)
        member.completed()
        if self._turn is not None and vgpu == self._turn.vgpu:
            if not self._is_switching:
                self._go_on(self._turn)
        elif vgpu not in self._waiting:  # it is where it gave up the GPU to one whose kernel ended at the same moment
            if self._turn is not None:
                member.put_off(self._events.now_ns, self._turn.since_ns)
            if member.has_work and not member.is_stopped:
                member.cut_burst(self._events.now_ns)
                self._queue(vgpu)
                self._reconsider()

    def _go_on(self, turn: Turn) -> None:
        """The holder, with no kernel on the device: one more, or the end of its turn, now or soon."""
        self.settle()
        has_work = self.members[turn.vgpu].has_work
        if not has_work and turn.idle_since_ns is None:
            turn.idle_since_ns = turn.held_until_ns = self._events.now_ns
        why = self._why_over(turn)
        if why is not None:
            self._end_turn(turn, why)
        elif has_work:
            self._start(turn)
        else:
            self._look()

    def _start(self, turn: Turn) -> None:
        turn.begin_kernel(self._events.now_ns, self._slice_ns(turn.vgpu))
        self.device.start(turn.vgpu, self.members[turn.vgpu].next_kernel(self._events.now_ns))
        self._watch_limit(turn.vgpu)
        self._clear_in_time(turn)
        self._look_in_time(turn)

    def _look(self) -> None:
        """The holder looks whether its turn is over, where it could end now."""
        turn = self._turn
        if turn is None or self._is_switching or turn.is_draining:
            return
        if self.device.is_busy(turn.vgpu) and not self._settings.is_preemptive:
            return
        self.settle()
        why = self._why_over(turn)
        if why is None and turn.idle_since_ns is not None:
            is_over = self._events.now_ns - turn.idle_since_ns >= self._patience_ns(turn)
            why = End.IDLE if is_over else None
        if why is None:
            self._look_in_time(turn)
        else:
            self._end_turn(turn, why)

    def _look_in_time(self, turn: Turn) -> None:
        """When the answer may be another, by itself. Whoever comes makes it look, too."""
        self._stop_timer()
        now_ns = self._events.now_ns
        is_idle = turn.idle_since_ns is not None
        moments_ns = []
        if self._waiting and (is_idle or self._settings.is_preemptive):
            moments_ns.append(turn.slice_ends_ns)
            if any(self.members[vgpu].wanted_since_ns > turn.since_ns for vgpu in self._waiting):
                moments_ns.append(now_ns + _LOOK_NS)
        if turn.idle_since_ns is not None:
            moments_ns.append(turn.idle_since_ns + self._patience_ns(turn))
            moments_ns.append(turn.slice_since_ns + turn.slice_ns // patience.MIN_SLICE_DIVISOR)
        next_ns = min((moment_ns for moment_ns in moments_ns if moment_ns > now_ns), default=None)
        if next_ns is not None:
            self._timer = self._events.after(next_ns - now_ns, self._look)

    def _why_over(self, turn: Turn) -> End | None:
        """All is charged. A slice that is over is renewed while the holder stands before all who wait."""
        now_ns = self._events.now_ns
        if self.members[turn.vgpu].is_over_limit(now_ns):
            return End.LIMIT
        if self._coscheduled is not None and self._coscheduled.preempts(turn.vgpu, now_ns):
            return End.HURRY
        if turn.is_draining:
            return End.SLICE
        if not self._waiting:
            return None
        if self._settings.is_preemptive and self._has_newcomer(turn):
            return End.HURRY
        if turn.had_ns(now_ns) < turn.slice_ns:
            return None
        if not self._is_first(turn):
            return End.SLICE
        turn.renew(now_ns, self._slice_ns(turn.vgpu))
        return None

    def _is_first(self, turn: Turn) -> bool:
        now_ns = self._events.now_ns
        own = self._policy.standing(turn.vgpu, now_ns).value
        return all(own <= self._policy.standing(vgpu, now_ns).value for vgpu in self._waiting)

    def _has_newcomer(self, turn: Turn) -> bool:
        now_ns = self._events.now_ns
        if turn.had_ns(now_ns) < turn.slice_ns // newcomer.OWED_SLICE_DIVISOR:
            return False
        first = self._next(now_ns)
        if first is None:
            return False
        own, its = (self._policy.standing(vgpu, now_ns) for vgpu in (turn.vgpu, first))
        member = self.members[first]
        return turn.gives_way(own, its, member.wanted_since_ns, now_ns, stays=member.has_long_turns)

    def _patience_ns(self, turn: Turn) -> int:
        is_first = bool(self._waiting) and self._is_first(turn)
        pauses = self.members[turn.vgpu].pauses
        return turn.patience_ns(
            pauses, self._events.now_ns, self._settings.is_preemptive, bool(self._waiting), is_first
        )

    def _end_turn(self, turn: Turn, why: End) -> None:
        self._stop_timer()
        vgpu, now_ns = turn.vgpu, self._events.now_ns
        if self.device.is_busy(vgpu) and not self._makes_way(turn, why):
            turn.is_draining = True
            return
        member = self.members[vgpu]
        member.overuse_ns += turn.overuse_ns(self._wanted_by_others_ns(), now_ns)
        was_long = turn.was_long(why, now_ns, self._settings.slice_ns)
        if was_long is not None:
            member.has_long_turns = was_long
        if why is not End.IDLE:
            member.put_off(now_ns, now_ns)
        is_busy = self.device.is_busy(vgpu)
        if member.queue and not member.off_ns and not is_busy:
            member.cut_burst(now_ns)
        self._turn = None
        if member.has_work and not is_busy and why is not End.LIMIT:
            self._queue(vgpu)
        else:
            self._policy.blocked(vgpu, now_ns)
            if why is End.LIMIT:
                self._stop(vgpu)
        self._hand_over()

    def _hand_over(self) -> None:
        now_ns = self._events.now_ns
        self.settle()
        choice = None if self._is_switching else self._next(now_ns)
        if choice is None:
            return
        member = self.members[choice]
        assert member.backlogged_since_ns is not None
        member.waits_ns.append(now_ns - member.backlogged_since_ns)
        member.backlogged_since_ns = None
        del self._waiting[choice]
        self._turn = self._make_turn(choice, now_ns, now_ns, self._slice_ns(choice))
        member.budgets_ns += self._turn.slice_ns
        self._policy.dispatched(choice, now_ns)
        if choice == self._context:
            self._start(self._turn)
            return
        self._context = choice
        self.nr_handovers += 1
        self._is_switching = True
        self._events.after(self._settings.handover_ns, self._switched)

    def _switched(self) -> None:
        self._is_switching = False
        if self._turn is None:  # its vGPU has left
            self._hand_over()
        elif self.members[self._turn.vgpu].has_work:
            self._start(self._turn)
        else:
            self._go_on(self._turn)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Ways off a device that preempts, for a kernel that is on it.

    def _makes_way(self, turn: Turn, why: End) -> bool:
        """False: what is left, half a slice at most, is waited for. More is withdrawn at once, if the next one will use all of its turn; else
        it goes on beside at first."""
        if why is End.LIMIT:
            self._withdraw(turn.vgpu)
            return True
        if why is End.SLICE:
            if self.device.left_ns(turn.vgpu) <= turn.slice_ns // 2:
                return False
            first = self._next(self._events.now_ns)
            if first is not None and self.members[first].has_long_turns:
                self._withdraw(turn.vgpu)
        return True

    def _clear_in_time(self, turn: Turn) -> None:
        """What goes on beside this turn is withdrawn once the holder has work on the device, too: at once if it will use all of its turn."""
        if self.device.others(turn.vgpu):
            beside_ns = 0 if self.members[turn.vgpu].has_long_turns else _BESIDE_NS
            since_ns = self._events.now_ns - turn.since_ns
            self._events.after(max(0, beside_ns - since_ns), lambda: self._clear(turn))

    def _clear(self, turn: Turn) -> None:
        if self._turn is not turn or not self.device.is_busy(turn.vgpu):
            return
        for vgpu in self.device.others(turn.vgpu):
            self._withdraw(vgpu)
            self.members[vgpu].put_off(self._events.now_ns, turn.since_ns)
            self._queue(vgpu)
        self._look()

    def _withdraw(self, vgpu: int) -> None:
        self.members[vgpu].take_off(self.device.take_off(vgpu), self._events.now_ns)

    def _watch_limit(self, vgpu: int) -> None:
        """A kernel that can be taken off the device is so when its vGPU reaches its limit, in its turn or beside another's."""
        member = self.members[vgpu]
        left_ns = member.limit_left_ns(self._events.now_ns)
        if member.limit_timer is not None:
            member.limit_timer.cancel()
        if left_ns is not None and self._settings.is_preemptive:
            member.limit_timer = self._events.after(max(1, left_ns), lambda: self._limit_reached(vgpu))

    def _limit_reached(self, vgpu: int) -> None:
        """Not yet, where it has shared the device with others meanwhile."""
        self.settle()
        if not self.device.is_busy(vgpu):
            return
        if not self.members[vgpu].is_over_limit(self._events.now_ns):
            self._watch_limit(vgpu)
        elif self._turn is not None and vgpu == self._turn.vgpu:
            self._end_turn(self._turn, End.LIMIT)
        else:
            self._withdraw(vgpu)
            self._stop(vgpu)
