"""The last hour: what is kept of whom, and for how long; that it never grows beyond its bounds."""

import sys
from array import array
from collections.abc import Sequence

import pytest

from backend_host.web import history as module
from backend_host.web.history import NR_POINTS, NR_SERIES, PERIOD_S, History, Sample, packed
from tests.backend_host.web.reading import numbers, series, times


def samples(names: Sequence[str], value: float = 0.5) -> list[Sample]:
    return [Sample(name, {"name": name}, {"share": value}) for name in names]


def keys(history: History) -> list[str]:
    return [each["key"] for each in history.told()["vgpus"]]


def test_an_hour_is_kept() -> None:
    assert NR_POINTS * PERIOD_S == 3600
    history = History()
    for nr in range(NR_POINTS + 10):
        history.note(nr * 5000.0, samples(["0"]), samples(["a"], nr))
    told = history.told()
    assert told["number"] == history.number == NR_POINTS + 10
    assert times(told) == [nr * 5000.0 for nr in range(10, NR_POINTS + 10)]
    assert series(told, "a", "share") == list(range(10, NR_POINTS + 10))
    assert len(series(told, "0", "share", "gpus")) == NR_POINTS


def test_who_comes_later_or_goes_earlier_has_gaps() -> None:
    history = History()
    for names in (["a"], ["a", "b"], ["b"]):
        history.note(0, [], samples(names))
    told = history.told()
    assert series(told, "a", "share") == [0.5, 0.5, None]
    assert series(told, "b", "share") == [None, 0.5, 0.5]
    assert [each["seen"] for each in told["vgpus"]] == [2, 3]


def test_what_is_not_known_is_a_gap_and_new_values_may_come() -> None:
    history = History()
    history.note(0, [], [Sample("a", {}, {"share": None})])
    history.note(5, [], [Sample("a", {"weight": 2}, {"share": 1.0, "wait": 3.0})])
    told = history.told()
    assert series(told, "a", "share") == [None, 1.0]
    assert series(told, "a", "wait") == [None, 3.0]
    assert told["vgpus"][0]["facts"] == {"weight": 2}


def test_who_has_gone_stays_until_the_hour_is_over() -> None:
    history = History()
    history.note(0, [], samples(["gone", "stays"]))
    for nr in range(1, NR_POINTS):
        history.note(nr, [], samples(["stays"]))
    assert keys(history) == ["gone", "stays"]
    history.note(NR_POINTS, [], samples(["stays"]))
    assert keys(history) == ["stays"]


def test_who_comes_takes_the_place_of_the_longest_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NR_SERIES", 3)
    history = History()
    history.note(0, [], samples(["first", "second", "stays"]))
    history.note(1, [], samples(["second", "stays"]))
    history.note(2, [], samples(["stays"]))
    history.note(3, [], samples(["stays", "new"]))
    assert keys(history) == ["second", "stays", "new"]


def test_those_without_a_place_are_counted_and_get_one_later() -> None:
    history = History()
    many = [f"vm-{nr}" for nr in range(NR_SERIES + 7)]
    history.note(0, [], samples(many))
    assert (len(keys(history)), history.told()["nr_left_out"]) == (NR_SERIES, 7)
    history.note(1, [], samples(many[7:]))
    assert (keys(history)[-1], history.told()["nr_left_out"]) == (many[-1], 0)


def test_thousands_that_come_and_go_take_no_more_than_the_bound() -> None:
    history = History()
    for nr in range(3 * NR_POINTS):
        history.note(nr, [], samples([f"run-{nr}-{at}" for at in range(2)]))
        assert len(history._vgpus) <= NR_SERIES
    assert all(len(kept) == NR_POINTS for each in history._vgpus.values() for kept in each.values.values())


def test_numbers_are_little_endian(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = array("f", [1.5, -2.0])
    assert numbers(packed(kept)) == [1.5, -2.0]
    monkeypatch.setattr(sys, "byteorder", "big")
    swapped = array("f", kept)
    swapped.byteswap()
    assert numbers(packed(swapped)) == [1.5, -2.0]
    assert swapped != kept, "what is kept stays as it is"
