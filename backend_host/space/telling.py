"""What is told of a Gpu's spaces."""

from collections.abc import Iterator, Mapping

from backend_host.device.gpu import Gpu
from backend_host.entitlement import BEST_EFFORT, CRITICAL, FAIR
from backend_host.space.spaces import TURNS
from backend_host.statistics import SpaceStatistics


def space_statistics(gpu: Gpu, names: Mapping[int, str]) -> Iterator[SpaceStatistics]:
    """Of each, by its name. `names`: of the vGPUs there, by their numbers."""
    for name, space, members in gpu.spaces.all():
        classed = {
            vgpu_class: tuple(
                sorted(names.get(vgpu, "") for vgpu, each in members.items() if each.vgpu_class == vgpu_class)
            )
            for vgpu_class in (CRITICAL, BEST_EFFORT, FAIR)
        }
        critical = next((vgpu for vgpu, each in members.items() if each.vgpu_class == CRITICAL), None)
        why_turns = gpu.spaces.why_turns(name)
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
            nr_faults=0 if space is None else space.nr_faults,
        )
