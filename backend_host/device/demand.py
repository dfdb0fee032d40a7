"""How much of a Gpu its programs would use if each were alone: its demand, and the thread that watches it (DCUDA, section 3.2).

A program runs bursts on the device and pauses between them. Its demand is what it used over that and its pauses, a mean of the last minute.
While it waits, for a turn, for its limit, for its memory, or for others' work beside its own, it neither runs nor pauses: alone it would not.
A vGPU's demand is the sum of its programs', no more than its limit; a Gpu's is the sum of its vGPUs'. Both may be above 1: programs want more
then than there is.

The counters are the workers', in the page that the daemon has mapped. They count waits once they are over; one that goes on is seen here, at
looks that are 100 ms apart.

Wrong when: a program computes on its own processor while it waits for the device. It has then less to do in its next pause, and seems to want
more than it does. And when a worker was taken over and says what is not so: its program seems to want nothing, or the whole device.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from backend_host.device.control import ControlPage
from backend_host.device.readings import WantReading

WINDOW_NS = 60_000_000_000
LOOK_S = 0.1
APART_NS = 1_000_000_000
"""Notes are so far apart: 61 for a program."""
LEAST_NS = 1_000_000_000
"""What ran and paused for less is not known yet."""

log = logging.getLogger("fairgv.demand")


@dataclass(frozen=True)
class _Note:
    """Up to a moment, all in ns."""

    at: int
    gpu: int
    busy: int
    waited: int


@dataclass
class _Program:
    vgpu: int
    now: _Note
    waits_since_ns: int | None = None
    """Of a wait that goes on; the counters do not have it yet."""
    notes: deque[_Note] = field(default_factory=deque)
    """The oldest first. One is older than the window, if any can be."""

    def look(self, now_ns: int, reading: WantReading) -> None:
        if not reading.waits or reading.waited_ns != self.now.waited:  # the wait that was seen is over
            self.waits_since_ns = None
        if reading.waits and self.waits_since_ns is None:
            self.waits_since_ns = now_ns
        self.now = _Note(now_ns, reading.gpu_ns, reading.busy_ns, reading.waited_ns)
        if self.notes and now_ns - self.notes[-1].at < APART_NS:
            return
        self.notes.append(self.now)
        while len(self.notes) > 1 and self.notes[1].at <= now_ns - WINDOW_NS:
            self.notes.popleft()

    def demand(self) -> float | None:
        """From 0 to 1; None: it neither ran nor paused for long enough. A worker may have written any counter."""
        since, now = self.notes[0], self.now
        passed = now.at - since.at
        waiting = 0 if self.waits_since_ns is None else now.at - max(self.waits_since_ns, since.at)
        busy = _within(now.busy - since.busy, passed)
        gpu = _within(now.gpu - since.gpu, busy)
        pause = passed - busy - _within(now.waited - since.waited, passed) - waiting
        lived = gpu + max(0, pause)
        return gpu / lived if lived >= LEAST_NS else None


def _within(value: int, most: int) -> int:
    return min(max(0, value), most)


class Demand:
    """Of the programs of one Gpu, by looks of whoever calls. Thread-safe."""

    def __init__(self) -> None:
        self._programs: dict[tuple[int, int], _Program] = {}
        """By slot and process."""
        self._lock = threading.Lock()

    def look(self, now_ns: int, readings: Sequence[WantReading]) -> None:
        """What all workers that serve a program say now."""
        with self._lock:
            programs = {}
            for reading in readings:
                key = reading.slot, reading.pid
                program = self._programs.get(key)
                if program is None or program.vgpu != reading.vgpu:
                    program = _Program(reading.vgpu, _Note(now_ns, 0, 0, 0))
                program.look(now_ns, reading)
                programs[key] = program
            self._programs = programs

    def of_program(self, slot: int, pid: int) -> float | None:
        """Of the program that this worker serves, from 0 to 1; None: not known."""
        with self._lock:
            program = self._programs.get((slot, pid))
            return None if program is None else program.demand()

    def of_vgpus(self) -> dict[int, float | None]:
        """Of each vGPU with programs, without a look at limits; None: of none of its programs it is known."""
        with self._lock:
            found: dict[int, list[float | None]] = {}
            for program in self._programs.values():
                found.setdefault(program.vgpu, []).append(program.demand())
        return {vgpu: total(each) for vgpu, each in found.items()}


def total(demands: Iterable[float | None]) -> float | None:
    """Of those that are known; None: none is, though there are some."""
    every = list(demands)
    known = [each for each in every if each is not None]
    return sum(known) if known or not every else None


class Monitor:
    """The thread that looks. `start` once, `stop` once."""

    def __init__(
        self,
        page: ControlPage,
        *hear: Callable[[Sequence[WantReading]], None],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`hear`: who else want to know what workers say."""
        self.demand = Demand()
        self._hear = hear
        self._page = page
        self._clock = clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demand", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """The counterpart."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                readings = self._page.wants()
                self.demand.look(self._clock(), readings)
                for hear in self._hear:
                    hear(readings)
            except Exception:
                log.exception("a look at what programs want failed; the next one comes")
                self._stop.wait(1.0)
