"""Simulated programs that answer requests: when those come, how long each takes, and what turns have beyond their ends."""

import itertools
import random
import statistics

import pytest

from scheduler.fair import FairQueuing
from scheduler.simulator.events import Events
from scheduler.simulator.gpu import Gpu
from scheduler.simulator.report import VgpuReport
from scheduler.simulator.settings import Settings, VgpuSpec
from scheduler.simulator.simulation import simulate
from scheduler.simulator.workloads import Answer, Request, Sleep, find_workload, program

MS = 1_000_000
SECOND_NS = 1000 * MS


def alone(workload: str, seconds: int) -> VgpuReport:
    (vgpu,) = simulate(
        Settings("fair", (VgpuSpec(1, find_workload(workload)),), duration_ns=seconds * SECOND_NS, handover_ns=0)
    ).vgpus
    return vgpu


def test_one_alone_takes_as_long_as_its_kernels() -> None:
    found = alone("requests-6x6ms-90ms", 12)
    assert found.answer_ns == pytest.approx(36 * MS, rel=0.01)
    assert found.nr_answered == 12_000 // 126
    assert found.nr_kernels - 6 * found.nr_answered in range(7)
    assert found.nr_turns == found.nr_answered + 1
    assert found.overuse_ns == 0


def test_other_programs_answer_none() -> None:
    found = alone("sync-5ms", 1)
    assert (found.nr_answered, found.answer_ns) == (0, 0)


def test_pauses_at_random_have_the_mean_they_should_have() -> None:
    steps = itertools.islice(program(find_workload("random-1x1ms-90ms"), random.Random(1)), 20_000)
    pauses_ns = [step.duration_ns for step in steps if isinstance(step, Sleep)]
    assert statistics.mean(pauses_ns) == pytest.approx(90 * MS, rel=0.05)
    assert statistics.stdev(pauses_ns) == pytest.approx(90 * MS, rel=0.05)


def test_requests_that_come_at_random_come_whether_the_program_is_ready_or_not() -> None:
    steps = list(itertools.islice(program(find_workload("poisson-1x1ms-90ms"), random.Random(1)), 20_000))
    moments_ns = [step.at_ns for step in steps if isinstance(step, Request) and step.at_ns is not None]
    between_ns = [after - before for before, after in itertools.pairwise(moments_ns)]
    assert statistics.mean(between_ns) == pytest.approx(90 * MS, rel=0.05)
    assert statistics.stdev(between_ns) == pytest.approx(90 * MS, rel=0.05)
    assert min(between_ns) >= 0
    assert not any(isinstance(step, Sleep) for step in steps)
    assert sum(isinstance(step, Answer) for step in steps) in (len(moments_ns), len(moments_ns) - 1)


def test_a_request_that_waits_for_the_one_before_takes_longer() -> None:
    """A queue of random arrivals and a service of 36 ms that is busy for half of the time: 36 * (1 + 0.5 / (2 * 0.5)) ms, after Pollaczek and
    Khinchine."""
    assert alone("poisson-6x6ms-72ms", 400).answer_ns == pytest.approx(54 * MS, rel=0.05)


@pytest.mark.parametrize(("second_at_ms", "overuse_ms"), [(0, 6), (14, 2), (20, 0)])
def test_overuse_is_what_a_turn_has_beyond_its_end_while_others_wait(second_at_ms: int, overuse_ms: int) -> None:
    """A slice of 10 ms, two kernels of 8 ms."""
    events = Events()
    gpu = Gpu(events, FairQueuing(), Settings("", (), slice_ns=10 * MS, handover_ns=0))
    for vgpu in (1, 2):
        gpu.join(vgpu, 1, lambda: None)
    gpu.submit(1, [8 * MS, 8 * MS])
    events.after(second_at_ms * MS, lambda: gpu.submit(2, [MS]))
    events.run_until(40 * MS)
    assert gpu.members[1].overuse_ns == overuse_ms * MS
    assert gpu.members[2].overuse_ns == 0
