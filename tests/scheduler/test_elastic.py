"""The elastic policy: shares against their definition, equality with fair queuing, requests over random histories, others that come and go."""

import random
from collections.abc import Callable
from fractions import Fraction
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler import elastic
from scheduler.elastic import ACTIVE_NS, Claim, Elastic, allotments
from scheduler.fair import PARTS_OF_WEIGHT, FairQueuing
from scheduler.first_come import FirstCome
from scheduler.policy import Bounded, Policy, Standing, exact_share
from tests.scheduler.choosing import Choosing, tell
from tests.scheduler.histories import History, Shares, play, shares_while_bounds_change, work

MS = 1_000_000
shares = st.integers(0, 1000).map(lambda permille: Fraction(permille, 1000))
claims_of = st.dictionaries(
    st.integers(0, 20), st.builds(Claim, st.integers(1, 10_000).map(Fraction), shares, shares), max_size=8
)


def claim(request: int, limit: int = 100, weight: int = 1) -> Claim:
    """In percent."""
    return Claim(Fraction(weight), Fraction(request, 100), Fraction(limit, 100))


def poured(ranges: list[tuple[Fraction, Fraction, Fraction]], total: Fraction) -> list[Fraction]:
    """Shares by filling up to a level that is looked for by halves."""
    low, high = Fraction(0), Fraction(1)
    for _ in range(60):
        level = (low + high) / 2
        filled = [min(max(level * weight, least), most) for weight, least, most in ranges]
        low, high = (low, level) if sum(filled) >= total else (level, high)
    return [min(max(high * weight, least), most) for weight, least, most in ranges]


@given(claims_of)
@example({1: claim(0, 0), 2: claim(0, 0)})
@example({1: claim(90), 2: claim(60, 80), 3: claim(70, 20)})
def test_shares_are_what_the_rule_says(claims: dict[int, Claim]) -> None:
    got = allotments(claims)
    least = {vgpu: min(claim.request, claim.limit) for vgpu, claim in claims.items()}
    if sum(least.values()) > 1:
        least = {vgpu: share / sum(least.values()) for vgpu, share in least.items()}
    total = min(Fraction(1), sum((claim.limit for claim in claims.values()), Fraction(0)))
    assert got.keys() == claims.keys()
    assert sum(got.values()) == total
    assert all(least[vgpu] <= got[vgpu] <= claims[vgpu].limit for vgpu in claims)
    levels = {vgpu: got[vgpu] / claims[vgpu].weight for vgpu in claims}
    raised = [levels[vgpu] for vgpu in claims if got[vgpu] > least[vgpu]]
    capped = [levels[vgpu] for vgpu in claims if got[vgpu] < claims[vgpu].limit]
    assert not raised or not capped or max(raised) <= min(capped), "by weight, where no bound says otherwise"
    by_halves = poured([(claims[vgpu].weight, least[vgpu], claims[vgpu].limit) for vgpu in claims], total)
    assert all(abs(got[vgpu] - share) < Fraction(1, 10**9) for vgpu, share in zip(claims, by_halves, strict=True))


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({1: claim(30, 60)}, {1: 60}),
        ({1: claim(30, 60), 2: claim(40, 60)}, {1: 50, 2: 50}),
        ({1: claim(30, 60), 2: claim(40, 60), 3: claim(30, 40)}, {1: 30, 2: 40, 3: 30}),
        ({1: claim(30, 60), 3: claim(30, 40)}, {1: 60, 3: 40}),
        ({1: claim(0, 10), 2: claim(0, 20)}, {1: 10, 2: 20}),
        ({1: claim(50), 2: claim(0, weight=9)}, {1: 50, 2: 50}),
        ({1: claim(50), 2: claim(0), 3: claim(0, 10), 4: claim(0, weight=3)}, {1: 50, 2: 10, 3: 10, 4: 30}),
        ({1: claim(80), 2: claim(80)}, {1: 50, 2: 50}),
        ({}, {}),
    ],
)
def test_shares_by_hand(claims: dict[int, Claim], expected: dict[int, int]) -> None:
    """The first four are Gemini's figure 13: programs join, and the second one leaves."""
    assert allotments(claims) == {vgpu: Fraction(percent, 100) for vgpu, percent in expected.items()}


def test_percent_with_one_decimal_are_exact() -> None:
    assert sum(exact_share(percent / 100) for percent in (33.3, 33.3, 33.4)) == 1


def test_it_is_bounded_and_others_are_not() -> None:
    assert isinstance(Elastic(), Bounded)
    assert not isinstance(FairQueuing(), Bounded)


class Both:
    """Fair queuing and the elastic policy, told the same. They are to stand the same after each event, for whoever there is."""

    name = "both"

    def __init__(self, elastic: Elastic) -> None:
        self.elastic = elastic
        self.fair = FairQueuing()

    def __getattr__(self, event: str) -> Callable[..., None]:
        def tell(vgpu: int, *arguments: int) -> None:
            getattr(self.fair, event)(vgpu, *arguments)
            getattr(self.elastic, event)(vgpu, *arguments)
            for other in range(8):
                self.standing(other, arguments[-1])

        return tell

    def standing(self, vgpu: int, now_ns: int) -> Standing:
        standing = self.fair.standing(vgpu, now_ns)
        assert self.elastic.standing(vgpu, now_ns) == standing
        return standing


NAMES = (
    *("joined", "left", "weight_changed", "backlogged", "backlogged", "blocked"),
    *("dispatched", "charged", "indebted", "next"),
)
events_of = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.integers(0, 5),
        st.integers(1, 90 * MS),
        st.sampled_from((0, MS, 20 * MS, ACTIVE_NS - 1, ACTIVE_NS, 3 * ACTIVE_NS)),
    ),
    max_size=80,
)


@given(events_of, st.sampled_from(("untold", "told", "asleep")))
@settings(max_examples=300, deadline=None)
def test_without_bounds_it_is_fair_queuing_event_by_event(events: list[tuple[str, int, int, int]], bounds: str) -> None:
    """Where nobody has bounds, where all were told that they have none, and where one has some that is never active."""
    both = Both(Elastic())
    if bounds == "asleep":
        both.joined(7, 3, 0)
        both.elastic.bounds_changed(7, 0.5, 0.7, 0)
    policy, now_ns = Choosing(both), 0
    with patch.object(elastic, "allotments", side_effect=AssertionError("computed weights without bounds")):
        for event in events:
            now_ns += event[3]
            tell(policy, event, now_ns)
            if bounds == "told" and event[0] == "joined":
                both.elastic.bounds_changed(event[1], 0, 1, now_ns)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(0, 2**32), st.integers(1, 100))
@settings(deadline=None)
def test_the_bound_of_fair_queuing_holds_without_bounds(weights: list[int], seed: int, nr: int) -> None:
    play(History(Elastic(owed_ns=MS), weights, MS), random.Random(seed), nr)
    play(History(Both(Elastic()), weights, 100 * MS), random.Random(seed), nr)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=5), st.integers(0, 2**32), st.integers(1, 250), st.booleans())
@settings(max_examples=60, deadline=None)
def test_who_always_has_work_gets_its_request(weights: list[int], seed: int, nr: int, changing: bool) -> None:
    rng = random.Random(seed)

    def draw() -> Claim:
        request = rng.choice((0, 50, 100, 200))
        limit = rng.choice((request + 100, 600, 1000))
        return Claim(Fraction(rng.choice(weights)), Fraction(request, 1000), Fraction(limit, 1000))

    claims = [draw()._replace(weight=Fraction(weight)) for weight in weights]
    work(Shares(Elastic(owed_ns=MS), claims, MS), rng, nr, draw if changing else None)


@given(st.integers(0, 2**32))
@example(142)
@example(413)
@settings(max_examples=20, deadline=None)
def test_a_request_holds_soon_after_each_change_however_others_pause(seed: int) -> None:
    """Also where requests sum to all of the GPU, and those without one lead by minutes."""
    for request, share in shares_while_bounds_change(Elastic(), random.Random(seed)):
        assert share >= request - 0.02


@pytest.mark.parametrize("policy", [FairQueuing(owed_ns=MS), FirstCome()])
def test_a_policy_that_ignores_requests_does_not_give_them(policy: Policy) -> None:
    """So that the property test is known to be able to fail. The elastic policy passes where these do not."""
    claims = [claim(70), claim(0, weight=4), claim(0, weight=4)]
    work(Shares(Elastic(owed_ns=MS), claims, MS), random.Random(3), 800)
    with pytest.raises(AssertionError, match="are due"):
        work(Shares(policy, claims, MS), random.Random(3), 800)


def bounded_policy(bounds: dict[int, tuple[float, float]]) -> Choosing[Elastic]:
    """All wait, with weights of 1."""
    policy = Choosing(Elastic())
    for vgpu, (request, limit) in bounds.items():
        policy.joined(vgpu, 1, 0)
        policy.policy.bounds_changed(vgpu, request, limit, 0)
        policy.backlogged(vgpu, 0)
    return policy


def turns(policy: Choosing[Elastic], nr_turns: int, begin_ns: int) -> dict[int, float]:
    """Of so many turns of 1 ms the part that each had."""
    had: dict[int, float] = {}
    for now_ns in range(begin_ns, begin_ns + nr_turns * MS, MS):
        choice = policy.pick(now_ns)
        assert choice is not None
        policy.dispatched(choice, now_ns)
        policy.charged(choice, MS, now_ns + MS)
        policy.backlogged(choice, now_ns + MS)
        had[choice] = had.get(choice, 0) + 1 / nr_turns
    return had


FIGURE_13 = {1: (0.3, 0.6), 2: (0.4, 0.6), 3: (0.3, 0.4)}


def test_programs_join_and_leave() -> None:
    policy = bounded_policy({1: FIGURE_13[1], 2: FIGURE_13[2]})
    assert turns(policy, 1000, 0) == pytest.approx({1: 0.5, 2: 0.5}, abs=0.003)
    policy.joined(3, 1, 1000 * MS)
    policy.policy.bounds_changed(3, *FIGURE_13[3], 1000 * MS)
    policy.backlogged(3, 1000 * MS)
    assert turns(policy, 1000, 1000 * MS) == pytest.approx({1: 0.3, 2: 0.4, 3: 0.3}, abs=0.003)
    policy.left(2, 2000 * MS)
    assert turns(policy, 1000, 2000 * MS) == pytest.approx({1: 0.6, 3: 0.4}, abs=0.006)


def growths(policy: Choosing[Elastic], *vgpus: int) -> list[float]:
    return [round(policy.standing(vgpu, 0).per_ns, 3) for vgpu in vgpus]


def test_who_sleeps_for_a_second_is_counted_until_then_and_again_when_it_wakes() -> None:
    policy = bounded_policy({1: (0.6, 1), 2: (0, 1), 3: (0, 1)})
    all_three = [round(share, 3) for share in (1 / 1.8, 1 / 0.6, 1 / 0.6)]
    assert growths(policy, 1, 2, 3) == all_three
    policy.blocked(1, 5 * MS)
    turns(policy, 900, 5 * MS)
    assert growths(policy, 1, 2, 3) == all_three
    turns(policy, 100, 905 * MS)
    assert growths(policy, 1, 2, 3) == [1, 1, 1]
    before = policy.standing(2, 0).value
    policy.backlogged(1, 1500 * MS)
    assert growths(policy, 1, 2, 3) == all_three
    assert policy.standing(2, 0).value == before, "a tag stays"
    assert turns(policy, 1000, 1500 * MS)[1] == pytest.approx(0.6, abs=0.01)


@pytest.mark.parametrize("state", ["waiting", "holding", "charged"])
def test_who_waits_or_holds_or_is_charged_is_active_however_long(state: str) -> None:
    policy = bounded_policy({1: (0.6, 1), 2: (0, 1), 3: (0, 1)})
    if state == "holding":
        policy.dispatched(1, 0)
    elif state == "charged":
        policy.blocked(1, 0)
    for now_ns in range(0, 5 * ACTIVE_NS, ACTIVE_NS // 2):
        if state == "charged":
            policy.charged(1, 1, now_ns)
        policy.charged(2, MS, now_ns)
    assert growths(policy, 1, 2) == [round(1 / 1.8, 3), round(1 / 0.6, 3)]


def test_weights_are_computed_when_something_changed_and_at_no_other_event() -> None:
    policy = bounded_policy({1: (0.6, 1), 2: (0, 1), 3: (0, 1)})
    with patch.object(elastic, "allotments", wraps=allotments) as computed:
        turns(policy, 100, 0)
        policy.blocked(3, 100 * MS)
        policy.backlogged(3, 200 * MS)
        assert computed.call_count == 0
        policy.weight_changed(2, 5, 200 * MS)
        policy.policy.bounds_changed(2, 0.1, 1, 200 * MS)
        policy.left(3, 200 * MS)
        assert computed.call_count == 3
        policy.left(1, 200 * MS)
        policy.policy.bounds_changed(2, 0, 1, 200 * MS)
        assert computed.call_count == 4, "the last bound is gone"
    assert growths(policy, 2) == [0.2]


def test_one_that_leaves_takes_its_bounds_along() -> None:
    policy = bounded_policy({1: (0.6, 1), 2: (0, 1)})
    policy.left(1, 0)
    policy.policy.bounds_changed(1, 0.6, 1, 0)
    policy.joined(1, 1, 0)
    policy.backlogged(1, 0)
    assert growths(policy, 1, 2) == [1, 1]


def test_limits_of_nothing_leave_weights_alone() -> None:
    assert growths(bounded_policy({1: (0, 0), 2: (0.4, 0)}), 1, 2) == [1, 1]


def test_asking_changes_nothing() -> None:
    """Not even after a time in which somebody is active no more: events alone change where others stand."""
    policy = bounded_policy({1: (0.6, 1), 2: (0, 1), 3: (0, 1)})
    policy.blocked(1, 0)
    for vgpu in (1, 2, 3):
        assert policy.standing(vgpu, 5 * ACTIVE_NS) == policy.standing(vgpu, 5 * ACTIVE_NS)
    assert growths(policy, 2) == [round(1 / 0.6, 3)]
    policy.charged(2, 1, 5 * ACTIVE_NS)
    assert growths(policy, 2) == [1]


def test_a_share_of_nothing_is_one_part() -> None:
    policy = bounded_policy({1: (0.6, 1), 2: (0.4, 1), 3: (0, 1)})
    assert policy.standing(3, 0).per_ns == PARTS_OF_WEIGHT


def test_who_had_nothing_is_not_in_debt_for_it_later() -> None:
    """One turn at a weight of one part is 65,536 turns ahead. That is forgotten with the weight: it overran a turn."""
    policy = bounded_policy({1: (0.6, 1), 2: (0.4, 1), 3: (0, 1)})
    assert turns(policy, 1000, 0)[3] == pytest.approx(0.001)
    policy.left(1, 1000 * MS)
    assert turns(policy, 100, 1000 * MS)[3] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("leaver", [None, 3])
def test_a_pause_of_all_others_is_none_of_their_credit_when_weights_change(leaver: int | None) -> None:
    """For a moment the one with next to nothing is the only active one, and leads by a minute. The others are not owed that by each other."""
    policy = bounded_policy({1: (0.7, 1), 2: (0.3, 1), 3: (0, 1)})
    assert turns(policy, 100, 0)[3] == pytest.approx(0.01)
    for vgpu in (1, 2):
        policy.blocked(vgpu, 100 * MS)
    for vgpu in (1, 2):
        policy.backlogged(vgpu, 101 * MS)
    begin_ns = 101 * MS
    if leaver:
        policy.blocked(leaver, begin_ns)
        turns(policy, 1000, begin_ns)
        begin_ns += 1000 * MS
        policy.backlogged(leaver, begin_ns)
        assert turns(policy, 1000, begin_ns).get(leaver, 0) <= 0.001
        begin_ns += 1000 * MS
    policy.policy.bounds_changed(1, 0, 1, begin_ns)
    assert turns(policy, 900, begin_ns) == pytest.approx({1: 1 / 3, 2: 1 / 3, 3: 1 / 3}, abs=0.08)
