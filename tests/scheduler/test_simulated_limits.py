"""Requests and limits in simulation: nobody exceeds its limit, however idle the GPU is, and requests are met."""

import pytest

from scheduler.fair import FairQueuing
from scheduler.first_come import FirstCome
from scheduler.simulator.events import Events
from scheduler.simulator.gpu import Gpu
from scheduler.simulator.report import Report
from scheduler.simulator.settings import PREEMPTIVE_SLICE_NS, SLICE_NS, Settings, VgpuSpec
from scheduler.simulator.simulation import simulate
from scheduler.simulator.workloads import find_workload

MS = 1_000_000
SECOND_NS = 1_000_000_000
Bounds = tuple[float, float]


def report_of(workload: str, bounds: list[Bounds], seconds: int, policy: str, is_preemptive: bool = False) -> Report:
    vgpus = tuple(VgpuSpec(1, find_workload(workload), request, limit) for request, limit in bounds)
    return simulate(
        Settings(
            policy=policy,
            vgpus=vgpus,
            duration_ns=seconds * SECOND_NS,
            is_preemptive=is_preemptive,
            slice_ns=PREEMPTIVE_SLICE_NS if is_preemptive else SLICE_NS,
        )
    )


def shares(report: Report) -> list[float]:
    return [vgpu.share for vgpu in report.vgpus]


@pytest.mark.parametrize("is_preemptive", [False, True])
def test_the_three_of_gemini(is_preemptive: bool) -> None:
    report = report_of("kernel-5ms", [(0.3, 0.6), (0.4, 0.6), (0.3, 0.4)], 5, "elastic", is_preemptive)
    assert shares(report) == pytest.approx([0.3, 0.4, 0.3], abs=0.01)
    assert [vgpu.fair_share for vgpu in report.vgpus] == pytest.approx([0.3, 0.4, 0.3], abs=0.001)


@pytest.mark.parametrize("policy", ["elastic", "fair", "first-come"])
@pytest.mark.parametrize("workload", ["kernel-50us", "kernel-5ms", "sync-5ms"])
def test_one_alone_keeps_its_limit(workload: str, policy: str) -> None:
    report = report_of(workload, [(0, 0.3)], 5, policy)
    assert shares(report) == pytest.approx([0.3], abs=0.005)
    assert report.utilisation == pytest.approx(0.3, abs=0.005)


def test_a_kernel_that_lasts_longer_is_taken_off_the_device() -> None:
    assert shares(report_of("kernel-10000ms", [(0, 0.3)], 5, "fair", True)) == pytest.approx([0.3], abs=0.01)


def test_where_it_cannot_be_taken_off_it_is_paid_back() -> None:
    """200 ms at a tenth of the GPU: one kernel every two seconds."""
    report = report_of("kernel-200ms", [(0, 0.1)], 20, "fair")
    assert shares(report) == pytest.approx([0.1], abs=0.005)


@pytest.mark.parametrize(("workload", "is_preemptive"), [("kernel-5ms", False), ("sync-5ms", True)])
def test_what_limits_leave_stays_idle(workload: str, is_preemptive: bool) -> None:
    report = report_of(workload, [(0, 0.2), (0, 0.3)], 5, "fair", is_preemptive)
    assert shares(report) == pytest.approx([0.2, 0.3], abs=0.01)
    assert report.utilisation == pytest.approx(0.5, abs=0.01)


def test_others_have_what_a_limit_leaves() -> None:
    report = report_of("kernel-5ms", [(0, 0.2), (0, 1), (0, 1)], 5, "fair")
    assert shares(report) == pytest.approx([0.2, 0.4, 0.4], abs=0.015)


def test_an_unlimited_one_is_not_held_up_by_a_kernel_at_its_limit() -> None:
    """10 s long, at a tenth: it is off the device for most of the time."""
    vgpus = (VgpuSpec(1, find_workload("kernel-10000ms"), limit=0.1), VgpuSpec(1, find_workload("kernel-50us")))
    report = simulate(
        Settings("fair", vgpus, duration_ns=5 * SECOND_NS, is_preemptive=True, slice_ns=PREEMPTIVE_SLICE_NS)
    )
    assert shares(report) == pytest.approx([0.1, 0.9], abs=0.02)
    assert report.vgpus[1].wait_max_ns <= 2 * PREEMPTIVE_SLICE_NS


class Told(FirstCome):
    """Keeps what it was told of backlogs."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, str]] = []

    def backlogged(self, vgpu: int, now_ns: int) -> None:
        self.told.append((now_ns, "backlogged"))
        super().backlogged(vgpu, now_ns)

    def blocked(self, vgpu: int, now_ns: int) -> None:
        self.told.append((now_ns, "blocked"))
        super().blocked(vgpu, now_ns)


@pytest.mark.parametrize("is_preemptive", [False, True])
def test_at_its_limit_it_does_not_wait(is_preemptive: bool) -> None:
    """Half the GPU and slices of 10 ms: 20 ms at one go, as one that has slept, and then 10 ms in each 20. Kernels of 4 ms."""
    events, policy = Events(), Told()
    gpu = Gpu(events, policy, Settings("", (), is_preemptive=is_preemptive, slice_ns=10 * MS, handover_ns=0))
    gpu.join(1, 1, lambda: None, limit=0.5)
    gpu.submit(1, 100 * [4 * MS])
    events.run_until(45 * MS)
    gpu.settle()
    stopped_ns = 40 * MS if is_preemptive else 42 * MS
    assert policy.told == [(0, "backlogged"), (20 * MS, "blocked"), (30 * MS, "backlogged"), (stopped_ns, "blocked")]
    assert gpu.members[1].used_ns == stopped_ns - 10 * MS
    assert gpu.members[1].nr_kernels == (7 if is_preemptive else 8)


def test_what_it_holds_counts_for_its_limit() -> None:
    events = Events()
    gpu = Gpu(events, FairQueuing(), Settings("", (), slice_ns=10 * MS, handover_ns=0))
    for vgpu in (1, 2):
        gpu.join(vgpu, 1, lambda: None, limit=0.5)
    gpu.submit(1, [MS])
    gpu.submit(2, [MS])
    events.run_until(3 * MS)
    first, second = (gpu.members[vgpu].allowance for vgpu in (1, 2))
    assert first is not None
    assert second is not None
    assert gpu.members[1].held_ns == 20_000
    assert (first.limited_until_ns, second.limited_until_ns) == (2 * MS + 40_000, 3 * MS + 20_000)
