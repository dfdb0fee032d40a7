"""A guest: one program on one vCPU, which submits to its vGPU and waits for it."""

import random
from collections.abc import Callable, Iterator, Sequence

from scheduler.simulator.events import Events
from scheduler.simulator.processor import UNBOUNDED_NS, Core
from scheduler.simulator.settings import Settings
from scheduler.simulator.workloads import (
    Answer,
    Compute,
    Launch,
    Request,
    Sleep,
    Step,
    Wait,
    Workload,
    program,
)


class Guest:
    """Runs its program from `start` on. `submit` takes the lengths of kernels; `completed` is to be called for each that is done.

    `answers_ns` is how long it took to answer `nr_answered` requests, all together, each from when it came. The program is `steps`, or that
    of the workload, which never ends; `ended` is called after the last step.
    """

    def __init__(
        self,
        events: Events,
        core: Core,
        vgpu: int,
        workload: Workload,
        settings: Settings,
        is_polling: bool,
        submit: Callable[[Sequence[int]], None],
        steps: Iterator[Step] | None = None,
        ended: Callable[[], None] | None = None,
    ) -> None:
        self.nr_answered = 0
        self.answers_ns = 0
        self._events = events
        self._core = core
        self._vgpu = vgpu
        self._workload = workload
        self._settings = settings
        self._spin_ns = UNBOUNDED_NS if is_polling else settings.spin_ns
        self._submit = submit
        self._program = program(workload, random.Random(f"{settings.seed}/{vgpu}")) if steps is None else steps
        self._ended = ended
        self._nr_unfinished = 0
        self._waits_until: int | None = None
        self._wake_ns = 0
        self._request_since_ns = 0

    def start(self) -> None:
        """Begins with the program's first step."""
        self._step()

    def completed(self) -> None:
        """One kernel, or copy, of this guest is done."""
        self._nr_unfinished -= 1
        if self._waits_until is not None and self._nr_unfinished <= self._waits_until:
            self._waits_until = None
            self._events.after(self._settings.round_trip_ns, self._go_on)

    def _step(self) -> None:
        """The program from here on, as far as it goes without waiting for anything. It computes before it launches."""
        while True:
            match next(self._program, None):
                case None:
                    if self._ended is not None:
                        self._ended()
                    return
                case Compute(duration_ns):
                    self._core.run(self._vgpu, duration_ns + self._wake_ns, self._step)
                    self._wake_ns = 0
                    return
                case Request(at_ns):
                    now_ns = self._events.now_ns
                    self._request_since_ns = now_ns if at_ns is None else at_ns
                    if self._request_since_ns > now_ns:
                        self._events.after(self._request_since_ns - now_ns, self._go_on)
                        return
                case Answer():
                    self.nr_answered += 1
                    self.answers_ns += self._events.now_ns - self._request_since_ns
                case Sleep(duration_ns):
                    self._events.after(duration_ns, self._go_on)
                    return
                case Launch(kernels_ns):
                    self._nr_unfinished += len(kernels_ns)
                    self._submit(kernels_ns)
                    nr_queued = self._workload.nr_queued
                    if self._nr_unfinished > nr_queued:
                        self._wait(nr_queued // 2)
                        return
                case Wait():
                    if self._nr_unfinished:
                        self._wait(0)
                        return

    def _wait(self, nr_unfinished: int) -> None:
        """Until no more than that many are unfinished: spinning for a while, then asleep."""
        self._waits_until = nr_unfinished
        self._core.run(self._vgpu, self._spin_ns, _sleep)

    def _go_on(self) -> None:
        """What it waited for is there; a vCPU that sleeps takes a while to see it."""
        self._wake_ns = 0 if self._core.is_awake(self._vgpu) else self._settings.wake_ns
        self._step()


def _sleep() -> None:
    """What comes after spinning in vain: the vCPU wants nothing."""
