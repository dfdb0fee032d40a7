"""A host with several devices: programs come, are placed, looked at ten times a second, moved, and end.

Placement and balancing are the daemon's (scheduler/placement.py, scheduler/balance.py), and each device is the simulated Gpu. A program that
fits nowhere waits for its turn to be placed, where a daemon would refuse it. A move copies ahead while the program runs on, then waits for the
end of its kernel, then takes the pause that was planned.

Wrong when: programs slow each other down by more than waiting, through memory bandwidth or copies, say.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial

from scheduler.balance import OFF, Balancer, Device, Load, Move
from scheduler.placement import Candidate, NoDeviceFitsError, Wish, choose, demands
from scheduler.registry import make_policy
from scheduler.simulator.events import Events
from scheduler.simulator.host.equals import Equals
from scheduler.simulator.host.job import Job
from scheduler.simulator.host.leaving import OpenGpu
from scheduler.simulator.host.programs import Program
from scheduler.simulator.host.report import DeviceReport, HostReport, JobReport, MoveReport
from scheduler.simulator.host.settings import HostSettings
from scheduler.simulator.policies.registry import ALL_POLICIES

LOOK_NS = 100_000_000
_HAIR = 1e-9


class _Levels:
    """How long a device was used how much, by what its programs want."""

    def __init__(self) -> None:
        self.empty_ns = self.low_ns = self.middle_ns = self.over_ns = 0

    def add(self, jobs: Sequence[Job], elapsed_ns: int) -> None:
        wanted = sum(job.wants for job in jobs)
        if not jobs:
            self.empty_ns += elapsed_ns
        if wanted > 1 + _HAIR:
            self.over_ns += elapsed_ns
        elif wanted >= 1 / 2:
            self.middle_ns += elapsed_ns
        else:
            self.low_ns += elapsed_ns


class Host:
    """One setting, at time 0."""

    def __init__(self, settings: HostSettings) -> None:
        self._settings = settings
        self._events = Events()
        of_gpu = settings.of_gpu()
        self._of_gpu = of_gpu
        numbers = range(settings.nr_gpus)
        self._gpus = [OpenGpu(self._events, make_policy(settings.policy, ALL_POLICIES), of_gpu) for _ in numbers]
        self._devices = [Device(number, settings.memory) for number in numbers]
        self._balancer = Balancer(settings.balance)
        self._levels = [_Levels() for _ in numbers]
        self._equals = Equals()
        self._counted_ns = self._beyond_ns = 0
        self._waiting: deque[Job] = deque()
        self._jobs: list[Job] = []
        self._placed_ns: dict[Job, int] = {}
        self._moves: list[MoveReport] = []

    def run(self, progress: Callable[[float], None]) -> None:
        """Until the last program has ended; `progress` is told the part of them that has."""
        for number, program in enumerate(self._settings.programs):
            self._events.after(number * self._settings.interval_ns, partial(self._arrive, program))
        nr = len(self._settings.programs)
        while len(self._jobs) < nr or any(job.ended_ns is None for job in self._jobs):
            self._events.run_until(self._events.now_ns + LOOK_NS)
            self._look()
            progress(sum(job.ended_ns is not None for job in self._jobs) / nr)

    # Who is where.

    def _on(self, device: int) -> list[Job]:
        return [job for job in self._jobs if job.device == device and job.ended_ns is None]

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """What is wanted of devices changes in the block: what was until now counts."""
        self._count()
        yield
        for device in range(len(self._gpus)):
            self._equals.begin(device, self._on(device), self._events.now_ns)

    def _count(self) -> None:
        now_ns = self._events.now_ns
        for device, levels in enumerate(self._levels):
            self._gpus[device].settle()
            levels.add(self._on(device), now_ns - self._counted_ns)
            self._equals.end(device, now_ns)
        if sum(job.wants for job in self._jobs) > len(self._gpus) + _HAIR:
            self._beyond_ns += now_ns - self._counted_ns
        self._counted_ns = now_ns

    def _arrive(self, program: Program) -> None:
        job = Job(len(self._jobs), program, self._events, self._of_gpu, self._changing, self._ended)
        self._jobs.append(job)
        self._waiting.append(job)
        self._place()

    def _place(self) -> None:
        """Those that wait, in their order, as far as they fit."""
        while self._waiting:
            job = self._waiting[0]
            try:
                device = choose(self._candidates(), Wish(job.program.memory, job.program.request))
            except NoDeviceFitsError:
                return
            self._waiting.popleft()
            self._placed_ns[job] = self._events.now_ns
            with self._changing():
                job.enter(device, self._gpus[device])

    def _candidates(self) -> list[Candidate]:
        known = demands({device.number: [job.demand() for job in self._on(device.number)] for device in self._devices})
        found = []
        for device in self._devices:
            there = [job for job in self._jobs if job.ended_ns is None and device.number in (job.device, job.to)]
            memory, request = (sum(getattr(job.program, name) for job in there) for name in ("memory", "request"))
            found.append(
                Candidate(
                    device.number,
                    known[device.number],
                    weight=len(there),
                    memory_left=self._settings.memory - memory,
                    request_left=100 - request,
                    places_left=device.places - len(there),
                )
            )
        return found

    def _ended(self) -> None:
        """Once it is done with ending, others may fit."""
        self._events.after(0, self._place)

    # Who moves.

    def _look(self) -> None:
        for gpu in self._gpus:
            gpu.settle()
        there = [job for job in self._jobs if job.device is not None and job.ended_ns is None]
        for job in there:
            job.look()
        loads = [
            Load(job.number, job.device, job.demand(), job.program.memory, job.program.request, job.to)
            for job in there
            if job.device is not None
        ]
        for move in self._balancer.look(self._events.now_ns, self._devices, loads, self._planned_ns):
            self._move(move)

    def _planned_ns(self, vgpu: Hashable, device: int) -> int:
        assert isinstance(vgpu, int)
        return self._settings.costs.of_pause_ns(self._jobs[vgpu].program.memory)

    def _move(self, move: Move) -> None:
        assert isinstance(move.vgpu, int)
        job = self._jobs[move.vgpu]
        job.to = move.target
        number = len(self._moves)
        self._moves.append(MoveReport(self._events.now_ns, str(move), None))
        ahead_ns = self._settings.costs.of_ahead_ns(job.program.memory)
        self._events.after(ahead_ns, lambda: self._leave(job, move.target, number))

    def _leave(self, job: Job, target: int, number: int) -> None:
        began_ns = self._events.now_ns
        pause_ns = self._planned_ns(job.number, target)

        def enter() -> None:
            if job.ended_ns is None:
                job.away_ns += pause_ns
                with self._changing():
                    job.enter(target, self._gpus[target])
                whole_ns = self._events.now_ns - began_ns
                self._moves[number] = MoveReport(self._moves[number].at_ns, self._moves[number].told, whole_ns)

        def pause() -> None:
            self._events.after(pause_ns, enter)

        if job.ended_ns is None:
            job.leave(pause)

    # What came of it.

    def report(self, alone_ns: Callable[[Program], int]) -> HostReport:
        """After the run. `alone_ns`: how long a program takes alone."""
        settings = self._settings
        duration_ns = max(job.ended_ns or 0 for job in self._jobs)
        self._count()
        return HostReport(
            settings.balance,
            settings.interval_ns,
            duration_ns,
            self._beyond_ns,
            self._equals.index,
            tuple(self._device_report(number, duration_ns) for number in range(settings.nr_gpus)),
            tuple(
                JobReport(
                    job.program.name,
                    job.arrived_ns,
                    self._placed_ns[job] - job.arrived_ns,
                    job.ended_ns or 0,
                    ((job.ended_ns or 0) - job.arrived_ns) / alone_ns(job.program),
                    tuple(job.visited),
                    job.away_ns,
                )
                for job in self._jobs
            ),
            tuple(self._moves),
        )

    def _device_report(self, number: int, duration_ns: int) -> DeviceReport:
        levels, busy_ns = self._levels[number], self._gpus[number].device.busy_ns
        late_ns = self._events.now_ns - duration_ns  # until the last look, with nobody there
        empty_ns = levels.empty_ns - late_ns
        joules = self._settings.power.joules(empty_ns=empty_ns, there_ns=duration_ns - empty_ns, busy_ns=busy_ns)
        return DeviceReport(busy_ns, empty_ns, levels.low_ns - late_ns, levels.middle_ns, levels.over_ns, joules)


@cache
def alone_ns(program: Program, seed: int, is_preemptive: bool, slice_ns: int) -> int:
    """How long it takes on an idle host with one device."""
    host = Host(HostSettings((program,), 1, 1, OFF, seed=seed, is_preemptive=is_preemptive, slice_ns=slice_ns))
    host.run(lambda done: None)
    return host.report(lambda program: 1).jobs[0].ended_ns


def simulate_host(settings: HostSettings, progress: Callable[[float], None] = lambda done: None) -> HostReport:
    """To the end of the last program. The same settings give the same report."""
    host = Host(settings)
    host.run(progress)
    return host.report(lambda program: alone_ns(program, settings.seed, settings.is_preemptive, settings.slice_ns))
