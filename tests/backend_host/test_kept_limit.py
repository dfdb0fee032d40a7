"""Who keeps count of its limit is not blamed for sleeping; the clock is handed in."""

import pytest

from backend_host.device.audit import Claim
from backend_host.device.kept_limit import KeptLimit
from scheduler.allowance import Allowance

MS = 1_000_000
SLICE_NS, LOOK_NS, PERMILLE = 6 * MS, 40 * MS, 905


def claim(used_ns: int, limited_until_ns: int, nr_limits: int = 1) -> Claim:
    return Claim(
        1, used_ns, 0, 0, 1, 0, 0.0, 0.0, 0, False, False, False, PERMILLE, limited_until_ns, nr_limits, SLICE_NS
    )


def looks(kept: KeptLimit, used_ns: int, limited_until_ns: int, from_ns: int, nr: int, nr_limits: int = 1) -> bool:
    """Whether it is blamed at one of so many looks, while it says the same."""
    said, times = claim(used_ns, limited_until_ns, nr_limits), range(from_ns, from_ns + nr * LOOK_NS, LOOK_NS)
    return any([kept.is_put_back(said, SLICE_NS, now_ns) for now_ns in times])


def test_one_that_never_worked_is_not_blamed() -> None:
    assert not looks(KeptLimit(), 0, 0, 5000 * MS, 1000)


def test_one_that_sleeps_is_not_blamed_and_works_on() -> None:
    kept, word, now_ns, used_ns = KeptLimit(), Allowance(PERMILLE, SLICE_NS), 5000 * MS, 0
    assert not looks(kept, 0, 0, now_ns, 2)
    for _ in range(5):
        now_ns += 60_000 * MS
        used_ns += 3 * MS
        word.charge(3 * MS, now_ns)
        assert not looks(kept, used_ns, word.limited_until_ns, now_ns, 1000)


def test_one_that_puts_it_back_is_blamed_also_after_a_sleep() -> None:
    kept, word, now_ns = KeptLimit(), Allowance(PERMILLE, SLICE_NS), 5000 * MS
    assert not looks(kept, 0, 0, now_ns, 1000)
    now_ns += 60_000 * MS
    word.charge(3 * MS, now_ns)
    assert looks(kept, 3 * MS, 0, now_ns, 100)


def test_one_that_got_the_same_limit_anew_is_not_blamed_for_a_word_that_begins_anew() -> None:
    kept, word, now_ns = KeptLimit(), Allowance(PERMILLE, SLICE_NS), 5000 * MS
    assert not looks(kept, 0, 0, now_ns, 100)
    now_ns += 60_000 * MS
    word.charge(3 * MS, now_ns)
    assert not looks(kept, 3 * MS, word.limited_until_ns, now_ns, 2)
    now_ns += 100 * MS
    assert not looks(kept, 3 * MS, 0, now_ns, 100, nr_limits=2)
    assert looks(kept, 6 * MS, 0, now_ns + 60_000 * MS, 100, nr_limits=2)


def busy(kept: KeptLimit, from_ns: int, late_ns: int, *, is_honest: bool) -> bool:
    """Whether one is blamed that uses the device as much as its limit allows, or all the time and puts the word back, before a daemon whose
    looks come in time, then not for so long, and then in time again."""
    word, used_ns, is_blamed = Allowance(PERMILLE, SLICE_NS), 0, False
    late = range(from_ns + 5000 * MS, from_ns + 5000 * MS + late_ns)
    for now_ns in range(from_ns, from_ns + 30_000 * MS + late_ns, MS):
        if word.limited_until_ns <= now_ns or not is_honest:
            word.charge(MS, now_ns)
            used_ns += MS
        if now_ns not in late and now_ns % LOOK_NS == 0:
            said_ns = word.limited_until_ns if is_honest else min(word.limited_until_ns, now_ns)
            is_blamed |= kept.is_put_back(claim(used_ns, said_ns), SLICE_NS, now_ns)
    return is_blamed


@pytest.mark.parametrize("late_ns", [0, 900 * MS, 1500 * MS, 4000 * MS, 30_000 * MS])
def test_nobody_is_blamed_for_a_daemon_that_stood_still(late_ns: int) -> None:
    assert not busy(KeptLimit(), 5000 * MS, late_ns, is_honest=True)


@pytest.mark.parametrize("late_ns", [0, 4000 * MS])
def test_one_that_puts_it_back_is_blamed_whatever_the_daemon_misses(late_ns: int) -> None:
    assert busy(KeptLimit(), 5000 * MS, late_ns, is_honest=False)
