"""A simulated holder waits out its pauses as workers do: programs that wait for each kernel get what their weight says."""

import pytest

from scheduler.fair import FairQueuing
from scheduler.patience import IDLE_NS
from scheduler.simulator.events import Events
from scheduler.simulator.gpu import Gpu
from scheduler.simulator.report import Report
from scheduler.simulator.settings import PREEMPTIVE_SLICE_NS, SLICE_NS, Settings, VgpuSpec
from scheduler.simulator.simulation import simulate
from scheduler.simulator.workloads import find_workload

US = 1_000
MS = 1_000_000
NR_KERNELS = 48


def report_of(workloads: str, weights: tuple[int, ...], duration_ns: int, is_preemptive: bool) -> Report:
    names = workloads.split(",")
    return simulate(
        Settings(
            policy="fair",
            vgpus=tuple(VgpuSpec(weight, find_workload(names[i % len(names)])) for i, weight in enumerate(weights)),
            duration_ns=duration_ns,
            is_preemptive=is_preemptive,
            slice_ns=PREEMPTIVE_SLICE_NS if is_preemptive else SLICE_NS,
        )
    )


@pytest.mark.parametrize("is_preemptive", [False, True])
@pytest.mark.parametrize("kind", ["sync", "kernel"])
@pytest.mark.parametrize("kernel_ms", [5, 50, 500, 5000])
def test_one_to_three(kernel_ms: int, kind: str, is_preemptive: bool) -> None:
    """Whether they wait for each kernel or not, and however long it is."""
    duration_ns = max(6_000 * MS, NR_KERNELS * kernel_ms * MS)
    report = report_of(f"{kind}-{kernel_ms}ms", (1, 3), duration_ns, is_preemptive)
    assert [vgpu.share for vgpu in report.vgpus] == pytest.approx([0.25, 0.75], rel=0.03)


@pytest.mark.parametrize("weights", [(1, 3), (1, 10)])
def test_pauses_that_are_not_waited_for_cost_no_share_of_long_kernels(weights: tuple[int, int]) -> None:
    """Random ones of 30 ms in the mean, behind kernels of 600 ms: some last for longer than a holder waits, and for longer than 10 ms."""
    report = report_of("random-1x600ms-30ms", weights, 1_100 * 600 * MS, is_preemptive=False)
    paid = [(vgpu.gpu_ns + vgpu.held_ns) / vgpu.weight for vgpu in report.vgpus]
    assert min(paid) / max(paid) >= 0.97


@pytest.mark.parametrize("is_preemptive", [False, True])
def test_one_that_waits_for_each_kernel_beside_one_that_does_not(is_preemptive: bool) -> None:
    report = report_of("sync-5ms,kernel-5ms", (3, 1), 4_000 * MS, is_preemptive)
    assert [vgpu.share for vgpu in report.vgpus] == pytest.approx([0.75, 0.25], rel=0.03)


def gpu_of_two(is_preemptive: bool = False, slice_ns: int = 10 * MS) -> tuple[Events, Gpu]:
    events = Events()
    settings = Settings("", (), is_preemptive=is_preemptive, slice_ns=slice_ns, handover_ns=0, sharing_loss_percent=0)
    gpu = Gpu(events, FairQueuing(), settings)
    for vgpu in (1, 2):
        gpu.join(vgpu, 1, lambda: None)
    return events, gpu


def test_what_an_idle_holder_keeps_from_others_is_charged() -> None:
    """It holds for 20 us, as nothing is known of its pauses, and stands behind by as much."""
    events, gpu = gpu_of_two()
    gpu.submit(1, [MS])
    gpu.submit(2, [MS])
    events.run_until(MS + 30 * US)
    gpu.settle()
    assert (gpu.members[1].used_ns, gpu.members[1].held_ns) == (MS, 20 * US)
    assert gpu.members[2].used_ns == 10 * US


def test_nobody_pays_for_what_nobody_wants() -> None:
    events, gpu = gpu_of_two()
    gpu.submit(1, [MS])
    events.run_until(MS + IDLE_NS - 1)
    gpu.submit(2, [MS])
    assert gpu.members[1].held_ns == 0
    events.run_until(3 * MS)
    gpu.settle()
    assert (gpu.members[1].held_ns, gpu.members[2].used_ns) == (0, MS)


def test_a_slice_is_renewed_while_the_holder_stands_first() -> None:
    """vGPU 1 has had 40 ms alone of the queue's; vGPU 2 catches up in one turn of four slices."""
    events, gpu = gpu_of_two()
    gpu.submit(1, [40 * MS, *(100 * [MS])])
    gpu.submit(2, 100 * [MS])
    events.run_until(100 * MS)
    gpu.settle()
    assert gpu.members[2].used_ns >= 40 * MS
    assert len(gpu.members[2].waits_ns) == 1


def test_on_a_device_that_preempts_a_long_kernel_is_taken_off() -> None:
    """40 ms with slices of 10 ms. It goes on in its vGPU's next turn, and what is left then is let end."""
    events, gpu = gpu_of_two(is_preemptive=True)
    gpu.submit(1, [40 * MS])
    gpu.submit(2, 100 * [MS])
    events.run_until(12 * MS)
    assert gpu.device.others(2) == [], "beside the next one for 1 ms at most"
    assert gpu.members[1].off_ns > 0
    events.run_until(90 * MS)
    gpu.settle()
    assert gpu.members[1].nr_kernels == 1
    assert gpu.members[1].used_ns == pytest.approx(40 * MS, abs=MS)


def test_a_kernel_that_is_about_to_end_is_let_end() -> None:
    events, gpu = gpu_of_two(is_preemptive=True)
    gpu.submit(1, [15 * MS])
    gpu.submit(2, 100 * [MS])
    events.run_until(16 * MS)
    assert gpu.members[1].nr_kernels == 1
    assert len(gpu.members[1].waits_ns) == 1


def test_a_turn_is_given_up_for_one_that_slept() -> None:
    """An eighth of the slice is had by then: on a device where kernels can be taken off, and on no other."""
    for is_preemptive in (False, True):
        events, gpu = gpu_of_two(is_preemptive)
        gpu.submit(1, 100 * [MS // 10])
        events.run_until(MS)
        gpu.submit(2, [MS // 10])
        events.run_until(3 * MS)
        assert (gpu.members[2].nr_kernels == 1) is is_preemptive
