"""What a program would use alone, from what its worker counts: beside others as without them, and whatever a worker writes."""

import time
from collections.abc import Iterator

import pytest
from backend_host.worker._worker import lib
from hypothesis import given
from hypothesis import strategies as st

from backend_host.device.control import ControlPage
from backend_host.device.demand import LEAST_NS, WINDOW_NS, Demand, Monitor, total
from backend_host.device.readings import WantReading
from tests.backend_host.grantees import attach

LOOK_NS = 100_000_000
MS = 1_000_000
WORD = (1 << 64) - 1


class Program:
    """One that runs bursts and pauses, and gets the device for so much of the time that it wants it for."""

    def __init__(self, slot: int = 0, vgpu: int = 0, pid: int = 7) -> None:
        self.slot, self.vgpu, self.pid = slot, vgpu, pid
        self.gpu_ns = self.busy_ns = self.waited_ns = 0
        self.waits = False

    def reading(self) -> WantReading:
        return WantReading(self.slot, self.vgpu, self.pid, self.waits, self.gpu_ns, self.busy_ns, self.waited_ns)


def watched(demand: Demand, rounds: int, step: dict[str, int], program: Program, now_ns: int = 0) -> int:
    """A look after each round, in which the program's counters grew by `step`; gives the time after them."""
    for _ in range(rounds):
        demand.look(now_ns, [program.reading()])
        now_ns += LOOK_NS
        for name, ns in step.items():
            setattr(program, name, getattr(program, name) + ns)
    demand.look(now_ns, [program.reading()])
    return now_ns


@pytest.mark.parametrize(
    ("step", "demand"),
    [
        ({"gpu_ns": 60 * MS, "busy_ns": 60 * MS}, 0.6),
        ({"gpu_ns": 30 * MS, "busy_ns": 30 * MS, "waited_ns": 50 * MS}, 0.6),
        ({"gpu_ns": 30 * MS, "busy_ns": 80 * MS}, 0.6),
        ({"gpu_ns": 100 * MS, "busy_ns": 100 * MS}, 1.0),
        ({"gpu_ns": 5 * MS, "busy_ns": 5 * MS, "waited_ns": 95 * MS}, 1.0),
        ({}, 0.0),
    ],
    ids=["alone", "waits for turns", "beside others' work", "all of it", "hardly ever", "idle"],
)
def test_it_is_what_it_would_use_alone(step: dict[str, int], demand: float) -> None:
    program, watch = Program(), Demand()
    watched(watch, 400, step, program)
    assert watch.of_program(0, 7) == pytest.approx(demand)
    assert watch.of_vgpus() == {0: pytest.approx(demand)}


def test_a_wait_that_goes_on_is_no_pause() -> None:
    """It is counted when it is over, and the one behind it begins anew."""
    program, watch = Program(), Demand()
    now_ns = watched(watch, 100, {"gpu_ns": 50 * MS, "busy_ns": 50 * MS}, program)
    program.waits = True
    now_ns = watched(watch, 100, {}, program, now_ns)
    assert watch.of_program(0, 7) == pytest.approx(0.5, abs=0.01)
    program.waited_ns += 100 * LOOK_NS
    watch.look(now_ns, [program.reading()])
    assert watch.of_program(0, 7) == pytest.approx(0.5, abs=0.01)
    watched(watch, 100, {}, program, now_ns)
    assert watch.of_program(0, 7) == pytest.approx(0.5, abs=0.01)


def test_what_was_longer_ago_than_a_minute_is_forgotten() -> None:
    program, watch = Program(), Demand()
    now_ns = watched(watch, 700, {"gpu_ns": LOOK_NS, "busy_ns": LOOK_NS}, program)
    watched(watch, 2 * WINDOW_NS // LOOK_NS, {}, program, now_ns)
    assert watch.of_program(0, 7) == 0.0


def test_it_is_not_known_before_a_second_of_bursts_and_pauses() -> None:
    program, watch = Program(), Demand()
    now_ns = watched(watch, 50, {"waited_ns": LOOK_NS}, program)
    assert watch.of_program(0, 7) is None
    assert watch.of_vgpus() == {0: None}
    now_ns = watched(watch, LEAST_NS // LOOK_NS - 1, {}, program, now_ns)
    assert watch.of_program(0, 7) is None
    watched(watch, 1, {}, program, now_ns)
    assert watch.of_program(0, 7) == 0.0


def test_another_program_in_the_same_place_begins_anew() -> None:
    watch = Demand()
    watched(watch, 100, {"gpu_ns": LOOK_NS, "busy_ns": LOOK_NS}, Program())
    now_ns = watched(watch, 5, {}, Program(pid=8), 100 * LOOK_NS)
    assert watch.of_program(0, 7) is None
    assert watch.of_program(0, 8) is None
    watch.look(now_ns, [])
    assert watch.of_vgpus() == {}


def test_a_vgpu_wants_what_its_programs_want_together() -> None:
    watch, programs = Demand(), [Program(0, 0), Program(1, 0), Program(2, 5)]
    for number in range(100):
        watch.look(number * LOOK_NS, [program.reading() for program in programs])
        for program, ns in zip(programs, (100 * MS, 60 * MS, 20 * MS), strict=True):
            program.gpu_ns += ns
            program.busy_ns += ns
    assert watch.of_vgpus() == {0: pytest.approx(1.6, abs=0.01), 5: pytest.approx(0.2, abs=0.01)}


@pytest.mark.parametrize(
    ("demands", "sum_"), [([], 0.0), ([None], None), ([None, 0.5], 0.5), ([0.7, 0.6], pytest.approx(1.3))]
)
def test_sums_are_of_what_is_known(demands: list[float | None], sum_: float | None) -> None:
    assert total(demands) == sum_


@given(st.lists(st.tuples(*[st.integers(0, WORD)] * 3, st.booleans(), st.integers(0, 10**10)), min_size=2, max_size=20))
def test_whatever_a_worker_writes_a_demand_is_from_none_to_all(said: list[tuple[int, int, int, bool, int]]) -> None:
    watch, now_ns = Demand(), 0
    for gpu_ns, busy_ns, waited_ns, waits, passed_ns in said:
        now_ns += passed_ns
        watch.look(now_ns, [WantReading(0, 0, 7, waits, gpu_ns, busy_ns, waited_ns)])
        demand = watch.of_program(0, 7)
        assert demand is None or 0 <= demand <= 1


@pytest.fixture
def page() -> Iterator[ControlPage]:
    with ControlPage.create(6 * MS) as page:
        yield page


def test_the_page_has_what_is_needed(page: ControlPage) -> None:
    """And no more of a place than of who serves a program."""
    vgpus = [page.vgpu_take(), page.vgpu_take()]
    page.worker_take()
    (slot, runs), (other, waits) = (attach(page, vgpu) for vgpu in vgpus)
    began_ns = time.monotonic_ns()
    assert lib.fgw_grant_enter(runs, began_ns)
    assert not lib.fgw_grant_enter(waits, began_ns)
    lib.fgw_grant_charge(runs, began_ns, began_ns + 5 * MS)
    lib.fgw_grant_charge(runs, began_ns + 4 * MS, began_ns + 5 * MS)
    first, second = page.wants()
    assert (first.slot, first.vgpu, first.waits) == (slot, vgpus[0], False)
    assert (first.gpu_ns, first.busy_ns, first.waited_ns) == (5 * MS, 6 * MS, 0)
    assert (second.slot, second.vgpu, second.waits, second.gpu_ns) == (other, vgpus[1], True, 0)
    lib.fgw_grant_leave(runs, False, began_ns + 8 * MS)
    assert lib.fgw_grant_enter(waits, began_ns + 9 * MS)
    [_, second] = page.wants()
    assert (second.waits, second.waited_ns) == (False, 9 * MS)


def test_the_thread_looks_until_it_is_stopped(page: ControlPage) -> None:
    """And after a look that failed."""
    attach(page, page.vgpu_take())
    monitor = Monitor(page)
    monitor.start()
    deadline = time.monotonic() + 30
    while monitor.demand.of_vgpus() != {0: None} and time.monotonic() < deadline:
        time.sleep(0.01)
    assert monitor.demand.of_vgpus() == {0: None}
    monitor.stop()
