"""What a vGPU got of its Gpu lately, and all together: windows that move, vGPUs that come and go, what is kept, and who was active."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_host.history import APART_NS, WINDOWS_S, UseHistory

S = 1_000_000_000


def played(percents: list[int], step_ns: int = S // 2) -> tuple[UseHistory, int, int]:
    """Of a vGPU that used so much of each step; the moment and its GPU time at the end."""
    history, now_ns, used_ns = UseHistory(7 * S), 7 * S, 0
    history.begin(3, now_ns)
    for percent in percents:
        now_ns += step_ns
        used_ns += step_ns * percent // 100
        history.note(now_ns, {3: used_ns, 4: 9 * S})
    return history, now_ns, used_ns


def test_each_window_has_its_share() -> None:
    history, now_ns, used_ns = played([0] * 80 + [30] * 100 + [60] * 18 + [90] * 2)
    assert history.shares(3, now_ns, used_ns) == pytest.approx((0.9, 0.63, 0.3 * 50 / 60 + 0.6 * 9 / 60 + 0.9 / 60))


def test_one_that_is_younger_than_a_window_has_its_share_since_it_came() -> None:
    history, now_ns, used_ns = played([50] * 6)
    assert history.shares(3, now_ns, used_ns) == pytest.approx((0.5,) * 3)
    assert history.shares(3, now_ns + 3 * S, used_ns) == pytest.approx((0.0, 0.25, 0.25))


def test_who_is_not_known_or_has_just_come_has_nothing() -> None:
    history, now_ns, _ = played([])
    assert history.shares(3, now_ns, 0) == history.shares(9, now_ns, 5 * S) == (0.0,) * len(WINDOWS_S)
    history.end(3)
    history.end(3)
    assert history.shares(3, now_ns, S) == (0.0,) * len(WINDOWS_S)


def test_another_in_its_place_begins_anew() -> None:
    history, now_ns, _ = played([100] * 20)
    history.begin(3, now_ns)
    assert history.shares(3, now_ns + S, S // 10) == pytest.approx((0.1,) * 3)


def test_what_all_used_stays_used_when_one_goes() -> None:
    """Two take turns; one goes and another has its place, from nothing."""
    history = UseHistory(0)
    for vgpu in (1, 2):
        history.begin(vgpu, 0)
    history.note(5 * S, {1: 2 * S, 2: 2 * S})
    assert history.all_shares(5 * S, {1: 2 * S, 2: 3 * S}) == pytest.approx((1.0,) * 3), "with what each has by now"
    history.end(1, 3 * S)
    history.begin(1, 10 * S)
    history.note(10 * S, {1: 0, 2: 3 * S})
    assert history.all_shares(10 * S, {}) == pytest.approx((0.4, 0.6, 0.6))
    history.note(70 * S, {1: 0, 2: 3 * S})
    assert history.all_shares(70 * S, {1: S // 2}) == pytest.approx((0.5 / 60, 0.5 / 60, 0.5 / 60))


def test_who_is_active() -> None:
    """Who used the GPU, waited or held it less than a second ago."""
    history = UseHistory(0)
    for vgpu in (1, 2, 3):
        history.begin(vgpu, 0)
    history.note(5 * S, {1: S, 2: 0, 3: 0}, active=[2, 9])
    assert history.active(5 * S, {}) == history.active(6 * S - 1, {}) == {1, 2}
    history.note(6 * S, {1: S, 2: 0, 3: 0})
    assert history.active(6 * S, {}) == set()
    assert history.active(6 * S, {1: S, 2: 1}) == {2}, "by what it has used since the last look"
    history.end(2)
    assert history.active(6 * S, {2: 1}) == set()


@given(st.lists(st.integers(0, 100), min_size=1, max_size=400), st.integers(APART_NS // 50, 2 * S))
def test_no_share_is_less_than_nothing_or_more_than_all(percents: list[int], step_ns: int) -> None:
    history, now_ns, used_ns = played(percents, step_ns)
    assert all(0 <= share <= 1 for share in history.shares(3, now_ns, used_ns))
    assert len(history._kept[3].notes) <= WINDOWS_S[-1] * S // APART_NS + 2
