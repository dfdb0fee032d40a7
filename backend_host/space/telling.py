"""What is told of a Gpu's spaces."""

from collections.abc import Iterable, Iterator, Mapping

from backend_host.device.gpu import Gpu
from backend_host.entitlement import BEST_EFFORT, CRITICAL, FAIR
from backend_host.space.gated import Gated
from backend_host.space.spaces import TURNS
from backend_host.statistics import SpaceStatistics, VGpuStatistics


def space_statistics(gpu: Gpu, names: Mapping[int, str], vgpus: Iterable[VGpuStatistics]) -> Iterator[SpaceStatistics]:
    """Of each, by its name. `names`: of the vGPUs there, by their numbers; `vgpus`: of all Gpus."""
    totals = {each.name: each.totals for each in vgpus}
    gated_now = {
        vgpu: Gated(totals[each].nr_space_gated, totals[each].space_gated_ns)
        for vgpu, each in names.items()
        if each in totals
    }
    for name, space, members in gpu.spaces.all():
        classed = {
            vgpu_class: tuple(
                sorted(names.get(vgpu, "") for vgpu, each in members.items() if each.vgpu_class == vgpu_class)
            )
            for vgpu_class in (CRITICAL, BEST_EFFORT, FAIR)
        }
        critical = next((vgpu for vgpu, each in members.items() if each.vgpu_class == CRITICAL), None)
        why_turns = gpu.spaces.why_turns(name)
        told = gpu.space_looks.searches.told(name)
        statistics = None if told is None else told.statistics
        slowdowns = (
            {}
            if statistics is None or not statistics.nr_rounds
            else {"p50": statistics.slowdown_p50, "p95": statistics.slowdown_p95, "p99": statistics.slowdown_p99}
        )
        gated = gpu.spaces.gated(name, gated_now)
        yield SpaceStatistics(
            name=name,
            gpu_number=gpu.number,
            way=TURNS if space is None or why_turns else space.together.way,
            why_turns=why_turns,
            critical=next(iter(classed[CRITICAL]), ""),
            best_effort=classed[BEST_EFFORT],
            fair=classed[FAIR],
            qos="" if critical is None else members[critical].qos,
            most=0.0 if critical is None else members[critical].most,
            out_of_turn=0.0 if critical is None else gpu.space_looks.urgent.part(critical),
            multiprocessors=0 if space is None else space.multiprocessors,
            split=None if told is None else (told.split.n, told.split.k),
            slowdowns=slowdowns,
            nr_rounds=0 if statistics is None else statistics.nr_rounds,
            nr_missed=0 if statistics is None else statistics.nr_missed,
            progress=told.progress if told is not None and classed[BEST_EFFORT] else None,
            search="" if told is None else told.name,
            why="" if told is None else told.why,
            is_settled=told is not None and told.is_settled,
            nr_gated=gated.nr,
            gated_ns=gated.ns,
            nr_faults=0 if space is None else space.nr_faults,
        )
