"""What simulations must show: fair queuing is fair, first-come is not, nothing is lost, and the same settings give the same report."""

import pytest

from scheduler.simulator.policies.registry import ALL_POLICIES
from scheduler.simulator.report import Report
from scheduler.simulator.settings import PREEMPTIVE_SLICE_NS, Settings, VgpuSpec
from scheduler.simulator.simulation import demands_alone, simulate
from scheduler.simulator.workloads import find_workload

SECOND_NS = 1_000_000_000
ONE_TWO_THREE = (1, 2, 3)
SIX = (1, 2, 2, 3, 3, 4)


def settings_of(policy: str, weights: tuple[int, ...], workloads: str, **others: object) -> Settings:
    names = workloads.split(",")
    vgpus = tuple(VgpuSpec(weight, find_workload(names[i % len(names)])) for i, weight in enumerate(weights))
    return Settings(policy=policy, vgpus=vgpus, **others)  # type: ignore[arg-type]


def ratio(policy: str, weights: tuple[int, ...], workloads: str, seconds: int) -> float:
    return simulate(settings_of(policy, weights, workloads, duration_ns=seconds * SECOND_NS)).min_max_ratio


@pytest.mark.parametrize("weights", [ONE_TWO_THREE, SIX])
@pytest.mark.parametrize("workload", ["kernel-500us", "bs"])
def test_fair_queuing_shares_by_weight(weights: tuple[int, ...], workload: str) -> None:
    assert ratio("fair", weights, workload, 10) >= 0.99


@pytest.mark.parametrize("weights", [(1, 1), (1, 1, 2, 2)])
def test_fair_queuing_shares_by_weight_whatever_the_kernels(weights: tuple[int, ...]) -> None:
    assert ratio("fair", weights, "kernel-50us,kernel-5ms", 2) >= 0.98


@pytest.mark.parametrize(
    ("weights", "workloads"), [(ONE_TWO_THREE, "kernel-500us"), (SIX, "bs"), ((1, 1), "kernel-50us,kernel-5ms")]
)
def test_first_come_does_not(weights: tuple[int, ...], workloads: str) -> None:
    """What the tests above would say of a policy that does not look at weights and lengths."""
    assert ratio("first-come", weights, workloads, 2) < 0.7


def test_programs_that_compute_between_kernels_keep_their_shares() -> None:
    """convolutionSeparable pauses for 127 us after each kernel: the holder waits that out, and pays for it."""
    report = simulate(settings_of("fair", ONE_TWO_THREE, "cs", duration_ns=6 * SECOND_NS))
    assert report.min_max_ratio >= 0.98
    assert all(vgpu.held_ns > 0 for vgpu in report.vgpus)


def test_a_kernel_longer_than_the_slice_is_paid_for() -> None:
    """Of a device that cannot preempt; 200 ms against 50 us."""
    assert ratio("fair", (1, 1), "kernel-50us,kernel-200ms", 10) >= 0.97
    assert ratio("first-come", (1, 1), "kernel-50us,kernel-200ms", 5) < 0.1


def test_on_a_device_that_preempts_an_overrunning_kernel_holds_up_nobody() -> None:
    settings = settings_of(
        "fair",
        (1, 1),
        "kernel-50us,kernel-200ms",
        duration_ns=4 * SECOND_NS,
        is_preemptive=True,
        slice_ns=PREEMPTIVE_SLICE_NS,
    )
    short, long = simulate(settings).vgpus
    assert short.gpu_ns == pytest.approx(long.gpu_ns, rel=0.03)
    assert short.wait_max_ns <= 2.5 * PREEMPTIVE_SLICE_NS, "a renewed slice, and half of one that is let end"


def test_the_gpu_is_not_left_idle_by_sleepers() -> None:
    """Section 5.4.5: blackScholes takes what matrixMul, which sleeps four fifths of its time, leaves."""
    report = simulate(settings_of("fair", (1, 1), "bs,mm-sleep80", duration_ns=3 * SECOND_NS))
    assert report.utilisation >= 0.93
    assert report.vgpus[0].share > 0.7


def accounts(report: Report) -> int:
    return sum(vgpu.gpu_ns for vgpu in report.vgpus)


@pytest.mark.parametrize("policy", sorted(ALL_POLICIES))
@pytest.mark.parametrize("is_preemptive", [False, True])
def test_every_busy_moment_is_charged_to_somebody(policy: str, is_preemptive: bool) -> None:
    settings = settings_of(
        policy,
        (1, 2, 3, 4, 5),
        "bs,kernel-20ms,cs,mm-sleep50",
        nr_gpus=2,
        nr_cores=3,
        duration_ns=SECOND_NS,
        is_preemptive=is_preemptive,
    )
    report = simulate(settings)
    busy_ns = report.utilisation * report.duration_ns * report.nr_gpus
    assert accounts(report) == pytest.approx(busy_ns, rel=1e-6)
    assert simulate(settings) == report, "the same settings give the same report"


def test_many_vgpus_on_many_gpus() -> None:
    weights = tuple(1 + i % 4 for i in range(2000))
    seen: list[float] = []
    settings = settings_of("fair", weights, "kernel-5ms", nr_gpus=50, duration_ns=SECOND_NS // 2)
    report = simulate(settings, seen.append)
    assert len(report.vgpus) == 2000
    assert {vgpu.gpu for vgpu in report.vgpus} == set(range(50))
    assert report.utilisation > 0.95
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_demand_is_what_a_guest_uses_alone() -> None:
    settings = settings_of("fair", (1, 1, 1), "kernel-500us,mm-sleep80,mm", duration_ns=3 * SECOND_NS)
    demands = {workload.name: demand for workload, demand in demands_alone(settings).items()}
    assert demands["kernel-500us"] == pytest.approx(1, abs=0.01)
    assert demands["mm"] == pytest.approx(207 / 226, abs=0.02)
    assert demands["mm-sleep80"] == pytest.approx(0.2 * 207 / 226, abs=0.02)


def test_polling_guests_on_one_core_get_in_each_others_way() -> None:
    """Section 5.4.4: whoever polls keeps the core from the guest whose vGPU has the GPU, which then gives it up."""
    reports = {
        policy: simulate(settings_of(policy, SIX, "srd1", nr_cores=3, duration_ns=SECOND_NS // 5))
        for policy in ("credit-hs", "credit-poll")
    }
    assert reports["credit-poll"].utilisation < reports["credit-hs"].utilisation
    assert reports["credit-poll"].nr_handovers > 2 * reports["credit-hs"].nr_handovers
