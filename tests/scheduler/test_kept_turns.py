"""Turns that are kept to their ends, as Gemini's tokens: nobody else has the GPU before, and what that costs those who answer requests."""

from functools import cache

import pytest

from scheduler.fair import FairQueuing
from scheduler.simulator.events import Events
from scheduler.simulator.gpu import Gpu
from scheduler.simulator.settings import Settings, VgpuSpec
from scheduler.simulator.simulation import simulate
from scheduler.simulator.workloads import find_workload

MS = 1_000_000
SECOND_NS = 1000 * MS
THREE = ("random-6x6ms-90ms", "random-8x8ms-160ms", "random-6x13ms-195ms")


def gpu_of_two(is_preemptive: bool = False) -> tuple[Events, Gpu]:
    events = Events()
    settings = Settings("", (), is_preemptive=is_preemptive, slice_ns=10 * MS, handover_ns=0, keeps_turns=True)
    gpu = Gpu(events, FairQueuing(), settings)
    for vgpu in (1, 2):
        gpu.join(vgpu, 1, lambda: None)
    return events, gpu


def at(events: Events, gpu: Gpu, moment_ms: int) -> tuple[int, int]:
    """How many kernels the two have done just after that."""
    events.run_until(moment_ms * MS + 1)
    return gpu.members[1].nr_kernels, gpu.members[2].nr_kernels


@pytest.mark.parametrize("is_preemptive", [False, True])
def test_an_idle_holder_keeps_its_turn_and_pays_for_it(is_preemptive: bool) -> None:
    events, gpu = gpu_of_two(is_preemptive)
    gpu.submit(1, [MS])
    gpu.submit(2, [MS])
    assert at(events, gpu, 10) == (1, 0)
    gpu.settle()
    assert gpu.members[1].held_ns == 9 * MS
    assert at(events, gpu, 11) == (1, 1)


def test_what_it_submits_meanwhile_belongs_to_the_turn() -> None:
    events, gpu = gpu_of_two()
    gpu.submit(1, [MS])
    gpu.submit(2, [MS])
    events.after(5 * MS, lambda: gpu.submit(1, [MS]))
    assert at(events, gpu, 6) == (2, 0)
    assert at(events, gpu, 11) == (2, 1)
    assert len(gpu.members[1].waits_ns) == 1


def test_it_ends_where_nobody_waits_too() -> None:
    events, gpu = gpu_of_two()
    gpu.submit(1, [MS])
    events.after(12 * MS, lambda: gpu.submit(2, [MS]))
    assert at(events, gpu, 13) == (1, 1)


def test_one_that_is_alone_and_has_more_to_do_has_another_one() -> None:
    events, gpu = gpu_of_two()
    gpu.submit(1, 12 * [MS])
    events.after(13 * MS, lambda: gpu.submit(2, [MS]))
    assert at(events, gpu, 20) == (12, 0), "idle since 12 ms"
    assert at(events, gpu, 21) == (12, 1)


def test_an_idle_one_has_no_other_one_though_it_stands_first() -> None:
    events, gpu = gpu_of_two()
    gpu.submit(2, [40 * MS, MS])
    gpu.submit(1, [MS])
    assert at(events, gpu, 50) == (1, 1), "a turn of 10 ms, of 40 that it is owed"
    assert at(events, gpu, 51) == (1, 2)


@cache
def mean_answer_ns(quota: str, slice_ms: int, keeps_turns: bool) -> float:
    vgpus = tuple(VgpuSpec(1, find_workload(name)) for name in THREE)
    settings = Settings(
        "elastic",
        vgpus,
        duration_ns=60 * SECOND_NS,
        quota=quota,
        slice_ns=slice_ms * MS,
        keeps_turns=keeps_turns,
    )
    return sum(vgpu.answer_ns for vgpu in simulate(settings).vgpus) / len(vgpus)


@pytest.mark.parametrize("slice_ms", [60, 100, 250])
def test_kept_turns_that_are_longer_than_requests_cost_what_bursts_save(slice_ms: int) -> None:
    """Gemini's figure 14. Where turns are given up a long one costs nothing, and bursts save nothing against it."""
    by_bursts_ns = mean_answer_ns("bursts", 6, keeps_turns=True)
    assert mean_answer_ns("slice", slice_ms, keeps_turns=True) > 1.23 * by_bursts_ns
    assert mean_answer_ns("bursts", 6, keeps_turns=False) == pytest.approx(by_bursts_ns, rel=0.05)
    if slice_ms >= 78:
        assert mean_answer_ns("slice", slice_ms, keeps_turns=False) == pytest.approx(by_bursts_ns, rel=0.05)
