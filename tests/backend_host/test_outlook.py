"""How all stand as a worker sees it in one look, as a value."""

import time
from dataclasses import dataclass

import pytest
from backend_host.worker._worker import ffi, lib

from backend_host.device.control import ControlPage
from tests.backend_host.grantees import attach

SLICE_NS = 6_000_000
OWED_NS = 1_000


@dataclass(frozen=True)
class Case:
    """The holder stands at 100, another at `standing`, who began to wait so long after the holder's turn began."""

    waits: bool = False
    standing: float = 0.0
    came_ns: int = 0
    had_long_turns: bool = False
    is_closed: bool = False
    passed_ns: int = 0


@dataclass(frozen=True)
class Outlook:
    """What is expected, as struct fgw_outlook has it and its questions answer."""

    has: bool = True
    others_wait: bool = False
    left_ns: int = 0
    is_first: bool = True
    next_stays: bool = False
    has_newcomer: bool = False
    is_owed: bool = False


ALL = SLICE_NS
CASES = {
    "nobody else is there": (Case(), Outlook()),
    "nobody waits, whatever has passed": (Case(passed_ns=2 * SLICE_NS), Outlook()),
    "the turn was taken away": (Case(is_closed=True), Outlook(has=False)),
    "one waits that stands behind": (Case(waits=True, standing=101.0), Outlook(others_wait=True, left_ns=ALL)),
    "of equals the holder is first": (Case(waits=True, standing=100.0), Outlook(others_wait=True, left_ns=ALL)),
    "one waits that stands before, since the turn began": (
        Case(waits=True, standing=99.0),
        Outlook(others_wait=True, left_ns=ALL, is_first=False),
    ),
    "one that came since": (
        Case(waits=True, standing=99.0, came_ns=10),
        Outlook(others_wait=True, left_ns=ALL, is_first=False, has_newcomer=True),
    ),
    "and is owed much": (
        Case(waits=True, standing=100.0 - OWED_NS - 1, came_ns=10),
        Outlook(others_wait=True, left_ns=ALL, is_first=False, has_newcomer=True, is_owed=True),
    ),
    "a third of the slice is over": (
        Case(waits=True, standing=101.0, passed_ns=SLICE_NS // 3),
        Outlook(others_wait=True, left_ns=SLICE_NS - SLICE_NS // 3),
    ),
    "all of it is over": (Case(waits=True, standing=101.0, passed_ns=SLICE_NS), Outlook(others_wait=True)),
    "the next one uses all of its slices": (
        Case(waits=True, standing=99.0, had_long_turns=True),
        Outlook(others_wait=True, left_ns=ALL, is_first=False, next_stays=True),
    ),
    "a turn that was taken away has nothing left": (
        Case(waits=True, standing=99.0, is_closed=True),
        Outlook(has=False, others_wait=True, is_first=False),
    ),
}


def attached(control: ControlPage) -> ffi.CData:
    return attach(control, control.vgpu_take())[1]


def end_long_turn(grantee: ffi.CData, now_ns: int) -> None:
    """Its turn was closed when its slice was over."""
    assert lib.fgw_grant_enter(grantee, now_ns - SLICE_NS)
    lib.fgw_grant_close(grantee)
    lib.fgw_grant_leave(grantee, False, now_ns)


@pytest.mark.parametrize(("case", "expected"), CASES.values(), ids=CASES)
def test_an_outlook_tells(control: ControlPage, case: Case, expected: Outlook) -> None:
    holder, other = attached(control), attached(control)
    start_ns = time.monotonic_ns() + 10 * SLICE_NS  # later than any look of the page itself at the clock
    control.set_standing(0, 100.0, 1.0, charged_ns=0)
    control.set_standing(1, case.standing, 1.0, charged_ns=0)
    if case.had_long_turns:
        end_long_turn(other, start_ns - SLICE_NS)
    assert lib.fgw_grant_enter(holder, start_ns)
    if case.waits:
        assert not lib.fgw_grant_reenter(other, start_ns + case.came_ns, start_ns + case.came_ns)
    if case.is_closed:
        lib.fgw_grant_close(holder)
    outlook = ffi.new("struct fgw_outlook *", lib.fgw_outlook_take(holder, start_ns + case.passed_ns))
    assert not outlook.next.is_known, "who is next is looked up when that is asked"
    assert expected == Outlook(
        has=bool(outlook.has),
        others_wait=bool(outlook.others_wait),
        left_ns=outlook.left_ns,
        is_first=bool(lib.fgw_outlook_is_first(outlook)),
        next_stays=bool(lib.fgw_outlook_next_stays(outlook)),
        has_newcomer=bool(lib.fgw_outlook_has_newcomer(outlook, 0, 0)),
        is_owed=bool(lib.fgw_outlook_has_newcomer(outlook, 0, OWED_NS)),
    )


@pytest.mark.parametrize(
    ("budget_ns", "took_ns", "stays"),
    [
        (0, SLICE_NS // 2, False),
        (0, SLICE_NS - SLICE_NS // 8, True),
        (2 * SLICE_NS, SLICE_NS - 1, False),
        (2 * SLICE_NS, SLICE_NS, True),
        (2 * SLICE_NS, 2 * SLICE_NS + 1, False),
    ],
)
def test_who_gave_its_turn_up_will_stay_if_it_used_most_of_it(
    control: ControlPage, budget_ns: int, took_ns: int, stays: bool
) -> None:
    """By bursts the half is most of it: requests differ."""
    holder, other = attached(control), attached(control)
    start_ns = time.monotonic_ns() + 10 * SLICE_NS
    control.set_standing(0, 100.0, 1.0, charged_ns=0)
    control.set_standing(1, 99.0, 1.0, charged_ns=0, budget_ns=budget_ns)
    assert lib.fgw_grant_enter(other, start_ns)
    lib.fgw_grant_leave(other, False, start_ns + took_ns)
    assert lib.fgw_grant_enter(holder, start_ns + 4 * SLICE_NS)
    assert not lib.fgw_grant_enter(other, start_ns + 4 * SLICE_NS)
    outlook = ffi.new("struct fgw_outlook *", lib.fgw_outlook_take(holder, start_ns + 4 * SLICE_NS))
    assert bool(lib.fgw_outlook_next_stays(outlook)) is stays


def test_who_is_next_is_looked_up_once(control: ControlPage) -> None:
    """What changes within a look changes the next."""
    holder, other = attached(control), attached(control)
    now_ns = time.monotonic_ns()
    control.set_standing(0, 100.0, 1.0, charged_ns=0)
    control.set_standing(1, 10.0, 1.0, charged_ns=0)
    assert lib.fgw_grant_enter(holder, now_ns)
    assert not lib.fgw_grant_enter(other, now_ns)
    outlook = ffi.new("struct fgw_outlook *", lib.fgw_outlook_take(holder, now_ns))
    assert not lib.fgw_outlook_is_first(outlook)
    lib.fgw_grant_wait_cancel(other)
    assert not lib.fgw_outlook_is_first(outlook)
    again = ffi.new("struct fgw_outlook *", lib.fgw_outlook_take(holder, now_ns))
    assert lib.fgw_outlook_is_first(again)
    assert not again.others_wait


@pytest.mark.parametrize("passed_ns", [0, SLICE_NS // 4])
def test_what_a_limit_leaves_tells_nothing_of_what_a_turn_has_had(control: ControlPage, passed_ns: int) -> None:
    """One that may have little more is no older for that: newcomers come before it, and its pauses are waited out, by its slice."""
    holder, other = attached(control), attached(control)
    start_ns, room_ns = time.monotonic_ns() + 10 * SLICE_NS, SLICE_NS // 3
    control.set_limit(0, 500)
    control.set_limited_until(0, start_ns + passed_ns - room_ns & ~1)
    assert lib.fgw_grant_enter(holder, start_ns)
    assert not lib.fgw_grant_enter(other, start_ns)
    outlook = lib.fgw_outlook_take(holder, start_ns + passed_ns)
    assert outlook.left_ns == pytest.approx(room_ns, abs=1)
    assert outlook.had_ns == passed_ns
