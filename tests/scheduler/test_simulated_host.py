"""A host of several devices in simulation: programs that arrive and end, what they want, moves, power, and the command."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.balance import BALANCE, COMPACT, OFF
from scheduler.fair import FairQueuing
from scheduler.placement import demands
from scheduler.simulator.command import main
from scheduler.simulator.events import Events
from scheduler.simulator.host.equals import EAGER, LEAST_NS, Equals
from scheduler.simulator.host.host import Host, alone_ns, simulate_host
from scheduler.simulator.host.leaving import OpenGpu
from scheduler.simulator.host.programs import GIB, PROGRAMS, Program
from scheduler.simulator.host.report import HostReport, jain
from scheduler.simulator.host.settings import HostSettings, MoveCosts, Power
from scheduler.simulator.settings import PREEMPTIVE_SLICE_NS, Settings

MS = 1_000_000
S = 1_000_000_000


def of(demand: float, seconds: float = 6, gib: float = 1, **more: Any) -> Program:
    return Program(
        f"{demand:g} for {seconds:g} s", demand, round(seconds * S), round(gib * GIB), starts_ns=100 * MS, **more
    )


def simulated(*programs: Program, interval_s: float = 0.01, **more: Any) -> HostReport:
    settings = HostSettings(programs, round(interval_s * S), **{"nr_gpus": 2, **more})
    return simulate_host(settings)


def alone(program: Program) -> int:
    return alone_ns(program, 0, True, PREEMPTIVE_SLICE_NS)


def test_twenty_programs_of_half_a_minute() -> None:
    """As the docs have it."""
    assert len(PROGRAMS) == 20
    assert all(20 * S <= program.alone_ns <= 40 * S for program in PROGRAMS.values())
    assert sum(program.demand for program in PROGRAMS.values()) / 20 == pytest.approx(0.55, abs=0.005)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_alone_takes_and_wants_what_its_table_says(program: Program) -> None:
    host = Host(HostSettings((program,), 1, nr_gpus=1))
    host.run(lambda done: None)
    [job] = host._jobs
    assert job.ended_ns == pytest.approx(program.alone_ns, rel=0.12)
    assert job.demand() == pytest.approx(program.demand, rel=0.1, abs=0.005)
    [device] = host.report(alone).devices
    assert device.busy_ns == pytest.approx(program.demand * (program.alone_ns - program.starts_ns), rel=0.05)
    assert device.over_ns == 0


def test_demand_is_the_same_beside_others() -> None:
    """Who waits for turns does not want less."""
    host = Host(HostSettings((of(0.5), of(0.5), of(1.0)), MS, nr_gpus=1))
    host.run(lambda done: None)
    assert [job.demand() for job in host._jobs] == pytest.approx([0.5, 0.5, 1.0], rel=0.1)


@pytest.mark.parametrize("mode", [OFF, BALANCE, COMPACT])
def test_the_same_settings_give_the_same_report_and_nothing_is_lost(mode: str) -> None:
    programs = (of(0.9), of(0.5, 4), of(0.6, gib=20), of(0.2), of(1.0, 3), of(0.3), of(0.05))
    report = simulated(*programs, interval_s=0.7, balance=mode)
    assert report == simulated(*programs, interval_s=0.7, balance=mode)
    assert [job.program for job in report.jobs] == [program.name for program in programs]
    assert all(job.slowdown > 0.97 for job in report.jobs)
    for device in report.devices:
        assert device.low_ns + device.middle_ns + device.over_ns == report.duration_ns
        assert 0 <= device.empty_ns <= device.low_ns
        assert device.busy_ns <= report.duration_ns - device.empty_ns
    work_ns = sum(device.busy_ns for device in report.devices)
    wanted_ns = sum(program.demand * (program.alone_ns - program.starts_ns) for program in programs)
    assert work_ns == pytest.approx(wanted_ns, rel=0.05), "each kernel was carried out once"
    if mode == OFF:
        assert report.moves == ()
        assert all(len(job.devices) == 1 for job in report.jobs)


def test_a_program_goes_where_least_is_wanted_once_that_is_known() -> None:
    report = simulated(of(0.9, 9), of(0.2, 9), of(0.1, 3), of(0.3, 3), interval_s=2)
    assert [job.devices for job in report.jobs] == [(0,), (1,), (1,), (1,)]


def test_before_anything_is_known_programs_are_spread() -> None:
    report = simulated(*(of(0.1, 3) for _ in range(4)))
    assert [job.devices for job in report.jobs] == [(0,), (1,), (0,), (1,)]


def test_overload_moves_and_gains() -> None:
    """Two on each of two devices; those on one end, and one of those on the other goes there."""
    programs = (of(0.9, 8), of(0.35, 2), of(0.6, 8), of(0.35, 2))
    before, after = (simulated(*programs, balance=mode) for mode in (OFF, BALANCE))
    assert [job.devices for job in before.jobs] == [(0,), (1,), (0,), (1,)]
    assert [job.devices for job in after.jobs] == [(0, 1), (1,), (0,), (1,)]
    [move] = after.moves
    assert "balance: 0 (" in move.told
    assert after.overloaded < 0.4 * before.overloaded
    assert after.utilisation > before.utilisation
    assert after.mean_slowdown < before.mean_slowdown
    assert after.unharmed >= before.unharmed
    assert after.figures()["nr_moves"] == 1


def test_a_move_takes_its_pause_and_the_rest_of_a_kernel() -> None:
    costs = MoveCosts(pause_ns=50 * MS, rate=1.0, ahead_ns=300 * MS, ahead_rate=1.0)
    programs = (of(0.9, 8, gib=0.1), of(0.35, 2, gib=0.1), of(0.6, 8, gib=0.1), of(0.35, 2, gib=0.1))
    report = simulated(*programs, balance=BALANCE, costs=costs)
    [move] = report.moves
    planned_ns = 50 * MS + round(0.1 * GIB)
    assert report.jobs[0].away_ns == planned_ns
    assert move.pause_ns is not None
    assert planned_ns <= move.pause_ns < planned_ns + 50 * MS
    slow = simulated(*programs, balance=BALANCE, costs=replace(costs, pause_ns=6 * S))
    assert slow.moves == (), "ten times that is more than it gains"


def test_a_program_that_ends_while_it_is_copied_ahead_ends_where_it_is() -> None:
    costs = MoveCosts(ahead_ns=100 * S)
    report = simulated(of(0.9, 5), of(0.35, 2), of(0.6, 5), of(0.35, 2), balance=BALANCE, costs=costs)
    [move] = report.moves
    assert move.pause_ns is None
    assert report.jobs[0].devices == (0,)
    assert report.jobs[0].away_ns == 0


def test_memory_and_requests_decide_and_who_fits_nowhere_waits() -> None:
    programs = (of(0.1, 3, gib=50), of(0.1, 6, gib=50), of(0.1, 2, gib=40), of(0.1, 2, gib=10))
    report = simulated(*programs, memory=80 * GIB)
    assert [job.devices for job in report.jobs[:3]] == [(0,), (1,), (0,)]
    assert report.jobs[2].waited_ns == pytest.approx(3 * S, rel=0.05)
    assert report.jobs[3].waited_ns > 0, "they wait in their order"
    asking = simulated(*(of(0.1, 3, request=60.0) for _ in range(3)))
    assert [job.devices for job in asking.jobs] == [(0,), (1,), (0,)]
    assert asking.jobs[2].waited_ns > 2 * S


def test_compact_leaves_a_device_without_vgpus_and_takes_less_energy() -> None:
    programs = (of(0.2, 8), of(0.3, 8))
    apart, joined = (simulated(*programs, balance=mode) for mode in (BALANCE, COMPACT))
    assert [job.devices for job in joined.jobs] == [(0, 1), (1,)]
    assert joined.devices[0].empty_ns > 0.8 * joined.duration_ns
    assert joined.joules < apart.joules
    assert joined.mean_slowdown < 1.2


def test_watts_by_hand() -> None:
    power = Power(idle=50, awake=100, busy=400)
    assert power.joules(empty_ns=2 * S, there_ns=4 * S, busy_ns=S) == 2 * 50 + 3 * 100 + 400
    report = simulated(of(0.5), nr_gpus=1, power=power)
    [device] = report.devices
    there_ns = report.duration_ns - device.empty_ns
    assert device.joules == pytest.approx((50 * device.empty_ns + 100 * there_ns + 300 * device.busy_ns) / S)
    assert report.joules == device.joules


def test_programs_that_want_all_of_a_device_get_equal_parts() -> None:
    report = simulated(of(1.0), of(1.0), of(0.3), nr_gpus=1)
    assert report.equals is not None
    assert report.equals > 0.99
    assert simulated(of(0.5), of(0.4), nr_gpus=1).equals is None


def test_stretches_count_by_their_length() -> None:
    host = Host(HostSettings((of(1.0), of(1.0)), MS, nr_gpus=1))
    host.run(lambda done: None)
    for job in host._jobs:
        job.ended_ns = None  # they want all again
    equals, (one, other) = Equals(), host._jobs
    assert one.wants == other.wants == 1.0 >= EAGER
    for length_ns, used in ((2 * LEAST_NS, (0, 2)), (6 * LEAST_NS, (1, 1)), (LEAST_NS - 1, (0, 1))):
        equals.begin(0, host._jobs, 0)
        for job, nr_ns in zip(host._jobs, used, strict=True):
            job._used_before_ns += nr_ns
        equals.end(0, length_ns)
    assert equals.index == (2 * 0.5 + 6 * 1.0) / 8


@pytest.mark.parametrize(("values", "index"), [((1, 1, 1), 1), ((1, 0, 0, 0), 0.25), ((2, 1), 0.9), ((0, 0), 1)])
def test_jains_index_by_hand(values: Sequence[float], index: float) -> None:
    assert jain(values) == pytest.approx(index)


def test_of_an_unknown_one_the_mean_of_all_is_taken() -> None:
    assert demands({0: [0.5, None], 1: [0.1], 2: []}) == pytest.approx({0: 0.8, 1: 0.1, 2: 0.0})
    assert demands({0: [None], 1: []}) == {0: None, 1: 0.0}


class Leaving:
    """A Gpu with two vGPUs that have kernels of 10 ms."""

    def __init__(self) -> None:
        self.events, self.done = Events(), [0, 0]
        self.gpu = OpenGpu(self.events, FairQueuing(), Settings("fair", ()))
        for vgpu in range(2):
            self.gpu.join(vgpu, 1, lambda vgpu=vgpu: self.count(vgpu))  # type: ignore[misc]

    def count(self, vgpu: int) -> None:
        self.done[vgpu] += 1


def test_a_holder_that_leaves_gives_way() -> None:
    there = Leaving()
    there.gpu.submit(0, [10 * MS] * 3)
    there.gpu.submit(1, [10 * MS])
    there.events.run_until(5 * MS)
    assert there.gpu.recall(0) == (10 * MS, 10 * MS)
    assert not there.gpu.is_clear_of(0), "a kernel is on the device"
    there.events.run_until(10_200_000)
    assert there.gpu.is_clear_of(0)
    assert there.gpu.leave(0).used_ns == 10 * MS
    there.events.run_until(30 * MS)
    assert there.done == [1, 1]
    there.gpu.join(0, 1, lambda: there.count(0))
    there.gpu.submit(0, [10 * MS])
    there.events.run_until(60 * MS)
    assert there.done == [2, 1], "it comes back as a new one"


def test_one_that_waits_leaves_at_once() -> None:
    there = Leaving()
    there.gpu.submit(0, [10 * MS])
    there.gpu.submit(1, [10 * MS] * 2)
    there.events.run_until(5 * MS)
    assert there.gpu.recall(1) == (10 * MS, 10 * MS)
    assert there.gpu.leave(1).used_ns == 0
    there.events.run_until(50 * MS)
    assert there.done == [1, 0]


def test_one_that_is_switched_to_leaves() -> None:
    """The change of context ends, and whoever waits is next."""
    there = Leaving()
    there.gpu.submit(0, [10 * MS])
    there.events.run_until(1000)
    there.gpu.submit(1, [10 * MS])
    assert there.gpu.recall(0) == (10 * MS,)
    there.gpu.leave(0)
    there.events.run_until(50 * MS)
    assert there.done == [0, 1]
    assert there.gpu.nr_handovers == 2


def test_one_that_is_recalled_while_it_is_switched_to_may_go_on() -> None:
    there = Leaving()
    there.gpu.submit(0, [10 * MS])
    there.events.run_until(1000)
    there.gpu.recall(0)
    there.events.run_until(S)
    assert there.done == [0, 0]
    there.gpu.submit(0, [10 * MS])
    there.events.run_until(2 * S)
    assert there.done == [1, 0]


SHORT = ("--arrivals", "0.5", "--programs", "nw,hotspot,matrixMul", "--gpus", "2")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "orders.json"
    assert main([*SHORT, "--balance", "off,compact", "--orders", "2", "--json", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "2 GPUs, 3 programs; means of 2 orders" in printed
    assert max(map(len, printed.splitlines())) <= 80
    runs = json.loads(path.read_text())
    assert [(run["order"], run["balance"]) for run in runs] == [(0, "off"), (0, "compact"), (1, "off"), (1, "compact")]
    assert all(sorted(run["programs"]) == ["hotspot", "matrixMul", "nw"] for run in runs)
    assert runs[0]["figures"]["nr_moves"] == len(runs[0]["moves"]) == 0
    assert len(runs[1]["devices"]) == 2
    assert len(runs[1]["jobs"]) == 3


def test_one_order_has_its_moves(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHORT, "--balance", "compact"]) == 0
    assert "balance: 0 (" in capsys.readouterr().out


def test_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "orders.png"
    assert main([*SHORT, "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert main([*SHORT, "--plot", str(tmp_path / "orders.nothing")]) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--vgpus", "1:2"], "--vgpus does not go with --arrivals"),
        (["--seconds", "3"], "--seconds does not go with --arrivals"),
        (["--keep-turns"], "--keep-turns does not go with --arrivals"),
        (["--preemptive"], "--preemptive does not go with --arrivals"),
        (["--quota-max-ms", "20"], "--quota-max-ms does not go with --arrivals"),
        (["--policy", "fair,elastic"], "--arrivals goes with one --policy"),
        (["--gpu-gib", "20"], "--gpu-gib: alexnet wants 24 GiB, and would wait for ever"),
        (["--gpus", "65"], "--gpus: 64 at most go with --arrivals"),
        (["--balance", "evenly"], "there is no 'evenly'; there are: off, balance, compact"),
        (["--programs", "doom"], "no program is called 'doom'; there are: BlackScholes"),
        (["--watts", "70:50:400"], "watts rise"),
        (["--watts", "70:400"], "is not three numbers"),
        (["--orders", "0"], "no whole number above 0"),
        (["--arrivals", "0"], "no number above 0"),
    ],
)
def test_wrong_command_lines_with_arrivals(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--arrivals", "5", *arguments])
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("--balance", "compact"), ("--orders", "2"), ("--watts", "1:2:3"), ("--pause-ms", "9")]
)
def test_what_is_of_arrivals_alone(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*words, "--seconds", "0.1"])
    assert f"{words[0]} goes with --arrivals" in capsys.readouterr().err
