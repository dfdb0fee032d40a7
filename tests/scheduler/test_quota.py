"""How long turns last by bursts: estimates that follow a program, whole bursts, and what is too long for a turn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.quota import DEFAULT_MOST_NS, Quota, turn_ns

MS = 1_000_000
TIMES = st.integers(1, 1 << 40)


def test_it_is_half_what_it_was_and_half_the_estimate() -> None:
    quota = Quota()
    assert quota.learn(20 * MS, 10 * MS) == 15 * MS, "the first one is all there is"
    assert quota.learn(40 * MS, 20 * MS) == (15 * MS + 30 * MS) // 2
    assert quota.last_ns == 22_500_000


@given(TIMES, TIMES)
def test_it_comes_to_what_bursts_take(before_ns: int, burst_ns: int) -> None:
    quota = Quota(before_ns)
    for _ in range(45):
        quota.learn(burst_ns, burst_ns)
    assert abs(quota.last_ns - burst_ns) <= 2


@given(TIMES, TIMES, TIMES)
def test_a_turn_has_whole_bursts_and_one_at_least(quota_ns: int, slice_ns: int, most_ns: int) -> None:
    found_ns = turn_ns(quota_ns, slice_ns, most_ns)
    if quota_ns > most_ns:
        assert found_ns == slice_ns
    else:
        bursts_ns = max(quota_ns, slice_ns - slice_ns % quota_ns)
        assert bursts_ns <= found_ns <= max(most_ns, slice_ns)
        assert found_ns == min(bursts_ns + bursts_ns // 20, max(most_ns, slice_ns)), "a twentieth for pauses"


@pytest.mark.parametrize(
    ("quota_ms", "slice_ms", "turn_ms"),
    [(0, 6, 6), (8, 6, 8.4), (2, 6, 6.3), (4, 6, 4.2), (36, 30, 37.8), (98, 30, 100), (100, 30, 100), (101, 30, 30)],
)
def test_turns_by_hand(quota_ms: int, slice_ms: int, turn_ms: float) -> None:
    assert turn_ns(quota_ms * MS, slice_ms * MS, DEFAULT_MOST_NS) == turn_ms * MS
