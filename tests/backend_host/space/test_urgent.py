"""Who goes before others: as long as it took less of the last 10 s out of turn than it may, by what its account says."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_host.device.control import ControlPage
from backend_host.entitlement import Entitlement
from backend_host.space.urgent import WINDOW_NS, Urgent

MS = 1_000_000


class Page:
    """Accounts, and what is said of vGPUs."""

    def __init__(self) -> None:
        self.counted: dict[int, int] = {}
        """By vGPU."""
        self.urgent: dict[int, bool] = {}

    def vgpu(self, vgpu: int) -> Any:
        return SimpleNamespace(out_of_turn_ns=self.counted[vgpu]) if vgpu in self.counted else None

    def set_urgent(self, vgpu: int, *, is_urgent: bool) -> None:
        self.urgent[vgpu] = is_urgent


class Scene:
    def __init__(self, most: float = 50.0) -> None:
        self.page = Page()
        self.now_ns = 0
        self.criticals = {3: Entitlement(vgpu_class="critical", qos="2", most=most)}
        self.urgent = Urgent(cast(ControlPage, self.page), lambda: self.criticals, lambda: self.now_ns)

    def look(self, at_ms: int, counted_ms: int = 0) -> bool:
        self.now_ns = at_ms * MS
        self.page.counted = {3: counted_ms * MS}
        self.urgent.look()
        return self.page.urgent[3]


def test_up_to_its_bound_it_goes_first_and_again_once_that_is_over() -> None:
    scene = Scene(most=50.0)
    assert scene.look(100)
    assert scene.look(200, 4999)
    assert not scene.look(300, 5000)
    assert not scene.look(10_199, 5000)
    assert scene.look(10_200, 5000), "what it took first is 10 s old"
    assert scene.urgent.part(3) == 0.0001


def test_what_it_took_before_the_first_look_is_not_counted() -> None:
    """As at an earlier daemon."""
    scene = Scene(most=50.0)
    assert scene.look(100, 60_000)
    assert scene.look(200, 60_001)
    assert scene.urgent.part(3) == 0.0001


@pytest.mark.parametrize("took_ms", [0, 20])
def test_one_that_gets_the_number_of_one_that_left_took_nothing_of_that(took_ms: int) -> None:
    scene = Scene(most=50.0)
    scene.look(100)
    assert not scene.look(200, 6000)
    assert scene.look(300, took_ms)
    assert scene.urgent.part(3) == took_ms / 10_000


def test_one_that_has_just_left_is_nobodys() -> None:
    scene = Scene()
    scene.urgent.look()
    assert scene.page.urgent == {}


def test_one_that_may_take_nothing_waits_as_all_do() -> None:
    assert not Scene(most=0.0).look(100)


def test_one_that_is_critical_no_more_is_said_so() -> None:
    scene = Scene()
    assert scene.look(100)
    scene.criticals = {}
    scene.urgent.look()
    assert scene.page.urgent == {3: False}
    assert scene.urgent.part(3) == 0.0


@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 10**12)), min_size=1, max_size=60))
def test_whatever_is_counted_its_part_is_what_was_added_within_ten_seconds(steps: list[tuple[int, int]]) -> None:
    scene = Scene()
    added: list[tuple[int, int]] = []
    at_ms, before = 0, steps[0][1]
    for passed_ms, counted in steps:
        at_ms += passed_ms
        scene.now_ns, scene.page.counted = at_ms * MS, {3: counted}
        scene.urgent.look()
        if counted < before:
            added, before = [], 0
        added.append((scene.now_ns, counted - before))
        before = counted
        expected = sum(ns for at_ns, ns in added if at_ns > scene.now_ns - WINDOW_NS)
        assert scene.urgent.part(3) == expected / WINDOW_NS
        assert scene.page.urgent[3] == (expected < WINDOW_NS / 2)
