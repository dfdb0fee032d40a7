"""Where a new vGPU goes: what holds for any devices, and what each that does not take it lacks."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.placement import Candidate, Lack, NoDeviceFitsError, Refusal, What, Wish, choose, fits

GIB = 1 << 30
DEMANDS = st.none() | st.floats(0, 4)
TENTHS = st.integers(0, 1000).map(lambda nr: nr / 10)
WISHES = st.builds(Wish, quota=st.integers(0, 100 * GIB), request=TENTHS)


@st.composite
def candidates(draw: st.DrawFn) -> list[Candidate]:
    return [
        Candidate(
            number,
            draw(DEMANDS),
            weight=draw(st.integers(0, 1000)),
            memory_left=draw(st.none() | st.integers(-10 * GIB, 100 * GIB)),
            request_left=draw(TENTHS),
            places_left=draw(st.integers(0, 3)),
            out=draw(st.sampled_from(["", "", "", "drained", "failed: Xid 79"])),
        )
        for number in range(draw(st.integers(0, 6)))
    ]


@given(candidates(), WISHES)
def test_it_goes_where_it_fits_and_nothing_that_fits_is_better(there: list[Candidate], wish: Wish) -> None:
    try:
        chosen = there[choose(there, wish)]
    except NoDeviceFitsError as error:
        assert error.refusals == {each.number: fits(each, wish) for each in there}
        assert None not in error.refusals.values()
        return
    assert not chosen.out
    assert chosen.memory_left is None or wish.quota <= max(0, chosen.memory_left)
    assert round(wish.request * 10) <= round(chosen.request_left * 10)
    assert chosen.places_left >= 1
    able = [each for each in there if fits(each, wish) is None]
    if all(each.demand is not None for each in able):
        assert chosen.demand == min(each.demand for each in able if each.demand is not None)
    else:
        assert chosen.weight == min(each.weight for each in able)


@given(candidates(), WISHES, st.randoms())
def test_the_order_in_which_devices_are_told_is_nothing(there: list[Candidate], wish: Wish, random: Random) -> None:
    shuffled = list(there)
    random.shuffle(shuffled)
    results = []
    for each in (there, shuffled):
        try:
            results.append(choose(each, wish))
        except NoDeviceFitsError:
            results.append(-1)
    assert results[0] == results[1]


@given(candidates(), WISHES)
def test_a_refusal_has_true_numbers(there: list[Candidate], wish: Wish) -> None:
    for each in there:
        refusal = fits(each, wish)
        if refusal is None:
            continue
        assert refusal.out == each.out
        assert bool(refusal.lacks) != bool(refusal.out)
        assert all(lack.left < lack.wanted for lack in refusal.lacks)
        assert fits(_with(each, refusal), wish) is None, "with what it lacked it takes the vGPU"


def _with(candidate: Candidate, refusal: Refusal) -> Candidate:
    """The device with all that it lacked."""
    if refusal.out:
        return replace(candidate, out="", memory_left=None, request_left=100.0, places_left=1)
    names = {What.MEMORY: "memory_left", What.REQUEST: "request_left", What.PLACE: "places_left"}
    more: dict[str, Any] = {names[lack.what]: lack.wanted for lack in refusal.lacks}
    return replace(candidate, **more)


def test_demand_decides_and_not_weight() -> None:
    there = [Candidate(0, 0.9, weight=1), Candidate(1, 0.2, weight=100), Candidate(2, 0.5, weight=0)]
    assert choose(there, Wish()) == 1


def test_weights_decide_while_one_demand_is_unknown() -> None:
    there = [Candidate(0, 0.9, weight=1), Candidate(1, None, weight=100), Candidate(2, 0.5, weight=3)]
    assert choose(there, Wish()) == 0
    there[1] = replace(there[1], out="drained")
    assert choose(there, Wish()) == 2, "the unknown one is no candidate"


def test_of_equals_the_one_of_less_weight_then_of_least_number() -> None:
    assert choose([Candidate(0, 0.0, 2), Candidate(1, 0.0, 1), Candidate(2, 0.0, 1)], Wish()) == 1


def test_all_that_each_device_lacks_is_told() -> None:
    there = [
        Candidate(0, 0.0, 1, memory_left=GIB, request_left=5.0),
        Candidate(1, 0.0, 1, places_left=0),
        Candidate(2, 0.0, 1, out="failed: Xid 79"),
    ]
    with pytest.raises(NoDeviceFitsError) as raised:
        choose(there, Wish(2 * GIB, 10.0))
    assert raised.value.refusals == {
        0: Refusal(lacks=(Lack(What.MEMORY, GIB, 2 * GIB), Lack(What.REQUEST, 5.0, 10.0))),
        1: Refusal(lacks=(Lack(What.PLACE, 0, 1),)),
        2: Refusal(out="failed: Xid 79"),
    }


def test_tenths_of_a_percent_add_up() -> None:
    """100 - 33.3 - 33.3 is 33.400000000000006 as a float, and 100 - 70.1 is 29.900000000000006."""
    assert fits(Candidate(0, 0.0, 1, request_left=100 - 33.3 - 33.3), Wish(request=33.4)) is None
    assert fits(Candidate(0, 0.0, 1, request_left=100 - 99.9), Wish(request=0.1)) is None
    assert fits(Candidate(0, 0.0, 1, request_left=100 - 99.9), Wish(request=0.2)) is not None


def test_who_has_no_quota_comes_where_quotas_leave_nothing() -> None:
    assert choose([Candidate(0, 0.0, 1, memory_left=-GIB)], Wish()) == 0
