"""A GPU and the policy that shares it: who holds it, until when, who waits. What the daemon and its workers do with real ones.

The holder submits one kernel after the other while its slice lasts, and gives the GPU up when the slice is over and somebody waits, or when
it has had nothing to submit for a moment. What is used is charged before every decision, and the holder queues before somebody is
chosen, so that it may be its own successor.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence

from scheduler.policy import Policy
from scheduler.simulator.device import Device
from scheduler.simulator.events import Event, Events
from scheduler.simulator.policies.extensions import Coscheduled
from scheduler.simulator.settings import Settings


class Member:
    """A vGPU on a GPU, with what is counted for the report. `waits_ns` has one entry for each time it was granted the GPU."""

    def __init__(self, completed: Callable[[], None]) -> None:
        self.completed = completed
        self.queue: deque[int] = deque()
        self.running_ns = 0
        self.backlogged_since_ns: int | None = None
        self.used_ns = 0
        self.done_ns = 0
        self.nr_kernels = 0
        self.waits_ns: list[int] = []


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
        self._holder: int | None = None
        self._context: int | None = None
        self._is_switching = False
        self._slice_ends_ns = 0
        self._waiting: dict[int, None] = {}  # the longest waiting first
        self._timer: Event | None = None

    def join(self, vgpu: int, weight: int, completed: Callable[[], None]) -> None:
        """A vGPU; `completed` is called at the end of each of its kernels."""
        self.members[vgpu] = Member(completed)
        self._policy.joined(vgpu, weight, self._events.now_ns)

    def submit(self, vgpu: int, kernels_ns: Sequence[int]) -> None:
        """Kernels, by length, behind those that the vGPU submitted before."""
        member = self.members[vgpu]
        member.queue.extend(kernels_ns)
        if vgpu == self._holder:
            if not self._is_switching and not self.device.is_busy(vgpu):
                self._go_on(vgpu)
        elif member.backlogged_since_ns is None and not self.device.is_busy(vgpu):
            self._backlog(vgpu)
            self._reconsider()

    def vcpu_switched(self, vgpu: int, is_scheduled: bool) -> None:
        """The vCPU of a vGPU was put on a processor or taken off. Only for policies that want to hear it."""
        if self._coscheduled is None:
            return
        hear = self._coscheduled.vcpu_scheduled if is_scheduled else self._coscheduled.vcpu_descheduled
        hear(vgpu, self._events.now_ns)
        self._reconsider()

    def settle(self) -> None:
        """Charges everybody what they used up to now."""
        for vgpu, used_ns in self.device.take_used().items():
            self.members[vgpu].used_ns += used_ns
            self._policy.charged(vgpu, used_ns, self._events.now_ns)

    def _backlog(self, vgpu: int) -> None:
        self.settle()
        self.members[vgpu].backlogged_since_ns = self._events.now_ns
        self._waiting[vgpu] = None
        self._policy.backlogged(vgpu, self._events.now_ns)

    def _reconsider(self) -> None:
        """Somebody came, or may run now who might not before."""
        holder = self._holder
        if holder is None:
            self._hand_over()
            return
        can_yield = not self._is_switching and (self._settings.is_preemptive or not self.device.is_busy(holder))
        if can_yield and self._must_give_up(holder):
            self._give_up(holder)

    def _must_give_up(self, holder: int) -> bool:
        if self._coscheduled is not None and self._coscheduled.preempts(holder, self._events.now_ns):
            return True
        return bool(self._waiting) and self._events.now_ns >= self._slice_ends_ns

    def _kernel_done(self, vgpu: int) -> None:
        member = self.members[vgpu]
        member.nr_kernels += 1
        member.done_ns += member.running_ns
        member.completed()
        if vgpu == self._holder:
            if not self._is_switching:
                self._go_on(vgpu)
        elif member.queue and vgpu not in self._waiting:
            # It queued already where it gave up the GPU to one whose kernel ended at the same moment.
            self._backlog(vgpu)
            self._reconsider()

    def _go_on(self, vgpu: int) -> None:
        """The holder, with no kernel on the device: one more, or the end of its turn, now or soon."""
        self._stop_timer()
        if self._must_give_up(vgpu):
            self._give_up(vgpu)
        elif self.members[vgpu].queue:
            self._start(vgpu)
        else:
            self._timer = self._events.after(self._settings.idle_ns, lambda: self._give_up(vgpu))

    def _start(self, vgpu: int) -> None:
        member = self.members[vgpu]
        member.running_ns = member.queue.popleft()
        self.device.start(vgpu, member.running_ns)
        if self._settings.is_preemptive:
            self._timer = self._events.after(max(0, self._slice_ends_ns - self._events.now_ns), self._slice_over)

    def _slice_over(self) -> None:
        self._timer = None
        self._reconsider()

    def _give_up(self, holder: int) -> None:
        self._stop_timer()
        self.settle()
        self._holder = None
        if self.members[holder].queue and not self.device.is_busy(holder):
            self._backlog(holder)
        else:
            self._policy.blocked(holder, self._events.now_ns)
        self._hand_over()

    def _hand_over(self) -> None:
        now_ns = self._events.now_ns
        self.settle()
        choice = self._next(now_ns)
        if choice is None:
            return
        member = self.members[choice]
        assert member.backlogged_since_ns is not None
        member.waits_ns.append(now_ns - member.backlogged_since_ns)
        member.backlogged_since_ns = None
        del self._waiting[choice]
        budget_ns = self._policy.standing(choice, now_ns).budget_ns
        self._policy.dispatched(choice, now_ns)
        self._holder = choice
        self._slice_ends_ns = now_ns + (self._settings.slice_ns if budget_ns is None else budget_ns)
        if choice == self._context:
            self._start(choice)
            return
        self._context = choice
        self.nr_handovers += 1
        self._is_switching = True
        self._events.after(self._settings.handover_ns, self._switched)

    def _next(self, now_ns: int) -> int | None:
        """Who waits and stands lowest, and of equals who has waited longest, as workers choose. Nobody where the policy holds all back."""
        standings = {vgpu: self._policy.standing(vgpu, now_ns).value for vgpu in self._waiting}
        choice = min(standings, key=standings.__getitem__, default=None)
        return None if choice is None or standings[choice] == math.inf else choice

    def _switched(self) -> None:
        self._is_switching = False
        assert self._holder is not None
        self._start(self._holder)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
