"""The control page: slots and accounts, and the hand-over of the grant, step by step."""

import math
import mmap
import os
import random
import threading
import time

import pytest
from backend_host.worker._worker import ffi, lib

from backend_host.device.control import MAX_VGPUS, MAX_WORKERS, ControlPage, ControlPageError, ControlPageFullError
from backend_host.device.readings import WorkerState, charges
from tests.backend_host.grantees import attach

GRANT = 1
"""Of a page's objects, the one that begins with the grant word."""
SLICE_NS = 6_000_000
MS = 1_000_000


class Player:
    """A worker's side of the grant, in this process; time is handed in."""

    def __init__(self, control: ControlPage, vgpu: int) -> None:
        self.control = control
        self.slot, self.grantee = attach(control, vgpu)

    def enter(self, now_ns: int) -> bool:
        return bool(lib.fgw_grant_enter(self.grantee, now_ns))

    def has(self) -> bool:
        """What `fgw_grant_has` says, read from outside."""
        worker, holder = self.control.worker(self.slot), self.control.holder()
        assert worker is not None
        return worker.is_user and holder.vgpu == worker.vgpu and not holder.is_closed

    def leave(self, now_ns: int, wants_more: bool = False) -> None:
        lib.fgw_grant_leave(self.grantee, wants_more, now_ns)

    def end_slice(self, now_ns: int) -> None:
        """With more to do."""
        lib.fgw_grant_close(self.grantee)
        self.leave(now_ns, wants_more=True)

    def has_newcomer(self, late_ns: int, owed_ns: int) -> bool:
        """In a look of its own."""
        outlook = ffi.new("struct fgw_outlook *", lib.fgw_outlook_take(self.grantee, time.monotonic_ns()))
        return bool(lib.fgw_outlook_has_newcomer(outlook, late_ns, owed_ns))

    def left_ns(self, now_ns: int) -> int:
        return int(lib.fgw_grant_left_ns(self.grantee, now_ns))


def test_a_page_is_checked_before_it_is_used(control: ControlPage, objects: list[int]) -> None:
    with control.for_worker(3, 0) as lent, ControlPage.open(lent, 3) as other:
        other.ring_bell()
        assert control.bell() == other.bell() == 1
    with pytest.raises(ControlPageError):
        other.bell()
    with pytest.raises(ControlPageError, match="67 objects, not 2"):
        ControlPage.open(objects[:2], 0)
    with pytest.raises(ControlPageError):
        ControlPage.open(objects, 0)
    for fd in objects:
        os.ftruncate(fd, 1 << 20)
    with pytest.raises(ControlPageError, match="not a control page of version"):
        ControlPage.open(objects, 0)


def test_slots_are_given_out_once(control: ControlPage) -> None:
    assert [control.vgpu_take() for _ in range(MAX_VGPUS)] == list(range(MAX_VGPUS))
    with pytest.raises(ControlPageFullError):
        control.vgpu_take()
    control.vgpu_free(5)
    assert control.vgpu_take(7) == 5
    reading = control.vgpu(5)
    assert reading is not None
    assert reading.quota_bytes == 7
    assert [control.worker_take() for _ in range(MAX_WORKERS)] == list(range(MAX_WORKERS))
    with pytest.raises(ControlPageFullError):
        control.worker_take()
    control.worker_free(9)
    assert control.worker(9) is None
    assert control.worker_take() == 9
    worker = control.worker(9)
    assert worker is not None
    assert worker.state is WorkerState.WARM
    with pytest.raises(ValueError, match=r"0\.\.63"):
        control.vgpu(MAX_VGPUS)
    with pytest.raises(ValueError, match=r"0\.\.255"):
        control.repair(-1)


def test_the_first_to_ask_takes_a_free_grant_and_gives_it_back(control: ControlPage) -> None:
    one = Player(control, control.vgpu_take())
    bell = control.bell()
    assert one.enter(MS)
    assert one.has()
    assert control.holder().vgpu == 0
    one.leave(2 * MS)
    assert control.holder().vgpu is None
    assert control.bell() == bell, "nobody else waits, so nobody is woken"


def test_others_wait_and_the_least_standing_gets_it(control: ControlPage) -> None:
    one, two, three = (Player(control, control.vgpu_take()) for _ in range(3))
    assert one.enter(MS)
    assert not two.enter(2 * MS)
    assert not three.enter(3 * MS)
    assert [(waiting.vgpu, waiting.waiting_since_ns) for waiting in control.backlogged()] == [(1, 2 * MS), (2, 3 * MS)]
    assert control.standing(2) == math.inf, "nothing was said yet"
    control.set_standing(1, 10.0, 0.5, charged_ns=0)
    control.set_standing(2, 9.0, 0.5, charged_ns=0)
    assert control.holder().vgpu == 0
    bell = control.bell()
    one.leave(4 * MS)
    assert control.holder().vgpu == 2
    assert control.bell() != bell
    assert not two.enter(5 * MS)
    assert three.enter(5 * MS)
    three.end_slice(6 * MS)
    assert control.holder().vgpu == 2, "it still stands before the other: the choice is the policy's"
    assert three.enter(6 * MS)
    lib.fgw_grant_charge(three.grantee, 1, 4)
    assert control.standing(2) == 10.5
    three.end_slice(7 * MS)
    assert control.holder().vgpu == 1
    assert two.enter(7 * MS)
    assert [waiting.vgpu for waiting in control.backlogged()] == [2]


def test_all_workers_of_a_vgpu_share_its_slice(control: ControlPage) -> None:
    vgpu, other = control.vgpu_take(), control.vgpu_take()
    one, two, three = Player(control, vgpu), Player(control, vgpu), Player(control, other)
    assert one.enter(MS)
    assert two.enter(MS)
    assert not three.enter(MS)
    assert control.holder().nr_users == 2
    lib.fgw_grant_close(one.grantee)
    one.leave(2 * MS, wants_more=True)
    assert control.holder().vgpu == vgpu, "the second one still has work in flight"
    assert not one.enter(2 * MS)
    two.leave(3 * MS)
    assert control.holder().vgpu == other
    assert three.enter(3 * MS)
    three.leave(4 * MS)
    assert control.holder().vgpu == vgpu
    assert one.enter(4 * MS)


def test_the_slice_ends(control: ControlPage) -> None:
    one = Player(control, control.vgpu_take())
    now_ns = time.monotonic_ns()
    assert one.enter(now_ns)
    assert one.left_ns(now_ns) == SLICE_NS
    assert one.left_ns(now_ns + MS) == SLICE_NS - MS
    assert one.left_ns(now_ns + SLICE_NS) == 0
    control.set_slice_ns(2 * SLICE_NS)
    assert one.left_ns(now_ns + SLICE_NS) == SLICE_NS
    lib.fgw_grant_close(one.grantee)
    assert one.left_ns(now_ns) == 0


def test_of_equals_who_waited_longest(control: ControlPage) -> None:
    one, two, three = (Player(control, control.vgpu_take()) for _ in range(3))
    for vgpu in range(3):
        control.set_standing(vgpu, 5.0, 0.0, charged_ns=0)
    assert one.enter(MS)
    assert not three.enter(2 * MS)
    assert not two.enter(3 * MS)
    one.end_slice(4 * MS)
    assert control.holder().vgpu == 2
    assert three.enter(5 * MS)
    three.leave(6 * MS)
    assert control.holder().vgpu == 1


def test_a_standing_counts_from_what_was_used_when_it_was_said(control: ControlPage) -> None:
    one = Player(control, control.vgpu_take())
    assert one.enter(MS)
    lib.fgw_grant_charge(one.grantee, MS, MS + 1000)
    control.set_standing(0, 7.0, 0.25, charged_ns=600)
    assert control.standing(0) == 107.0
    with pytest.raises(ValueError, match=r"0\.\.63"):
        control.set_standing(MAX_VGPUS, 0.0, 0.0, charged_ns=0)


def test_the_slice_is_renewed_for_a_holder_that_stands_first(control: ControlPage) -> None:
    one, two = (Player(control, control.vgpu_take()) for _ in range(2))
    now_ns = time.monotonic_ns()
    assert one.enter(now_ns)
    assert not two.enter(now_ns)
    control.set_standing(0, 1.0, 1.0, charged_ns=0)
    control.set_standing(1, 10.0, 1.0, charged_ns=0)
    assert lib.fgw_grant_is_first(one.grantee)
    later_ns = now_ns + SLICE_NS
    assert one.left_ns(later_ns) == 0
    assert lib.fgw_grant_renew(one.grantee, later_ns)
    assert one.left_ns(later_ns) == SLICE_NS
    lib.fgw_grant_charge_hold(one.grantee, 20)
    assert not lib.fgw_grant_is_first(one.grantee)
    assert not lib.fgw_grant_renew(one.grantee, later_ns + SLICE_NS)
    assert one.left_ns(later_ns + SLICE_NS) == 0
    one.end_slice(later_ns + SLICE_NS)
    assert control.holder().vgpu == 1
    assert not lib.fgw_grant_renew(one.grantee, later_ns + SLICE_NS), "somebody else's slice"


def test_a_newcomer_came_after_the_turn_began_and_is_owed_something(control: ControlPage) -> None:
    earlier, one, two = (Player(control, control.vgpu_take()) for _ in range(3))
    now_ns = time.monotonic_ns()
    assert one.enter(now_ns)
    control.set_standing(1, 100.0, 1.0, charged_ns=0)
    assert not one.has_newcomer(0, 0), "nobody waits"
    control.set_standing(2, 10.0, 3.0, charged_ns=0)
    assert not two.enter(now_ns + 10)
    assert one.has_newcomer(0, 0)
    assert one.has_newcomer(9, 0)
    assert not one.has_newcomer(10, 0), "the turn was not that old"
    assert one.has_newcomer(0, 29), "after 29 ns more it stands at 97"
    assert not one.has_newcomer(0, 30)
    control.set_standing(2, 100.0, 3.0, charged_ns=0)
    assert not one.has_newcomer(0, 0), "it does not stand before the holder"
    control.set_standing(0, 10.0, 1.0, charged_ns=0)
    assert not earlier.enter(now_ns - 1)
    assert not one.has_newcomer(0, 0), "who waited when the turn began is no newcomer"


def test_who_was_withdrawn_for_a_turn_is_no_newcomer_to_it(control: ControlPage) -> None:
    """Its worker looked at the clock before the grant came, and had no CPU until afterwards."""
    one, two = (Player(control, control.vgpu_take()) for _ in range(2))
    for vgpu, standing in ((0, 10.0), (1, 100.0)):
        control.set_standing(vgpu, standing, 1.0, charged_ns=0)
    before_ns = time.monotonic_ns()
    assert one.enter(before_ns)
    assert not two.enter(before_ns)
    one.leave(before_ns)
    assert two.enter(before_ns)
    since_ns = control.holder().since_ns
    assert not lib.fgw_grant_reenter(one.grantee, since_ns, since_ns)
    assert not two.has_newcomer(0, 0)


@pytest.mark.parametrize(
    ("is_cut_off", "away_ns", "is_newcomer"), [(True, 399_999, False), (True, 400_000, True), (False, 50_000, True)]
)
def test_whose_turn_was_cut_off_is_no_newcomer_when_it_is_back_at_once(
    control: ControlPage, is_cut_off: bool, away_ns: int, is_newcomer: bool
) -> None:
    """Its slice is over and the end of its last work is not seen yet, so it has nothing to submit for a moment."""
    one, two = (Player(control, control.vgpu_take()) for _ in range(2))
    now_ns = time.monotonic_ns() + 10_000 * MS  # later than the hand-over, which looks at the clock itself
    for vgpu, standing in ((0, 10.0), (1, 100.0)):
        control.set_standing(vgpu, standing, 1.0, charged_ns=0)
    assert one.enter(now_ns - SLICE_NS)
    assert not two.enter(now_ns - SLICE_NS)
    if is_cut_off:
        lib.fgw_grant_close(one.grantee)
    one.leave(now_ns)
    assert two.enter(now_ns + 10_000)
    assert not one.enter(now_ns + away_ns)
    assert not one.enter(now_ns + 2 * away_ns), "asking again changes nothing"
    assert two.has_newcomer(0, 0) == is_newcomer


def test_whose_turns_take_most_of_their_slices(control: ControlPage) -> None:
    """It is expected of the next turn, and known while that lasts."""
    vgpu = control.vgpu_take()
    one, two = Player(control, vgpu), Player(control, control.vgpu_take())

    def turn(ns: int, *, is_closed: bool) -> None:
        now_ns = time.monotonic_ns()
        assert one.enter(now_ns)
        if is_closed:
            lib.fgw_grant_close(one.grantee)
        one.leave(now_ns + ns)

    def stays() -> bool:
        assert one.enter(time.monotonic_ns())
        found = bool(lib.fgw_grant_holder_stays(two.grantee))
        one.leave(time.monotonic_ns())
        return found

    assert not lib.fgw_grant_holder_stays(two.grantee), "nobody has it"
    turn(SLICE_NS, is_closed=True)
    turn(SLICE_NS // 4, is_closed=True)  # cut short: nothing is to be learnt from that
    assert stays()
    assert not stays(), "it had nothing to do in its last turn"
    turn(SLICE_NS, is_closed=True)
    turn(SLICE_NS, is_closed=False)
    assert stays(), "that it had nothing to do at the end of it changes nothing"
    turn(SLICE_NS, is_closed=True)
    turn(SLICE_NS // 4, is_closed=False)
    assert not stays(), "it had nothing to do long before the end"
    turn(15 * SLICE_NS // 16, is_closed=False)
    assert stays(), "of a queue that ran dry a little early"
    turn(SLICE_NS, is_closed=True)
    lib.fgw_grantee_detach(one.grantee)
    control.vgpu_free(vgpu)
    assert control.vgpu_take() == vgpu
    one = Player(control, vgpu)
    assert not stays(), "a new one in its place"


def test_held_time_is_paid_for_and_is_no_use(control: ControlPage) -> None:
    one = Player(control, control.vgpu_take())
    before = control.vgpus()
    lib.fgw_grant_charge(one.grantee, 100, 130)
    lib.fgw_grant_charge_hold(one.grantee, 5)
    reading = control.vgpu(0)
    assert reading is not None
    assert (reading.used_ns, reading.held_ns, reading.charged_ns) == (30, 5, 35)
    assert charges(before, control.vgpus()) == {0: 35}


def test_eviction(control: ControlPage) -> None:
    one, two = (Player(control, control.vgpu_take()) for _ in range(2))
    assert one.enter(MS)
    assert not control.evict(control.holder().sequence)
    assert not two.enter(MS)
    assert control.evict(control.holder().sequence)
    assert control.holder().vgpu == 1
    assert not one.has()
    assert one.left_ns(MS) == 0
    assert two.enter(2 * MS)
    one.leave(3 * MS, wants_more=True)
    assert control.holder().vgpu == 1
    two.leave(4 * MS)
    assert control.holder().vgpu == 0


def test_a_holder_that_does_not_use_the_gpu_loses_it(control: ControlPage) -> None:
    one, two, three = (Player(control, control.vgpu_take()) for _ in range(3))
    assert one.enter(MS)
    assert not two.enter(MS)
    assert not three.enter(2 * MS)
    one.leave(3 * MS)
    assert control.holder().vgpu == 1
    now_ns = control.holder().since_ns
    lib.fgw_grant_nudge(three.grantee, now_ns)
    assert control.holder().vgpu == 1, "it was woken just now"
    lib.fgw_grant_nudge(three.grantee, now_ns + 3 * MS)
    assert control.holder().vgpu == 2
    assert [reading.held_ns for reading in control.vgpus()] == [0, 2 * MS, 0], "or it would be next again"


def test_repair_takes_back_everything(control: ControlPage) -> None:
    vgpu = control.vgpu_take(100)
    one, two = Player(control, vgpu), Player(control, control.vgpu_take())
    assert one.enter(MS)
    assert lib.fgw_quota_take(one.grantee, 60)
    assert not lib.fgw_quota_take(one.grantee, 60)
    assert not two.enter(MS)
    control.repair(one.slot)
    control.repair(one.slot)
    assert control.holder().vgpu == 1
    reading = control.vgpu(vgpu)
    assert reading is not None
    assert (reading.memory_bytes, reading.nr_workers) == (0, 0)
    control.repair(two.slot)
    assert control.holder().vgpu is None
    assert control.backlogged() == []


def test_overlapping_work_of_one_vgpu_is_charged_once(control: ControlPage) -> None:
    vgpu = control.vgpu_take()
    one, two = Player(control, vgpu), Player(control, vgpu)
    before = control.vgpus()
    lib.fgw_grant_charge(one.grantee, 10, 30)
    lib.fgw_grant_charge(two.grantee, 20, 40)
    lib.fgw_grant_charge(one.grantee, 25, 35)
    lib.fgw_grant_charge(two.grantee, 50, 60)
    assert charges(before, control.vgpus()) == {vgpu: 40}
    assert [worker.gpu_ns for worker in control.workers()] == [20, 20]


def test_time_in_which_another_one_of_the_vgpu_has_work_there_is_not_passed_over(control: ControlPage) -> None:
    """A call of the driver holds that one up, and it charges late. What is left of it then is charged as its own."""
    vgpu = control.vgpu_take()
    one, two = Player(control, vgpu), Player(control, vgpu)
    before = control.vgpus()
    lib.fgw_grant_show_uncharged(one.grantee, 100 * MS)
    lib.fgw_grant_set_running(one.grantee, True)
    lib.fgw_grant_charge(two.grantee, 4_900 * MS, 4_900 * MS + 10)
    assert charges(before, control.vgpus()) == {vgpu: 4_800 * MS + 10}
    lib.fgw_grant_charge(one.grantee, 100 * MS, 5_000 * MS)
    assert charges(before, control.vgpus()) == {vgpu: 4_900 * MS}
    assert [worker.gpu_ns for worker in control.workers()] == [4_900 * MS - 10, 10]


@pytest.mark.parametrize("is_dead", [False, True])
def test_time_in_which_nobody_of_the_vgpu_has_work_there_is_passed_over(control: ControlPage, is_dead: bool) -> None:
    vgpu = control.vgpu_take()
    one, two = Player(control, vgpu), Player(control, vgpu)
    before = control.vgpus()
    lib.fgw_grant_show_uncharged(one.grantee, 100 * MS)
    lib.fgw_grant_set_running(one.grantee, True)
    if is_dead:
        control.repair(one.slot)
    else:
        lib.fgw_grant_charge(one.grantee, 100 * MS, 200 * MS)
        lib.fgw_grant_show_uncharged(one.grantee, 0)
        lib.fgw_grant_set_running(one.grantee, False)
    lib.fgw_grant_charge(two.grantee, 4_900 * MS, 4_901 * MS)
    assert charges(before, control.vgpus()) == {vgpu: MS if is_dead else 101 * MS}


@pytest.mark.parametrize("seed", range(20))
def test_a_vgpu_is_charged_for_the_time_in_which_any_of_its_workers_has_work_there(
    control: ControlPage, seed: int
) -> None:
    """Whichever of them charges, however late."""
    draw = random.Random(seed)
    vgpu = control.vgpu_take()
    players = [Player(control, vgpu) for _ in range(3)]
    before = control.vgpus()
    since_ns: dict[int, int] = {}
    times, now_ns = [], 1
    for _ in range(300):
        now_ns += draw.choice((1, 10, 500, 5_000))
        number = draw.randrange(3)
        grantee, goes_on = players[number].grantee, draw.random() < 0.6
        begun_ns = since_ns.pop(number, None)
        if begun_ns is not None:
            lib.fgw_grant_charge(grantee, begun_ns, now_ns)
            times.append((begun_ns, now_ns))
        if goes_on:
            since_ns[number] = now_ns
        lib.fgw_grant_show_uncharged(grantee, now_ns if goes_on else 0)
        lib.fgw_grant_set_running(grantee, goes_on)
    for number, begun_ns in since_ns.items():
        lib.fgw_grant_charge(players[number].grantee, begun_ns, now_ns)
        times.append((begun_ns, now_ns))
    expected_ns, until_ns = 0, 0
    for from_ns, to_ns in sorted(times):
        expected_ns += max(0, to_ns - max(from_ns, until_ns))
        until_ns = max(until_ns, to_ns)
    assert charges(before, control.vgpus()) == {vgpu: expected_ns}
    assert sum(worker.gpu_ns for worker in control.workers()) == expected_ns


def test_the_bell_is_not_missed(control: ControlPage) -> None:
    seen = control.bell()
    ringer = threading.Thread(target=control.ring_bell)
    ringer.start()
    assert control.wait_bell(60, seen) == seen + 1
    ringer.join()
    assert control.wait_bell(60, seen) == seen + 1, "rung before: no waiting"
    assert control.wait_bell(0, seen + 1) == seen + 1


def test_news_are_waited_for_with_a_limit(control: ControlPage) -> None:
    one, two = (Player(control, control.vgpu_take()) for _ in range(2))
    assert one.enter(1)
    assert not two.enter(2)
    seen = control.bell()
    for active in ({0, 1}, {0}, {1}, {0, 1, 2}, set[int]()):
        assert control.wait_news(0, seen, active) == seen, "nobody rang"
        control.ring_bell()
        assert control.wait_news(60, seen, active) == seen + 1, "whether it is news or not"
        seen += 1


def test_garbage_in_the_grant_harms_nobody(control: ControlPage) -> None:
    one, two = (Player(control, control.vgpu_take()) for _ in range(2))
    with mmap.mmap(control.objects[GRANT], 0) as grant:
        grant[96:100] = (65_000).to_bytes(4, "little")
        grant[:8] = (1 << 32 | 40_000).to_bytes(8, "little")
        assert control.holder().vgpu is None
        assert one.enter(MS), "it is nobody's"
        assert not two.enter(MS)
