"""The simulator's shares are those of softgpu, with real programs through the rings: programs that queue, that wait for each kernel, and that
sleep."""

import pytest

from benchmarks.experiments.sharing import Mixture, together
from benchmarks.guests import Setting
from benchmarks.workloads import Workload as Work
from benchmarks.workloads import spin
from scheduler.registry import DEFAULT_POLICY
from scheduler.simulator.settings import Settings, VgpuSpec
from scheduler.simulator.simulation import simulate
from scheduler.simulator.workloads import Workload, find_workload
from tests.end_to_end.test_fairness import one_of

MS = 1_000_000
WEIGHTS = (1, 3)
LONG_MS = 50
"""Of kernels that are waited for. A program pauses for milliseconds where others keep it off a processor, and one that pauses for more than a
quarter of its turn is by the rules not waited for (docs/grants.md): with kernels of 5 ms busy processors decide what the shares are."""
NEAR = 0.06
"""Points of a share from 0 to 1. Weights that do not hold are off by 0.25."""
PARTLY = Workload("three kernels of 2 ms, and a sleep", 2 * MS, nr_launches=3, sleep_ns=4 * MS)
"""Two of them have their turns in each other's sleeps, whatever their weights: a device that does not preempt ends none early."""


def simulated(workload: Workload) -> list[float]:
    vgpus = tuple(VgpuSpec(weight, workload) for weight in WEIGHTS)
    return parts([vgpu.gpu_ns for vgpu in simulate(Settings(DEFAULT_POLICY, vgpus)).vgpus])


def measured(program: Mixture) -> list[float]:
    return parts([outcome.charged_s or 0.0 for outcome in together(DEFAULT_POLICY, program, Setting("soft"), 4)])


def parts(times: list[float] | list[int]) -> list[float]:
    return [time / sum(times) for time in times]


@pytest.mark.parametrize(
    ("workload", "program", "lighter"),
    [
        (find_workload("kernel-5ms"), spin(5000, 64), 0.25),
        (find_workload(f"sync-{LONG_MS}ms"), spin(LONG_MS * 1000, 1), 0.25),
        (PARTLY, spin(2000, 3, 4000), 0.5),
    ],
    ids=["queues", "waits for each", "sleeps"],
)
def test_shares_are_as_simulated(workload: Workload, program: Work, lighter: float) -> None:
    """A few attempts for each: what else runs on the processors shifts shares in either direction."""
    expected = simulated(workload)
    assert expected[0] == pytest.approx(lighter, abs=0.02)
    mixture = Mixture("weights", WEIGHTS, (program, program))
    assert one_of(lambda: measured(mixture)[0], lambda share: abs(share - expected[0]) < NEAR) == []
