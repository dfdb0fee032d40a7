"""One program on a host, from its arrival to its end, on one Gpu at a time: what it used, what it wants, how it changes its Gpu."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from scheduler.simulator.events import Events
from scheduler.simulator.guest import Guest
from scheduler.simulator.host.leaving import OpenGpu
from scheduler.simulator.host.programs import Program
from scheduler.simulator.processor import Core
from scheduler.simulator.settings import Settings

MINUTE_NS = 60_000_000_000
KNOWN_NS = 500_000_000
"""Its demand is known so long after its first kernel."""
WEIGHT = 1


class Job:
    """In `changing` happens what changes how much it wants; `ended` is called after its end."""

    def __init__(
        self,
        number: int,
        program: Program,
        events: Events,
        settings: Settings,
        changing: Callable[[], AbstractContextManager[None]],
        ended: Callable[[], None],
    ) -> None:
        self.number, self.program = number, program
        self.arrived_ns = events.now_ns
        self.began_ns: int | None = None
        """Its first kernel came."""
        self.ended_ns: int | None = None
        self.device: int | None = None
        """None: none yet."""
        self.to: int | None = None
        self.visited: list[int] = []
        self.away_ns = 0
        """On no Gpu, on its way from one to another."""
        self._gpu: OpenGpu | None = None
        self._used_before_ns = self._paused_ns = self._quiet_since_ns = 0
        self._nr_unfinished = 0
        self._held: list[int] | None = None
        """Kernels that came since it is to leave its Gpu; None: it is not."""
        self._left: Callable[[], None] = lambda: None
        self._samples: deque[tuple[int, int, int]] = deque()
        self._events, self._changing, self._ended = events, changing, ended
        core = Core(events, settings.core_slice_ns, settings.core_switch_ns, None)
        core.add(number, WEIGHT)
        steps = program.steps(random.Random(f"{settings.seed}/{program.name}"))
        self._guest = Guest(
            *(events, core, number, program.workload, settings, False, self._submit), steps=steps, ended=self._end
        )

    # Its Gpu.

    def enter(self, device: int, gpu: OpenGpu) -> None:
        """It is on this one from now on, and begins there, or goes on."""
        is_new = self.device is None
        self._gpu, self.device, self.to = gpu, device, None
        self.visited.append(device)
        gpu.join(self.number, WEIGHT, self._completed, self.program.request / 100)
        held, self._held = self._held, None
        if held:
            gpu.submit(self.number, held)
        if is_new:
            self._events.after(0, self._guest.start)

    def leave(self, left: Callable[[], None]) -> None:
        """It submits nothing more; `left` is called once it is off its Gpu, at the boundary of a kernel. Not if it ends before."""
        assert self._gpu is not None
        self._left = left
        self._held = list(self._gpu.recall(self.number))
        self._leave_if_clear()

    def _leave_if_clear(self) -> None:
        if self._held is not None and self._gpu is not None and self._gpu.is_clear_of(self.number):
            self._off()
            self._left()

    def _off(self) -> None:
        assert self._gpu is not None
        self._used_before_ns += self._gpu.leave(self.number).used_ns
        self._gpu = None

    def _submit(self, kernels_ns: Sequence[int]) -> None:
        now_ns = self._events.now_ns
        if self.began_ns is None:
            with self._changing():
                self.began_ns = now_ns
        elif not self._nr_unfinished:
            self._paused_ns += now_ns - self._quiet_since_ns
        self._nr_unfinished += len(kernels_ns)
        if self._held is not None:
            self._held += kernels_ns
        else:
            assert self._gpu is not None
            self._gpu.submit(self.number, kernels_ns)

    def _completed(self) -> None:
        self._nr_unfinished -= 1
        if not self._nr_unfinished:
            self._quiet_since_ns = self._events.now_ns
        self._guest.completed()
        if self._held is not None:
            self._events.after(0, self._leave_if_clear)

    def _end(self) -> None:
        with self._changing():
            self.ended_ns = self._events.now_ns
            if self._gpu is not None:
                self._off()
        self._ended()

    # What it wants.

    @property
    def used_ns(self) -> int:
        """GPU time, as far as it was charged."""
        return self._used_before_ns + (self._gpu.members[self.number].used_ns if self._gpu is not None else 0)

    @property
    def wants(self) -> float:
        """What the program is made to want; what `demand` should come to."""
        return 0.0 if self.began_ns is None or self.ended_ns is not None else self.program.demand

    def look(self) -> None:
        """Notes what it did so far; its Gpu has charged it."""
        now_ns = self._events.now_ns
        if self.began_ns is None:
            return
        paused_ns = self._paused_ns + (0 if self._nr_unfinished else now_ns - self._quiet_since_ns)
        self._samples.append((now_ns, self.used_ns, paused_ns))
        while now_ns - self._samples[0][0] > MINUTE_NS:
            self._samples.popleft()

    def demand(self) -> float | None:
        """Bursts over bursts and pauses in the last minute; waiting for turns is neither. None: it has not worked for long enough."""
        if not self._samples or self._samples[-1][0] - self._samples[0][0] < KNOWN_NS:
            return None
        used_ns, paused_ns = (
            last - first for first, last in zip(self._samples[0][1:], self._samples[-1][1:], strict=True)
        )
        return used_ns / (used_ns + paused_ns) if used_ns + paused_ns else 0.0
