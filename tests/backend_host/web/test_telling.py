"""What the page is told of a daemon: shares that add up, waits, who came and went, in points and in seconds."""

import json

import pytest

from tests.backend_host.web.played import Played, Tenant
from tests.backend_host.web.reading import series, times


def test_shares_of_a_point_are_of_its_time_and_add_up() -> None:
    played = Played(
        [
            Tenant("one", lambda second: 0.6, lambda second: 0.5),
            Tenant("two", lambda second: 0.2 if second >= 8 else 0.0, lambda second: 0.5 if second >= 8 else None),
        ]
    )
    teller = played.teller()
    played.play(teller, 11)
    history = teller.document()["history"]
    assert series(history, "0/one", "share") == pytest.approx([None, 0.6, 0.6])
    assert series(history, "0/two", "share") == pytest.approx([None, 0.0, 0.08])
    assert series(history, "0", "share", "gpus") == pytest.approx([None, 0.6, 0.68])
    assert series(history, "0/two", "entitled") == [None, None, 0.5]
    assert [second - first for first, second in zip(times(history), times(history)[1:], strict=False)] == [5000, 5000]  # type: ignore[operator]


def test_waits_are_the_mean_of_those_that_ended_since() -> None:
    played = Played([Tenant("one", wait_ms=lambda second: {0: 10.0, 1: 30.0, 7: 4.0}.get(second, 0.0))])
    teller = played.teller()
    played.play(teller, 16)
    assert series(teller.document()["history"], "0/one", "wait") == [None, 20.0, 4.0, None]


def test_what_one_used_before_it_moved_is_no_share_of_its_new_gpu() -> None:
    tenant = Tenant("one", lambda second: 1.0, wait_ms=lambda second: 2.0)
    played = Played([tenant], nr_gpus=2)
    teller = played.teller()
    played.play(teller, 60)
    tenant.gpu = 1
    assert json.loads(teller.second())["vgpus"][0]["share"] <= 1.0
    played.play(teller, 5)
    history = teller.document()["history"]
    assert [share for share in series(history, "1/one", "share") if share is not None] == pytest.approx([1.0])
    assert [wait for wait in series(history, "1/one", "wait") if wait is not None] == [2.0]


def test_another_one_of_that_name_begins_anew() -> None:
    played = Played([Tenant("one", lambda second: 1.0)])
    teller = played.teller()
    played.play(teller, 6)
    played.tenants[0].used_ns = 0
    played.play(teller, 5)
    history = teller.document()["history"]
    assert series(history, "0/one", "share") == pytest.approx([None, 1.0, 0.8])


def test_each_second_tells_how_things_are() -> None:
    played = Played([Tenant("one", lambda second: 0.25, lambda second: 1.0, weight=3, quota_bytes=1 << 30)])
    teller = played.teller()
    assert json.loads(teller.second())["vgpus"][0]["share"] is None, "of no time there is none"
    played.pass_second()
    second = json.loads(teller.second())
    assert (second["waits_for"], second["troubles"]) == ("", [])
    assert second["gpus"] == [{"number": 0, "share": 0.25}]
    assert second["vgpus"] == [
        {
            "key": "0/one",
            "name": "one",
            "gpu": 0,
            "kind": "domain",
            "weight": 3,
            "quota_bytes": 1 << 30,
            "used_s": 0.25,
            "memory_bytes": 2 << 30,
            "entitled": 1.0,
            "share": 0.25,
        }
    ]
    assert teller.document()["second"] == second


def test_one_that_comes_is_in_the_next_point_and_one_that_goes_is_not() -> None:
    played = Played([Tenant("stays"), Tenant("comes", comes=3), Tenant("goes", goes=3)])
    teller = played.teller()
    assert [vgpu["key"] for vgpu in json.loads(teller.point())["vgpus"]] == ["0/stays", "0/goes"]
    for _ in range(5):
        played.pass_second()
    point = json.loads(teller.point())
    assert [vgpu["key"] for vgpu in point["vgpus"]] == ["0/stays", "0/comes"]
    assert point["number"] == 2


def test_a_point_and_the_history_say_the_same() -> None:
    played = Played([Tenant("one", lambda second: 0.5, lambda second: 0.5, wait_ms=lambda second: 2.0)], nr_gpus=2)
    teller = played.teller()
    played.play(teller, 5)
    point, history = json.loads(teller.point()), teller.document()["history"]
    assert times(history)[-1] == point["at"]
    for kind in ("gpus", "vgpus"):
        for sample, kept in zip(point[kind], history[kind], strict=True):
            assert (sample["key"], sample["facts"]) == (kept["key"], kept["facts"])
            for name, value in sample["values"].items():
                assert series(history, sample["key"], name, kind)[-1] == pytest.approx(value)


def test_the_document_is_made_once_for_a_point() -> None:
    played = Played([Tenant("one")])
    teller = played.teller()
    teller.point()
    first = teller.encoded_document()
    assert teller.encoded_document() is first
    played.pass_second()
    teller.point()
    assert json.loads(teller.encoded_document())["history"]["number"] == 2


def test_a_clock_that_is_set_back_sets_nothing_back() -> None:
    """Times come from the monotonic clock: see the constructor."""
    played = Played([])
    teller = played.teller()
    played.play(teller, 20)
    found = times(teller.document()["history"])
    assert found == sorted(found)  # type: ignore[type-var]
    assert len(set(found)) == 4
