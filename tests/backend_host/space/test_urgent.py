"""Who goes before others: as long as it took less of the last 10 s out of turn than it may, by what its workers count."""

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from backend_host.device.control import ControlPage
from backend_host.entitlement import Entitlement
from backend_host.space.urgent import WINDOW_NS, Urgent

MS = 1_000_000


class Page:
    """What workers count, and what is said of vGPUs."""

    def __init__(self) -> None:
        self.counted: dict[tuple[int, int, int], int] = {}
        """By vGPU, slot and process."""
        self.urgent: dict[int, bool] = {}

    def workers(self) -> list[Any]:
        return [
            SimpleNamespace(vgpu=vgpu, slot=slot, pid=pid, out_of_turn_ns=ns)
            for (vgpu, slot, pid), ns in self.counted.items()
        ]

    def set_urgent(self, vgpu: int, *, is_urgent: bool) -> None:
        self.urgent[vgpu] = is_urgent


class Scene:
    def __init__(self, most: float = 50.0) -> None:
        self.page = Page()
        self.now_ns = 0
        self.criticals = {3: Entitlement(vgpu_class="critical", qos="2", most=most)}
        self.urgent = Urgent(cast(ControlPage, self.page), lambda: self.criticals, lambda: self.now_ns)

    def look(self, at_ms: int, **counted_ms: int) -> bool:
        """By workers `w0`, `w1` in slots of these numbers."""
        self.now_ns = at_ms * MS
        self.page.counted = {(3, int(name[1:]), 100): ms * MS for name, ms in counted_ms.items()}
        self.urgent.look()
        return self.page.urgent[3]


def test_up_to_its_bound_it_goes_first_and_again_once_that_is_over() -> None:
    scene = Scene(most=50.0)
    assert scene.look(100)
    assert scene.look(200, w0=4999)
    assert not scene.look(300, w0=5000)
    assert not scene.look(10_199, w0=5000)
    assert scene.look(10_200, w0=5000), "what it took first is 10 s old"
    assert scene.urgent.part(3) == 0.0001


def test_workers_of_one_vgpu_count_together_and_an_ended_one_is_not_forgotten() -> None:
    scene = Scene(most=50.0)
    assert scene.look(100, w0=3000)
    assert not scene.look(200, w0=3000, w1=2500)
    assert not scene.look(300, w1=2500)
    assert scene.urgent.part(3) == 0.55


def test_one_that_may_take_nothing_waits_as_all_do() -> None:
    assert not Scene(most=0.0).look(100)


def test_one_that_is_critical_no_more_is_said_so() -> None:
    scene = Scene()
    assert scene.look(100)
    scene.criticals = {}
    scene.urgent.look()
    assert scene.page.urgent == {3: False}
    assert scene.urgent.part(3) == 0.0


@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(-(10**12), 10**12)), min_size=1, max_size=60))
def test_whatever_a_worker_counts_its_part_is_what_it_added_within_ten_seconds(steps: list[tuple[int, int]]) -> None:
    scene = Scene()
    added: list[tuple[int, int]] = []
    at_ms = before = 0
    for passed_ms, counted in steps:
        at_ms += passed_ms
        scene.now_ns, scene.page.counted = at_ms * MS, {(3, 0, 1): counted}
        scene.urgent.look()
        added.append((scene.now_ns, max(0, counted - before)))
        before = counted
        expected = sum(ns for at_ns, ns in added if at_ns > scene.now_ns - WINDOW_NS)
        assert scene.urgent.part(3) == expected / WINDOW_NS
        assert scene.page.urgent[3] == (expected < WINDOW_NS / 2)
