"""The simulator's parts against what can be reckoned by hand: clock, device, core, workloads, fair shares."""

import itertools
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.first_come import FirstCome
from scheduler.policy import Standing
from scheduler.simulator.device import Device
from scheduler.simulator.events import Events
from scheduler.simulator.gpu import Gpu
from scheduler.simulator.processor import UNBOUNDED_NS, Core
from scheduler.simulator.report import fair_shares, min_max_ratio, percentile
from scheduler.simulator.settings import Settings
from scheduler.simulator.simulation import place
from scheduler.simulator.workloads import WORKLOADS, Launch, UnknownWorkloadError, Workload, find_workload, program

MS = 1_000_000


def test_events_happen_in_order_and_cancelled_ones_do_not() -> None:
    events, happened = Events(), list[tuple[int, str]]()

    def note(name: str) -> None:
        happened.append((events.now_ns, name))

    events.after(20, lambda: note("late"))
    events.after(10, lambda: note("first"))
    events.after(10, lambda: note("second"))
    events.after(5, lambda: note("never")).cancel()
    events.after(30, lambda: note("outside"))
    events.run_until(30)
    assert happened == [(10, "first"), (10, "second"), (20, "late")]
    assert events.now_ns == 30


def test_a_device_alone_and_shared() -> None:
    """Alone 10 ms take 10 ms. Two kernels of 10 ms, 8 % lost: each has got half of every ms, and done 46 % of it."""
    events, done = Events(), list[tuple[int, int]]()
    device = Device(events, 8, lambda vgpu: done.append((events.now_ns, vgpu)))
    device.start(1, 10 * MS)
    events.run_until(20 * MS)
    assert done == [(10 * MS, 1)]
    assert device.take_used() == {1: 10 * MS}
    device.start(1, 10 * MS)
    events.run_until(25 * MS)
    device.start(2, 46 * MS)
    assert device.take_used() == {1: 5 * MS}
    events.run_until(200 * MS)
    first_ns = 25 * MS + 5 * MS * 200 // 92
    assert done[1][0] == pytest.approx(first_ns, abs=2)
    assert done[2][0] == pytest.approx(first_ns + 41 * MS, abs=4)
    used = device.take_used()
    assert used[1] == pytest.approx(5 * MS * 100 / 92, abs=2)
    assert used[2] == pytest.approx(5 * MS * 100 / 92 + 41 * MS, abs=4)
    assert device.busy_ns == pytest.approx(10 * MS + 5 * MS + used[1] + used[2], abs=4)
    assert not device.is_busy(2)


class Told(FirstCome):
    """Keeps who was said to be backlogged. vGPU 2's turns last longer than a slice."""

    def __init__(self) -> None:
        super().__init__()
        self.backlogged_ones: list[int] = []

    def backlogged(self, vgpu: int, now_ns: int) -> None:
        self.backlogged_ones.append(vgpu)
        super().backlogged(vgpu, now_ns)

    def standing(self, vgpu: int, now_ns: int) -> Standing:
        return super().standing(vgpu, now_ns)._replace(budget_ns=8 * MS // 10 if vgpu == 2 else None)


def test_kernels_that_end_together_queue_each_vgpu_once() -> None:
    """vGPU 1's kernel outlives its slice, and ends at the end of vGPU 2's turn, as vGPU 2's own does."""
    events, policy = Events(), Told()
    settings = Settings("", (), is_preemptive=True, slice_ns=6 * MS // 10, handover_ns=0, sharing_loss_percent=0)
    gpu = Gpu(events, policy, settings)
    for vgpu, kernels_ns in ((1, [MS, MS]), (2, [4 * MS // 10, MS])):
        gpu.join(vgpu, 1, lambda: None)
        gpu.submit(vgpu, kernels_ns)
    events.run_until(14 * MS // 10)
    assert policy.backlogged_ones == [1, 2]
    events.run_until(14 * MS // 10 + 1)
    assert policy.backlogged_ones == [1, 2, 1, 2]


class Patient(FirstCome):
    """Lets one vGPU's turns last longer than a slice."""

    def standing(self, vgpu: int, now_ns: int) -> Standing:
        return super().standing(vgpu, now_ns)._replace(budget_ns=30 * MS if vgpu == 2 else None)


def test_a_turn_lasts_as_long_as_the_policy_says() -> None:
    events = Events()
    gpu = Gpu(events, Patient(), Settings("", (), slice_ns=10 * MS, handover_ns=0))
    for vgpu in (1, 2):
        gpu.join(vgpu, 1, lambda: None)
        gpu.submit(vgpu, 100 * [MS])
    used = []
    for turn_ends_ns in (10 * MS, 40 * MS, 50 * MS, 80 * MS):
        events.run_until(turn_ends_ns)
        gpu.settle()
        used.append((gpu.members[1].used_ns, gpu.members[2].used_ns))
    assert used == [(10 * MS, 0), (10 * MS, 30 * MS), (20 * MS, 30 * MS), (20 * MS, 60 * MS)]


def test_what_is_taken_off_the_device_goes_on_later() -> None:
    events, done = Events(), list[tuple[int, int]]()
    device = Device(events, 8, lambda vgpu: done.append((events.now_ns, vgpu)))
    device.start(1, 10 * MS)
    device.start(2, 100 * MS)
    assert device.others(2) == [1]
    assert device.take_off(2) == 100 * MS
    events.run_until(4 * MS)
    assert device.left_ns(1) == 6 * MS
    assert device.take_off(1) == 6 * MS
    events.run_until(9 * MS)
    assert done == []
    assert device.take_used() == {1: 4 * MS}
    device.start(1, 6 * MS)
    events.run_until(20 * MS)
    assert done == [(15 * MS, 1)]


def test_a_core_shares_by_weight() -> None:
    events = Events()
    core = Core(events, 3 * MS, 0, None)
    used = {1: 0, 2: 0}
    for vgpu, weight in ((1, 1), (2, 3)):
        core.add(vgpu, weight)

        def work(vgpu: int = vgpu) -> None:
            used[vgpu] += MS // 10
            core.run(vgpu, MS // 10, lambda: work(vgpu))

        core.run(vgpu, MS // 10, work)
    events.run_until(1000 * MS)
    assert used[2] / used[1] == pytest.approx(3, rel=0.03)
    assert sum(used.values()) == pytest.approx(1000 * MS, rel=0.01)


def test_a_core_says_who_is_on_it_and_one_that_wakes_gets_it_soon() -> None:
    events, told = Events(), list[tuple[int, int, bool]]()
    core = Core(events, 3 * MS, 0, lambda vgpu, is_on: told.append((events.now_ns, vgpu, is_on)))
    for vgpu in (1, 2):
        core.add(vgpu, 1)
    core.run(1, UNBOUNDED_NS, lambda: None)
    events.run_until(50 * MS)
    core.run(2, MS, lambda: None)
    events.run_until(60 * MS)
    assert told[0] == (0, 1, True)
    assert told[1][1:] == (1, False)
    assert told[2][1:] == (2, True)
    assert told[2][0] <= 54 * MS
    assert told[3:] == [(told[2][0] + MS, 2, False), (told[2][0] + MS, 1, True)]
    assert core.is_awake(1)
    assert not core.is_awake(2)


def test_the_table_of_the_paper() -> None:
    """Interactive as the paper says, with more than 10 waits in 10 ms (section 3.2.3), except where it counts calls that are no waits for
    kernels: heartwall."""
    interactive = {name for name, workload in WORKLOADS.items() if workload.cycle_ns * 10 < 10 * MS}
    assert interactive == {"cfd", "srd1", "bs", "cs", "hg", "scan"}
    assert WORKLOADS["mm"].kernel_ns == 207_000
    assert WORKLOADS["bs"].nr_launches == 1
    assert WORKLOADS["mm"].nr_launches == 1000
    assert WORKLOADS["mm-sleep80"].sleep_ns == pytest.approx(4 * 20 * WORKLOADS["mm"].launch_ns, abs=4)


def test_kernels_have_the_length_and_the_spread_they_should_have() -> None:
    workload = Workload("test", 200_000, variation=0.5)
    steps = itertools.islice(program(workload, random.Random(1)), 4000)
    lengths = [length for step in steps if isinstance(step, Launch) for length in step.kernels_ns]
    assert statistics.mean(lengths) == pytest.approx(200_000, rel=0.02)
    assert statistics.stdev(lengths) / 200_000 == pytest.approx(0.5, rel=0.05)


def test_workloads_by_name() -> None:
    assert find_workload("BS") is WORKLOADS["bs"]
    assert find_workload("kernel-50us").kernel_ns == 50_000
    assert find_workload("sync-5ms").nr_launches == 1
    requests = find_workload("Requests-6x6ms-90ms")
    assert (requests.nr_launches, requests.kernel_ns, requests.sleep_ns) == (6, 6 * MS, 90 * MS)
    assert find_workload("random-6x6ms-90us").sleep_ns == 90_000
    assert find_workload("poisson-6x6ms-126ms").interval_ns == 126 * MS
    wrong = ("foo", "kernel-0us", "kernel-5s", "kernel-us", "requests-6x6ms", "requests-0x6ms-9ms", "poisson-6x6ms-0ms")
    for name in wrong:
        with pytest.raises(UnknownWorkloadError, match="srd1"):
            find_workload(name)


def test_fair_shares_by_hand() -> None:
    assert fair_shares([1, 2, 3], [1, 1, 1]) == pytest.approx([1 / 6, 2 / 6, 3 / 6])
    assert fair_shares([1, 1, 2], [0.1, 1, 1]) == pytest.approx([0.1, 0.3, 0.6])
    assert fair_shares([1, 9], [0.2, 0.3]) == pytest.approx([0.2, 0.3])
    assert fair_shares([], []) == []


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0, 1)), min_size=1, max_size=8))
def test_fair_shares_use_the_device_and_exceed_no_demand(kinds: list[tuple[int, float]]) -> None:
    demands = [demand for _, demand in kinds]
    shares = fair_shares([weight for weight, _ in kinds], demands)
    assert sum(shares) == pytest.approx(min(1, sum(demands)))
    assert all(share <= demand + 1e-12 for share, demand in zip(shares, demands, strict=True))


def test_ratios_and_percentiles() -> None:
    assert min_max_ratio([0.5, 1.0, 0.8]) == 0.5
    assert min_max_ratio([0.0, 0.0]) == 0.0
    assert [percentile(range(1, 101), percent) for percent in (50, 99, 100)] == [50, 99, 100]
    assert percentile([], 50) == 0


def test_placement_evens_out_weights() -> None:
    assert place([1, 2, 3, 4], 2) == [0, 1, 1, 0]
    places = place([1 + i % 4 for i in range(1000)], 7)
    load = [sum(1 + i % 4 for i in range(1000) if places[i] == gpu) for gpu in range(7)]
    assert max(load) - min(load) <= 4
