"""What is made of the programs' logs: device time of each vGPU, and the gaps at hand-overs."""

import numpy as np
import pytest

from benchmarks.timeline import SAME_QUEUE_NS, Spans, Timeline, clock_step_ns, device_seconds, gaps_us, switches_us

US = 1000


def spans(*pairs_us: tuple[int, int]) -> Spans:
    return np.array(pairs_us, dtype=np.uint64).reshape(-1, 2) * np.uint64(US)


TWO = [spans((0, 100), (102, 200), (500, 600)), spans((240, 300), (301, 450))]


def test_moments_within_a_queue_are_device_time() -> None:
    first, second = device_seconds(TWO, are_queued=True)
    assert first == pytest.approx(300e-6)
    assert second == pytest.approx(210e-6)


def test_without_a_queue_they_are_pauses() -> None:
    assert device_seconds(TWO, are_queued=False) == pytest.approx((298e-6, 209e-6))


def test_a_pause_is_not() -> None:
    long_us = SAME_QUEUE_NS // US + 1
    (alone,) = device_seconds([spans((0, 10), (10 + long_us, 20 + long_us))], are_queued=True)
    assert alone == pytest.approx(20e-6)


def test_gaps_are_between_kernels_of_different_owners() -> None:
    assert gaps_us(TWO) == pytest.approx((40.0, 50.0))


def test_a_kernel_that_is_taken_off_in_its_middle() -> None:
    """What the other one did meanwhile is the other one's, and such hand-overs have no length."""
    interrupted = [spans((0, 100), (101, 900), (901, 1000), (1300, 1400)), spans((200, 300), (302, 800), (1100, 1200))]
    assert device_seconds(interrupted, are_queued=True) == pytest.approx((499e-6, 700e-6))
    assert gaps_us(interrupted) == pytest.approx((100.0, 100.0))


def test_a_kernel_that_is_taken_off_at_the_end() -> None:
    """It comes back while the other one is on the device in the log, or the log ends with the other."""
    first, second = device_seconds([spans((0, 500))], are_queued=True), [spans((0, 500)), spans((100, 600))]
    assert first == pytest.approx((500e-6,))
    assert device_seconds(second, are_queued=True) == pytest.approx((100e-6, 500e-6))
    assert gaps_us(second) == ()


def test_a_switch_is_from_the_last_sign_of_one_program_to_the_first_of_the_next() -> None:
    taken_off_twice = [spans((0, 20), (21, 300), (301, 321)), spans((160, 180), (181, 460))]
    assert switches_us(taken_off_twice) == pytest.approx((160 - 21, 300 - 181, 460 - 321))


def test_who_has_the_device_alone_is_never_switched() -> None:
    assert switches_us([spans((0, 20), (21, 41))]) == ()


def test_the_step_of_the_clock() -> None:
    assert clock_step_ns(TWO) == US


def test_errors_and_percentiles() -> None:
    timeline = Timeline(50.0, (1.0, 2.0), (1.1, 1.9), (10.0, 20.0, 30.0), 32)
    assert timeline.errors == pytest.approx((0.1, -0.05))
    assert timeline.gap_us(50) == 20.0
