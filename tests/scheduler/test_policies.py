"""What every registered policy keeps, over random histories of events that may repeat, miss or name strangers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.policy import Standing
from scheduler.registry import DEFAULT_POLICY, POLICIES, SIMULATED, UnknownPolicyError, make_policy
from scheduler.simulator.policies.extensions import guest_waiting
from scheduler.simulator.policies.registry import ALL_POLICIES
from scheduler.simulator.settings import Settings, VgpuSpec
from scheduler.simulator.simulation import simulate
from scheduler.simulator.workloads import find_workload
from tests.scheduler.choosing import Choosing, tell

NAMES = (
    *("joined", "left", "weight_changed", "backlogged", "backlogged", "blocked"),
    *("dispatched", "charged", "indebted", "next"),
)
Event = tuple[str, int, int, int]
EVENTS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 6), st.integers(1, 40_000_000), st.integers(0, 20_000_000)),
    max_size=80,
)
every_policy = pytest.mark.parametrize("name", sorted(ALL_POLICIES))


class Waiting:
    """Who is backlogged, kept by hand."""

    def __init__(self) -> None:
        self.members: set[int] = set()
        self.backlogged: set[int] = set()

    def tell(self, event: Event, choice: int | None) -> None:
        kind, vgpu, _, _ = event
        if kind == "joined":
            self.members.add(vgpu)
        elif kind == "left":
            self.members.discard(vgpu)
            self.backlogged.discard(vgpu)
        elif kind == "backlogged":
            self.backlogged |= {vgpu} & self.members
        elif kind in ("blocked", "dispatched"):
            self.backlogged.discard(vgpu)
        elif kind == "next" and choice is not None:
            self.backlogged.discard(choice)


@every_policy
@given(events=EVENTS)
def test_somebody_who_waits_is_picked_whenever_anybody_waits(name: str, events: list[Event]) -> None:
    policy, waiting, now_ns = Choosing(make_policy(name, ALL_POLICIES)), Waiting(), 0
    for event in events:
        now_ns += event[3]
        choice = policy.pick(now_ns)
        tell(policy, event, now_ns)
        waiting.tell(event, choice)
        picked = policy.pick(now_ns)
        assert (picked is None) == (not waiting.backlogged)
        assert picked is None or picked in waiting.backlogged
        assert policy.pick(now_ns) == picked, "asking changes nothing"


@every_policy
@given(events=EVENTS)
def test_the_picked_one_has_the_least_standing(name: str, events: list[Event]) -> None:
    policy, waiting, now_ns = Choosing(make_policy(name, ALL_POLICIES)), Waiting(), 0
    for event in events:
        now_ns += event[3]
        choice = policy.pick(now_ns)
        tell(policy, event, now_ns)
        waiting.tell(event, choice)
        standings = {vgpu: policy.standing(vgpu, now_ns) for vgpu in range(7)}
        assert all(not math.isnan(value) and 0 <= growth < math.inf for value, growth, _ in standings.values())
        picked = policy.pick(now_ns)
        if picked is not None:
            assert standings[picked].value == min(standings[vgpu].value for vgpu in waiting.backlogged)


@every_policy
@given(events=EVENTS)
def test_the_same_events_give_the_same_picks(name: str, events: list[Event]) -> None:
    one, two, now_ns = Choosing(make_policy(name, ALL_POLICIES)), Choosing(make_policy(name, ALL_POLICIES)), 0
    for event in events:
        now_ns += event[3]
        tell(one, event, now_ns)
        tell(two, event, now_ns)
        assert one.pick(now_ns) == two.pick(now_ns)


@every_policy
def test_strangers_and_repetitions_are_harmless(name: str) -> None:
    policy = Choosing(make_policy(name, ALL_POLICIES))
    for event in ("left", "backlogged", "blocked", "dispatched"):
        getattr(policy, event)(77, 0)
    policy.charged(77, 5, 0)
    policy.indebted(77, 5, 0)
    policy.weight_changed(77, 5, 0)
    assert policy.pick(0) is None
    assert policy.standing(77, 0) == Standing(math.inf, 0.0)
    for _ in range(2):
        policy.joined(1, 2, 0)
        policy.backlogged(1, 0)
    assert policy.pick(0) == 1
    for _ in range(2):
        policy.dispatched(1, 1)
        assert policy.pick(1) is None
    for _ in range(2):
        policy.left(1, 2)
    assert policy.pick(2) is None


@every_policy
@pytest.mark.parametrize("nr_cores", [None, 2])
def test_nobody_starves(name: str, nr_cores: int | None) -> None:
    workloads = ("bs", "mm", "kernel-20ms", "sync-50us", "mm-sleep80", "cs")
    vgpus = tuple(VgpuSpec(1 + i % 4, find_workload(workload)) for i, workload in enumerate(workloads))
    report = simulate(Settings(policy=name, vgpus=vgpus, duration_ns=1_500_000_000, nr_cores=nr_cores))
    assert all(vgpu.nr_kernels > 0 for vgpu in report.vgpus)
    assert all(vgpu.wait_max_ns < 700_000_000 for vgpu in report.vgpus)


@every_policy
def test_a_policy_says_what_it_is_called_and_how_guests_wait(name: str) -> None:
    policy = make_policy(name, ALL_POLICIES)
    assert policy.name == name
    assert guest_waiting(policy) == ("poll" if name in ("credit-poll", "strict") else "hybrid")


def test_those_that_must_be_there() -> None:
    assert {"elastic", "fair", "first-come", "credit-poll", "credit-hs", "strict"} <= set(ALL_POLICIES)
    assert DEFAULT_POLICY == "elastic"
    with pytest.raises(
        UnknownPolicyError, match=r"'fairest'.*credit-hs, credit-poll, elastic, fair, first-come, strict"
    ):
        make_policy("fairest", ALL_POLICIES)


def test_those_of_the_simulator_are_known_by_name_alone() -> None:
    assert set(SIMULATED) == set(ALL_POLICIES) - set(POLICIES)
