"""A core of the host and the vCPUs that share it, as Linux would share it: the least weighted run time first.

A vCPU wants some processor time and says what comes after it; one that wants nothing sleeps. One that wakes starts at the least run time of
the others, so it soon gets the core, as under CFS.
"""

from collections.abc import Callable
from dataclasses import dataclass

from scheduler.simulator.events import Action, Event, Events

UNBOUNDED_NS = 1 << 62
"""Wants the processor until it wants something else."""

_WAKE_MARGIN_NS = 1_000_000  # one that wakes takes the core from one that ran this much more


@dataclass(slots=True)
class _Vcpu:
    weight: int
    run_ns: float = 0.0
    """Weighted."""
    wants_ns: int = 0
    then: Action | None = None
    is_asleep: bool = True

    @property
    def is_runnable(self) -> bool:
        return self.then is not None


class Core:
    """vCPUs by the number of their vGPU. `switched` hears who was put on the core (True) and taken off (False)."""

    def __init__(
        self, events: Events, slice_ns: int, switch_ns: int, switched: Callable[[int, bool], None] | None
    ) -> None:
        self._events = events
        self._slice_ns = slice_ns
        self._switch_ns = switch_ns
        self._switched = switched
        self._vcpus: dict[int, _Vcpu] = {}
        self._current: int | None = None
        self._since_ns = 0
        self._slice_ends_ns = 0
        self._next: Event | None = None

    def add(self, vgpu: int, weight: int) -> None:
        """A vCPU that sleeps."""
        self._vcpus[vgpu] = _Vcpu(weight)

    def is_awake(self, vgpu: int) -> bool:
        """True while it runs or could run."""
        return self._vcpus[vgpu].is_runnable

    def run(self, vgpu: int, wants_ns: int, then: Action) -> None:
        """After `wants_ns`, at least 1, of processor time comes `then`. Replaces what it wanted before."""
        self._account()
        vcpu = self._vcpus[vgpu]
        if vcpu.is_asleep:
            vcpu.is_asleep = False
            others = [other.run_ns for other in self._vcpus.values() if other.is_runnable]
            vcpu.run_ns = max(vcpu.run_ns, min(others, default=0.0))
        vcpu.wants_ns, vcpu.then = wants_ns, then
        if self._current is None or vcpu.run_ns + _WAKE_MARGIN_NS < self._vcpus[self._current].run_ns:
            self._choose()
        else:
            self._arm()

    def _account(self) -> None:
        now_ns = self._events.now_ns
        if self._current is not None and now_ns > self._since_ns:
            vcpu = self._vcpus[self._current]
            vcpu.wants_ns -= now_ns - self._since_ns
            vcpu.run_ns += (now_ns - self._since_ns) / vcpu.weight
            self._since_ns = now_ns

    def _choose(self) -> None:
        runnable = [vgpu for vgpu, vcpu in self._vcpus.items() if vcpu.is_runnable]
        chosen = min(runnable, key=lambda vgpu: self._vcpus[vgpu].run_ns, default=None)
        if chosen != self._current:
            before, self._current = self._current, chosen
            if before is not None:
                self._vcpus[before].is_asleep = not self._vcpus[before].is_runnable
            self._since_ns = self._events.now_ns + (self._switch_ns if len(self._vcpus) > 1 else 0)
            if self._switched is not None:
                if before is not None:
                    self._switched(before, False)
                if chosen is not None:
                    self._switched(chosen, True)
        self._slice_ends_ns = self._events.now_ns + self._slice_ns
        self._arm()

    def _arm(self) -> None:
        """For the end of what the current one wants, or of its slice."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._current is not None:
            now_ns = self._events.now_ns
            delay_ns = max(0, self._since_ns - now_ns) + self._vcpus[self._current].wants_ns
            if len(self._vcpus) > 1 and sum(vcpu.is_runnable for vcpu in self._vcpus.values()) > 1:
                delay_ns = min(delay_ns, self._slice_ends_ns - now_ns)
            if delay_ns < UNBOUNDED_NS // 2:
                self._next = self._events.after(max(0, delay_ns), self._expire)

    def _expire(self) -> None:
        self._account()
        assert self._current is not None
        vgpu, vcpu = self._current, self._vcpus[self._current]
        if vcpu.wants_ns <= 0 and vcpu.then is not None:
            then, vcpu.then = vcpu.then, None
            then()
            if vcpu.is_runnable and self._current == vgpu and self._events.now_ns < self._slice_ends_ns:
                return
        self._choose()
