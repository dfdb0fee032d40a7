"""One simulation from its settings to its report."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from scheduler.elastic import Claim, allotments
from scheduler.first_come import FirstCome
from scheduler.policy import exact_share
from scheduler.registry import make_policy
from scheduler.simulator.events import Events
from scheduler.simulator.gpu import Gpu
from scheduler.simulator.guest import Guest
from scheduler.simulator.member import Member
from scheduler.simulator.policies.extensions import guest_waiting
from scheduler.simulator.policies.registry import ALL_POLICIES
from scheduler.simulator.processor import Core
from scheduler.simulator.report import Report, VgpuReport, fair_shares, min_max_ratio, percentile
from scheduler.simulator.settings import Settings, VgpuSpec
from scheduler.simulator.workloads import Workload

_NR_STEPS = 200  # of progress
_ALONE_CYCLES = 50
_ALONE_NS = 500_000_000

Progress = Callable[[float], None]


def place(weights: list[int], nr_gpus: int) -> list[int]:
    """The GPU of each vGPU: the heaviest first, to the GPU of least weight, then of least number."""
    load = [0] * nr_gpus
    places = [0] * len(weights)
    for vgpu in sorted(range(len(weights)), key=lambda vgpu: -weights[vgpu]):
        gpu = min(range(nr_gpus), key=load.__getitem__)
        places[vgpu] = gpu
        load[gpu] += weights[vgpu]
    return places


class Simulation:
    """All GPUs, processors and guests of one setting, at time 0."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._events = Events()
        weights = [spec.weight for spec in settings.vgpus]
        self.places = place(weights, settings.nr_gpus)
        policies = [make_policy(settings.policy, ALL_POLICIES) for _ in range(settings.nr_gpus)]
        self.gpus = [Gpu(self._events, policy, settings) for policy in policies]
        is_polling = guest_waiting(policies[0]) == "poll"
        self.guests: list[Guest] = []
        cores = self._cores()
        for vgpu, spec in enumerate(settings.vgpus):
            self._add(vgpu, spec, cores[vgpu], is_polling)

    def _cores(self) -> list[Core]:
        """The core of each vGPU's vCPU; neighbours share one, as in section 5.4.4."""
        settings = self._settings
        nr_vgpus = len(settings.vgpus)
        nr_cores = nr_vgpus if settings.nr_cores is None else min(settings.nr_cores, nr_vgpus)
        cores = [
            Core(self._events, settings.core_slice_ns, settings.core_switch_ns, self._vcpu_switched)
            for _ in range(nr_cores)
        ]
        return [cores[vgpu * nr_cores // nr_vgpus] for vgpu in range(nr_vgpus)]

    def _vcpu_switched(self, vgpu: int, is_scheduled: bool) -> None:
        self.gpus[self.places[vgpu]].vcpu_switched(vgpu, is_scheduled)

    def _add(self, vgpu: int, spec: VgpuSpec, core: Core, is_polling: bool) -> None:
        gpu = self.gpus[self.places[vgpu]]
        guest = Guest(
            self._events,
            core,
            vgpu,
            spec.workload,
            self._settings,
            is_polling,
            lambda kernels_ns: gpu.submit(vgpu, kernels_ns),
        )
        gpu.join(vgpu, spec.weight, guest.completed, spec.request, spec.limit)
        core.add(vgpu, spec.weight)
        self.guests.append(guest)
        self._events.after(0, guest.start)

    def run(self, progress: Progress) -> None:
        """To the end, with everything charged."""
        for step in range(1, _NR_STEPS + 1):
            self._events.run_until(self._settings.duration_ns * step // _NR_STEPS)
            progress(step / _NR_STEPS)
        for gpu in self.gpus:
            gpu.settle()


def simulate(settings: Settings, progress: Progress = lambda done: None) -> Report:
    """Runs to the end. UnknownPolicyError when there is no such policy. The same settings give the same report.

    `progress` is told the part that is done, from 0 to 1.
    """
    simulation = Simulation(settings)
    demands = demands_alone(settings)
    simulation.run(progress)
    vgpus = sorted(
        (
            report
            for number in range(settings.nr_gpus)
            for report in _gpu_reports(number, simulation, settings, demands)
        ),
        key=lambda report: report.vgpu,
    )
    duration_ns = settings.duration_ns
    throughput = sum(report.throughput for report in vgpus)
    return Report(
        policy=settings.policy,
        duration_ns=duration_ns,
        nr_gpus=settings.nr_gpus,
        min_max_ratio=min_max_ratio([report.fairness for report in vgpus]),
        utilisation=sum(gpu.device.busy_ns for gpu in simulation.gpus) / (duration_ns * settings.nr_gpus),
        overhead=sum(report.fair_share for report in vgpus) / throughput if throughput else float("inf"),
        nr_handovers=sum(gpu.nr_handovers for gpu in simulation.gpus),
        vgpus=tuple(vgpus),
    )


def demands_alone(settings: Settings) -> dict[Workload, float]:
    """Of each workload of the settings, how much of a GPU its guest uses with GPU and processor to itself: work done over time."""
    demands = {}
    for workload in dict.fromkeys(spec.workload for spec in settings.vgpus):
        duration_ns = settings.duration_ns
        if not workload.is_at_random:
            duration_ns = min(duration_ns, max(_ALONE_NS, _ALONE_CYCLES * workload.cycle_ns))
        alone = replace(
            settings,
            policy=FirstCome.name,
            vgpus=(VgpuSpec(1, workload),),
            nr_gpus=1,
            nr_cores=None,
            duration_ns=duration_ns,
        )
        simulation = Simulation(alone)
        simulation.run(lambda done: None)
        demands[workload] = simulation.gpus[0].members[0].done_ns / duration_ns
    return demands


def _fair_shares(specs: list[VgpuSpec], demands: dict[Workload, float]) -> list[float]:
    """Of one GPU, within bounds where there are any."""
    if all(spec.request == 0 and spec.limit == 1 for spec in specs):
        return fair_shares([spec.weight for spec in specs], [demands[spec.workload] for spec in specs])
    claims = {
        number: Claim(
            Fraction(spec.weight),
            exact_share(spec.request),
            min(exact_share(spec.limit), Fraction(demands[spec.workload])),
        )
        for number, spec in enumerate(specs)
    }
    return [float(share) for share in allotments(claims).values()]


def _gpu_reports(
    number: int, simulation: Simulation, settings: Settings, demands: dict[Workload, float]
) -> Iterator[VgpuReport]:
    gpu = simulation.gpus[number]
    specs = {vgpu: settings.vgpus[vgpu] for vgpu in gpu.members}
    shares = _fair_shares(list(specs.values()), demands)
    for (vgpu, spec), fair_share in zip(specs.items(), shares, strict=True):
        member, guest = gpu.members[vgpu], simulation.guests[vgpu]
        throughput = member.done_ns / settings.duration_ns
        yield VgpuReport(
            vgpu=vgpu,
            gpu=number,
            weight=spec.weight,
            workload=spec.workload.name,
            request=spec.request,
            limit=spec.limit,
            gpu_ns=member.used_ns,
            held_ns=member.held_ns,
            normalised_ns=member.used_ns / spec.weight,
            share=member.used_ns / settings.duration_ns,
            demand=demands[spec.workload],
            fair_share=fair_share,
            throughput=throughput,
            fairness=throughput / fair_share if fair_share else 1.0,
            nr_kernels=member.nr_kernels,
            nr_turns=len(member.waits_ns),
            turn_ns=member.budgets_ns / len(member.waits_ns) if member.waits_ns else 0.0,
            overuse_ns=member.overuse_ns,
            nr_answered=guest.nr_answered,
            answer_ns=guest.answers_ns / guest.nr_answered if guest.nr_answered else 0.0,
            **_wait_percentiles(member, settings.duration_ns),
        )


def _wait_percentiles(member: Member, end_ns: int) -> dict[str, int]:
    waits_ns = sorted(member.waits_ns)
    if member.backlogged_since_ns is not None:
        waits_ns = sorted([*waits_ns, end_ns - member.backlogged_since_ns])
    named = {f"wait_p{percent}_ns": percentile(waits_ns, percent) for percent in (50, 95, 99)}
    return named | {"wait_max_ns": percentile(waits_ns, 100)}
