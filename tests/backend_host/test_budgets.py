"""How long turns last by the bursts that workers publish: programs that come and go, several of one vGPU, and what a hostile one may say."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_host.budgets import Budgets
from backend_host.device.readings import WorkerReading, WorkerState
from scheduler.quota import LOOK_NS
from tests.backend_host.test_watchdog import worker

MS = 1_000_000
SLICE_NS, MOST_NS = 6 * MS, 100 * MS


def program(slot: int, vgpu: int, nr: int, burst_ms: float, last_ms: float | None = None) -> WorkerReading:
    burst_ns, last_ns = int(burst_ms * MS), int((burst_ms if last_ms is None else last_ms) * MS)
    reading = worker(slot, vgpu, pid=1000 + slot)
    return dataclasses.replace(reading, nr_bursts=nr, burst_ns=burst_ns, last_burst_ns=last_ns)


@pytest.fixture
def budgets() -> Budgets:
    return Budgets(MOST_NS)


def test_a_vgpu_has_the_turn_of_its_longest_program(budgets: Budgets) -> None:
    budgets.look([program(0, 3, 1, 8), program(1, 3, 1, 20), program(2, 4, 1, 2.5), program(3, 5, 0, 0)], SLICE_NS, 0)
    assert [budgets.of(vgpu) for vgpu in (3, 4, 5, 6)] == [21 * MS, 5.25 * MS, None, None]


def test_it_follows_while_there_are_new_bursts_and_stays_else(budgets: Budgets) -> None:
    budgets.look([program(0, 1, 1, 10)], SLICE_NS, 0)
    for _ in range(5):
        budgets.look([program(0, 1, 2, 20)], SLICE_NS, 0)
        assert budgets.of(1) == 15.75 * MS, "one burst more is learnt once"
    budgets.look([program(0, 1, 3, 20)], SLICE_NS, 0)
    assert budgets.of(1) == 18_375_000


def test_another_program_in_its_place_begins_anew(budgets: Budgets) -> None:
    budgets.look([program(0, 1, 9, 50)], SLICE_NS, 0)
    budgets.look([dataclasses.replace(program(0, 1, 1, 8), pid=77)], SLICE_NS, 0)
    assert budgets.of(1) == 8.4 * MS
    budgets.look([dataclasses.replace(program(0, 1, 1, 8), pid=77, state=WorkerState.ENDED)], SLICE_NS, 0)
    assert budgets.of(1) is None


def test_looks_are_apart(budgets: Budgets) -> None:
    assert budgets.is_due(0)
    budgets.look([], SLICE_NS, 5)
    assert not budgets.is_due(4 + LOOK_NS)
    assert budgets.is_due(5 + LOOK_NS)


NUMBERS = st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=10))
def test_whatever_a_worker_publishes_no_turn_is_longer_than_the_most(said: list[tuple[int, int, int]]) -> None:
    budgets = Budgets(MOST_NS)
    for nr, burst_ns, last_ns in said:
        reading = dataclasses.replace(worker(0, 1, pid=9), nr_bursts=nr, burst_ns=burst_ns, last_burst_ns=last_ns)
        budgets.look([reading], SLICE_NS, 0)
        assert budgets.of(1) is None or 0 < budgets.of(1) <= MOST_NS  # type: ignore[operator]
