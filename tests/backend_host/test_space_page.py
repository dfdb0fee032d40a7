"""Spaces in the control page: who is urgent, who may use the device together, and that each ns there is charged once."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from backend_host.worker._worker import ffi, lib

from backend_host.device.control import ControlPage
from backend_host.device.spaces_told import Round
from tests.backend_host.grantees import attach

FAIR, CRITICAL, BEST_EFFORT = range(3)
MS = 1_000_000
NR_MULTIPROCESSORS = 132


class One(NamedTuple):
    """A worker of a vGPU of its own."""

    vgpu: int
    slot: int
    grantee: ffi.CData

    def charge(self, from_ns: int, to_ns: int) -> None:
        lib.fgw_grant_charge(self.grantee, from_ns, to_ns)


def one(page: ControlPage, class_number: int = FAIR, space: int = 0, standing: float = 0.0) -> One:
    vgpu = page.vgpu_take()
    page.set_class(vgpu, class_number, space)
    page.set_standing(vgpu, standing, 0.0, 0)
    slot, grantee = attach(page, vgpu)
    grantee.nr_multiprocessors = NR_MULTIPROCESSORS
    return One(vgpu, slot, grantee)


@pytest.fixture(params=[False, True], ids=["one kernel at a time", "preemptive"])
def page(request: pytest.FixtureRequest) -> Iterator[ControlPage]:
    with ControlPage.create(6 * MS, is_preemptive=request.param) as page:
        yield page


def used(page: ControlPage, each: One) -> int:
    reading = page.vgpu(each.vgpu)
    assert reading is not None
    return reading.used_ns


def split(n: int, k: int) -> int:
    return n | k << 16


@pytest.mark.parametrize("n", [0, 1, 33, 131, 132, 133, 65535])
def test_each_ns_in_a_space_is_charged_once(page: ControlPage, n: int) -> None:
    """To the critical one as many multiprocessors as it is given, to best effort the rest."""
    critical, best = one(page, CRITICAL, 1), one(page, BEST_EFFORT, 1)
    page.set_split(critical.vgpu, split(n, 8))
    for each in (critical, best):
        lib.fgw_grant_set_running(each.grantee, True)
    for each in (critical, best):
        each.charge(MS, MS + NR_MULTIPROCESSORS * 1000)
    given = min(n, NR_MULTIPROCESSORS) * 1000
    assert (used(page, critical), used(page, best)) == (given, NR_MULTIPROCESSORS * 1000 - given)


def test_who_is_alone_in_a_space_pays_for_all(page: ControlPage) -> None:
    critical, best = one(page, CRITICAL, 1), one(page, BEST_EFFORT, 1)
    page.set_split(critical.vgpu, split(4, 1))
    lib.fgw_grant_set_running(critical.grantee, True)
    critical.charge(MS, 2 * MS)
    assert (used(page, critical), used(page, best)) == (MS, 0)


def test_several_of_best_effort_share_what_is_left(page: ControlPage) -> None:
    critical, *best = one(page, CRITICAL, 1), one(page, BEST_EFFORT, 1), one(page, BEST_EFFORT, 1)
    page.set_split(critical.vgpu, split(NR_MULTIPROCESSORS // 2, 8))
    for each in (critical, *best):
        lib.fgw_grant_set_running(each.grantee, True)
    for each in (critical, *best):
        each.charge(MS, 2 * MS)
    assert [used(page, each) for each in (critical, *best)] == [MS // 2, MS // 4, MS // 4]


def test_a_space_is_one_beside_others(page: ControlPage) -> None:
    """On a device that preempts a space gets as much time as one that is in none. On another one nothing runs beside it."""
    critical, best, other = one(page, CRITICAL, 1), one(page, BEST_EFFORT, 1), one(page)
    page.set_split(critical.vgpu, split(NR_MULTIPROCESSORS // 2, 8))
    for each in (critical, best, other):
        lib.fgw_grant_set_running(each.grantee, True)
    for each in (critical, best, other):
        each.charge(MS, 2 * MS)
    shared = MS // 2 if page.is_preemptive else MS
    assert [used(page, each) for each in (critical, best, other)] == [shared // 2, shared // 2, shared]


def test_who_is_urgent_is_next_whoever_stands_before_it(page: ControlPage) -> None:
    holder, first, critical = one(page), one(page, standing=1.0), one(page, CRITICAL, 1, standing=9.0)
    assert lib.fgw_grant_enter(holder.grantee, MS)
    for each in (first, critical):
        assert not lib.fgw_grant_enter(each.grantee, 2 * MS)
    page.set_urgent(critical.vgpu, is_urgent=True)
    assert not lib.fgw_grant_is_first(holder.grantee)
    lib.fgw_grant_close(holder.grantee)
    lib.fgw_grant_leave(holder.grantee, False, 3 * MS)
    assert page.holder().vgpu == critical.vgpu
    assert lib.fgw_grant_enter(critical.grantee, 3 * MS)
    assert lib.fgw_grant_is_first(critical.grantee)
    critical.charge(3 * MS, 4 * MS)
    reading = page.worker(critical.slot)
    assert reading is not None
    assert reading.out_of_turn_ns == MS, "another one stood before it"


def test_a_critical_one_below_nobody_takes_turns_as_all_do(page: ControlPage) -> None:
    holder, first, critical = one(page), one(page, standing=1.0), one(page, CRITICAL, 1, standing=9.0)
    assert lib.fgw_grant_enter(holder.grantee, MS)
    for each in (first, critical):
        assert not lib.fgw_grant_enter(each.grantee, 2 * MS)
    lib.fgw_grant_close(holder.grantee)
    lib.fgw_grant_leave(holder.grantee, False, 3 * MS)
    assert page.holder().vgpu == first.vgpu


def test_in_its_own_turn_a_critical_one_uses_nothing_out_of_turn(page: ControlPage) -> None:
    critical = one(page, CRITICAL, 1)
    assert lib.fgw_grant_enter(critical.grantee, MS)
    critical.charge(MS, 2 * MS)
    reading = page.worker(critical.slot)
    assert reading is not None
    assert reading.out_of_turn_ns == 0


@pytest.mark.parametrize("renews", ["itself", "another program of it"])
def test_a_critical_one_that_goes_on_before_whoever_waits_uses_that_out_of_turn(page: ControlPage, renews: str) -> None:
    """It began with nobody else there; its slices are renewed, for ever if nobody counted."""
    critical, other = one(page, CRITICAL, standing=9.0), one(page)
    page.set_urgent(critical.vgpu, is_urgent=True)
    _, second = attach(page, critical.vgpu)
    assert lib.fgw_grant_enter(critical.grantee, MS)
    assert lib.fgw_grant_enter(second, MS)
    assert not lib.fgw_grant_enter(other.grantee, 2 * MS)
    critical.charge(MS, 7 * MS)
    account = page.vgpu(critical.vgpu)
    assert account is not None
    assert account.out_of_turn_ns == 0, "its slice began before the other one came"
    assert lib.fgw_grant_renew(critical.grantee if renews == "itself" else second, 7 * MS)
    critical.charge(7 * MS, 9 * MS)
    account = page.vgpu(critical.vgpu)
    assert account is not None
    assert account.out_of_turn_ns == 2 * MS
    page.set_urgent(critical.vgpu, is_urgent=False)
    assert not lib.fgw_grant_renew(critical.grantee, 13 * MS), "beyond its bound it is the other one's turn"


def test_what_a_vgpu_took_out_of_turn_outlives_its_workers(page: ControlPage) -> None:
    """However short they lived."""
    critical = one(page, CRITICAL, 1)
    for number in range(3):
        slot, grantee = attach(page, critical.vgpu)
        lib.fgw_grant_charge(grantee, number * MS + MS, number * MS + 2 * MS)
        page.repair(slot)
        page.worker_free(slot)
    account = page.vgpu(critical.vgpu)
    assert account is not None
    assert account.out_of_turn_ns == 3 * MS


def test_companions_are_of_one_space(page: ControlPage) -> None:
    critical, best, other, none = (
        one(page, CRITICAL, 1),
        one(page, BEST_EFFORT, 1),
        one(page, BEST_EFFORT, 2),
        one(page),
    )
    for holder, is_companion in ((best, True), (other, False), (none, False), (critical, False)):
        assert lib.fgw_grant_enter(holder.grantee, MS)
        assert lib.fgw_space_has_grant(critical.grantee) is is_companion
        lib.fgw_grant_leave(holder.grantee, False, MS)
    assert not lib.fgw_space_has_grant(critical.grantee), "nobody has it"


def test_a_place_that_is_taken_anew_is_of_no_class(page: ControlPage) -> None:
    vgpu = page.vgpu_take()
    page.set_class(vgpu, CRITICAL, 3)
    page.set_urgent(vgpu, is_urgent=True)
    page.vgpu_free(vgpu)
    again, holder = one(page), one(page, BEST_EFFORT, 3)
    assert again.vgpu == vgpu
    assert lib.fgw_grant_enter(holder.grantee, MS)
    assert not lib.fgw_space_has_grant(again.grantee)


def test_a_critical_one_that_is_gone_does_not_speak_for_its_space(page: ControlPage) -> None:
    """It left last, so the next two of the space have other places."""
    gone, critical, best = one(page, CRITICAL, 1), one(page, CRITICAL, 1), one(page, BEST_EFFORT, 1)
    page.set_urgent(critical.vgpu, is_urgent=True)
    page.vgpu_free(gone.vgpu)
    lib.fgw_space_tell_split(critical.grantee, split(4, 1))
    assert lib.fgw_space_asked_split(best.grantee) == split(4, 1)


def test_rounds_that_nobody_had_are_none(page: ControlPage) -> None:
    critical = one(page, CRITICAL, 1)
    assert page.rounds(critical.slot) == (0, [])
    assert page.rounds(critical.slot + 1) == (0, [])


def test_a_space_that_is_none_is_refused(page: ControlPage) -> None:
    with pytest.raises(ValueError, match="64 is not in"):
        page.set_class(page.vgpu_take(), CRITICAL, 64)


def test_a_round_is_what_was_told() -> None:
    assert Round(7, split(4, 2), MS)._asdict() == {"signature": 7, "split": 0x20004, "took_ns": MS}


def test_what_rounds_ask_for_is_nothing_while_their_vgpu_takes_turns(page: ControlPage) -> None:
    critical, best, other = one(page, CRITICAL, 1), one(page, BEST_EFFORT, 1), one(page, BEST_EFFORT, 2)
    lib.fgw_space_tell_split(critical.grantee, split(4, 1))
    assert lib.fgw_space_asked_split(best.grantee) == 0
    page.set_urgent(critical.vgpu, is_urgent=True)
    assert lib.fgw_space_asked_split(best.grantee) == split(4, 1)
    assert lib.fgw_space_asked_split(other.grantee) == 0
    lib.fgw_space_tell_split(critical.grantee, 0)
    assert lib.fgw_space_asked_split(best.grantee) == 0


def test_what_rounds_ask_for_stands_until_their_vgpu_is_another_one(page: ControlPage) -> None:
    critical, best = one(page, CRITICAL, 1), one(page, BEST_EFFORT, 1)
    page.set_urgent(critical.vgpu, is_urgent=True)
    lib.fgw_space_tell_split(critical.grantee, split(4, 1))
    page.set_class(critical.vgpu, CRITICAL, 1)
    lib.fgw_space_tell_kept_out(critical.grantee, False)
    assert lib.fgw_space_asked_split(best.grantee) == split(4, 1)
    page.set_class(critical.vgpu, FAIR, 1)
    page.set_class(critical.vgpu, CRITICAL, 1)
    assert lib.fgw_space_asked_split(best.grantee) == 0
    lib.fgw_space_tell_split(critical.grantee, split(4, 1))
    page.set_class(critical.vgpu, CRITICAL, 2)
    page.set_class(critical.vgpu, CRITICAL, 1)
    assert lib.fgw_space_asked_split(best.grantee) == 0


@pytest.mark.parametrize("end", ["the round", "the bound", "the worker", "the daemon"])
def test_who_is_kept_out_is_rung_for_when_rounds_ask_for_nothing_any_more(page: ControlPage, end: str) -> None:
    critical, best, idle, other = (one(page, CRITICAL, 1), *(one(page, BEST_EFFORT, space) for space in (1, 1, 2)))
    page.set_urgent(critical.vgpu, is_urgent=True)
    lib.fgw_space_tell_split(critical.grantee, split(4, 1))
    for each in (best, other):
        lib.fgw_space_tell_kept_out(each.grantee, True)
    before = [lib.fgw_grant_bell(each.grantee) for each in (best, idle, other)]
    lib.fgw_space_tell_split(critical.grantee, split(8, 1))
    page.set_urgent(critical.vgpu, is_urgent=True)
    assert [lib.fgw_grant_bell(each.grantee) for each in (best, idle, other)] == before
    if end == "the round":
        lib.fgw_space_tell_split(critical.grantee, 0)
    elif end == "the bound":
        page.set_urgent(critical.vgpu, is_urgent=False)
    elif end == "the daemon":
        page.take_split_back(critical.vgpu)
    else:
        page.repair(critical.slot)
    assert lib.fgw_space_asked_split(best.grantee) == 0
    after = [lib.fgw_grant_bell(each.grantee) for each in (best, idle, other)]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 0, 0]
