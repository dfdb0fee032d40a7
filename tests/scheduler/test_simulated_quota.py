"""Turns by bursts in simulation: whole bursts, as the daemon gives them."""

from dataclasses import replace

import pytest

from scheduler.first_come import FirstCome
from scheduler.policy import Standing
from scheduler.quota import LOOK_NS
from scheduler.simulator.budgets import Budgets
from scheduler.simulator.events import Events
from scheduler.simulator.gpu import Gpu
from scheduler.simulator.member import Member
from scheduler.simulator.report import Report
from scheduler.simulator.settings import PREEMPTIVE_SLICE_NS, Settings, VgpuSpec
from scheduler.simulator.simulation import simulate
from scheduler.simulator.workloads import find_workload

MS = 1_000_000
SECOND_NS = 1000 * MS
THREE = "requests-6x6ms-90ms,requests-8x8ms-160ms,requests-6x13ms-195ms"


def report_of(workloads: str, quota: str, **others: object) -> Report:
    vgpus = tuple(VgpuSpec(1, find_workload(name)) for name in workloads.split(","))
    return simulate(Settings("elastic", vgpus, duration_ns=40 * SECOND_NS, quota=quota, **others))  # type: ignore[arg-type]


def turns_of_a_request(report: Report) -> list[float]:
    return [vgpu.nr_turns / vgpu.nr_answered for vgpu in report.vgpus]


def test_a_request_has_one_turn() -> None:
    bursts, slices = (report_of(THREE, quota) for quota in ("bursts", "slice"))
    assert turns_of_a_request(bursts) == pytest.approx([1, 1, 1], abs=0.1)
    assert min(turns_of_a_request(slices)) > 2
    assert [vgpu.turn_ns / MS for vgpu in bursts.vgpus] == pytest.approx([36, 64, 78], rel=0.1), "slices at first"
    assert {vgpu.turn_ns for vgpu in slices.vgpus} == {6 * MS}
    assert sum(vgpu.answer_ns for vgpu in bursts.vgpus) < sum(vgpu.answer_ns for vgpu in slices.vgpus)
    per_turn_ns = [
        sum(vgpu.overuse_ns for vgpu in of.vgpus) / sum(vgpu.nr_turns for vgpu in of.vgpus) for of in (bursts, slices)
    ]
    assert per_turn_ns[0] < per_turn_ns[1] / 5


def test_a_request_that_varies_has_hardly_more_than_one() -> None:
    """Where a device preempts, most of the time nobody hurries for one that answers a request that is as long: also where no two are alike."""
    workloads = [replace(find_workload(name), variation=0.3) for name in THREE.replace("requests", "random").split(",")]
    vgpus = tuple(VgpuSpec(1, workload) for workload in workloads)
    report = simulate(
        Settings(
            "elastic",
            vgpus,
            duration_ns=100 * SECOND_NS,
            quota="bursts",
            is_preemptive=True,
            slice_ns=PREEMPTIVE_SLICE_NS,
        )
    )
    assert max(turns_of_a_request(report)) < 1.15


def test_as_many_bursts_as_fit_a_slice() -> None:
    report = report_of("random-2x2ms-20ms,kernel-5ms", "bursts", slice_ns=30 * MS)
    assert report.vgpus[0].turn_ns == pytest.approx(29.4 * MS, rel=0.02)
    assert report.vgpus[1].turn_ns == 30 * MS, "it never pauses"


def test_bursts_that_are_too_long_keep_the_slice() -> None:
    report = report_of("requests-6x6ms-90ms,requests-2x5ms-90ms", "bursts", quota_max_ns=20 * MS)
    assert report.vgpus[0].turn_ns == 6 * MS
    assert report.vgpus[1].turn_ns == pytest.approx(10 * MS, rel=0.05)


def test_shares_stay() -> None:
    vgpus = tuple(VgpuSpec(weight, find_workload("requests-6x6ms-1ms")) for weight in (1, 3))
    report = simulate(Settings("elastic", vgpus, duration_ns=20 * SECOND_NS, quota="bursts"))
    assert [vgpu.share for vgpu in report.vgpus] == pytest.approx([0.25, 0.75], rel=0.04)


def test_one_burst_more_is_learnt_once_at_the_next_look() -> None:
    budgets, member = Budgets(6 * MS, 100 * MS), Member(lambda: None)
    found_ns = list[int | None]()
    for look, used_ms in enumerate((0, 10, 20, 0, 0)):
        if used_ms:
            member.used_ns += used_ms * MS
            member.run_dry((1 + look) * SECOND_NS)
            member.goes_on((1 + look) * SECOND_NS + 100 * MS, 0)
            assert budgets.of(1, {1: member}, look * LOOK_NS - 1) == found_ns[-1]
        found_ns.append(budgets.of(1, {1: member}, look * LOOK_NS))
    assert found_ns == [None, *(quota_ns + quota_ns // 20 for quota_ns in (10 * MS, 15 * MS, 15 * MS, 15 * MS))]


class Brief(FirstCome):
    """Says how long turns of vGPU 1 last, and nothing of the other's."""

    def standing(self, vgpu: int, now_ns: int) -> Standing:
        return super().standing(vgpu, now_ns)._replace(budget_ns=7 * MS if vgpu == 1 else None)


def test_a_policy_that_says_how_long_turns_last_goes_first() -> None:
    events = Events()
    gpu = Gpu(events, Brief(), Settings("", (), quota="bursts", handover_ns=0))

    def submit() -> None:
        for vgpu in (1, 2):
            gpu.submit(vgpu, [10 * MS])

    for vgpu in (1, 2):
        gpu.join(vgpu, 1, lambda: None)
    for nr in range(5):
        events.after(nr * LOOK_NS, submit)
    events.run_until(6 * LOOK_NS)
    budgets_ns = [gpu.members[vgpu].budgets_ns for vgpu in (1, 2)]
    assert budgets_ns == [5 * 7 * MS, 2 * 6 * MS + 3 * 10.5 * MS], "slices, until a burst has ended and been looked at"
