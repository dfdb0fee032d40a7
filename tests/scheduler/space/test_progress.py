"""Best effort's progress beside rounds, over its own rate alone."""

import pytest

from scheduler.space.progress import MOST_KERNELS, NR_ALONE, Progress


def test_it_is_over_the_rate_alone() -> None:
    progress = Progress()
    progress.ran_alone("a", 1000, 1000)
    progress.ran_beside("a", 300, 1000)
    assert progress.take() == pytest.approx(0.3)
    assert progress.take() == 0.0


def test_stretches_count_by_their_time() -> None:
    progress = Progress()
    progress.ran_alone("a", 1000, 1000)
    progress.ran_beside("a", 0, 1000)
    progress.ran_beside("a", 3000, 3000)
    assert progress.take() == pytest.approx(0.75)


def test_kernels_with_other_blocks_have_other_rates() -> None:
    progress = Progress()
    progress.ran_alone("short", 1000, 1000)
    progress.ran_alone("long", 10, 1000)
    progress.ran_beside("short", 500, 1000)
    progress.ran_beside("long", 5, 1000)
    assert progress.take() == pytest.approx(0.5)


def test_the_rate_alone_is_that_of_the_last_stretches() -> None:
    progress = Progress()
    progress.ran_alone("a", 10**6, 1000)
    for _ in range(NR_ALONE):
        progress.ran_alone("a", 2000, 1000)
    progress.ran_beside("a", 1000, 1000)
    assert progress.take() == pytest.approx(0.5)


def test_until_it_ran_alone_splits_compare_with_the_first() -> None:
    progress = Progress()
    progress.ran_beside("a", 200, 1000)
    assert progress.take() == pytest.approx(1.0)
    progress.ran_beside("a", 300, 1000)
    assert progress.take() == pytest.approx(1.5)
    progress.ran_alone("a", 1000, 1000)
    progress.ran_beside("a", 300, 1000)
    assert progress.take() == pytest.approx(0.3)


def test_empty_stretches_say_nothing() -> None:
    progress = Progress()
    progress.ran_alone("a", 0, 1000)
    progress.ran_alone("a", 10, 0)
    progress.ran_beside("a", 10, 0)
    assert progress.take() == 0.0
    progress.ran_beside("a", 0, 1000)
    assert progress.take() == 0.0


def test_kernels_that_a_guest_makes_up_are_forgotten() -> None:
    progress = Progress()
    progress.ran_alone("a", 1000, 1000)
    for number in range(MOST_KERNELS):
        progress.ran_alone(number, 1, 1)
    progress.ran_beside("a", 100, 1000)
    assert progress.take() == pytest.approx(1.0)
