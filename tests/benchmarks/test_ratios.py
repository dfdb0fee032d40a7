"""The evaluation's arithmetic on figures whose results are known."""

import math

import pytest

from benchmarks.ratios import (
    aggregated_overhead,
    completion_times,
    estimate,
    geometric_mean,
    ideal_throughputs,
    min_max_ratio,
    normalised_throughputs,
    student_t,
    throughput_min_max_ratio,
)


def test_ideal_throughputs_are_parts_by_weight() -> None:
    assert ideal_throughputs([12.0, 12.0, 6.0], [1, 2, 3]) == [2.0, 4.0, 3.0]


def test_min_max_ratio() -> None:
    assert min_max_ratio([2.0, 2.0]) == 1
    assert min_max_ratio([1.0, 4.0, 2.0]) == 0.25
    assert min_max_ratio([0.0, 0.0]) == 0


def test_shares_by_weight_are_fair() -> None:
    assert throughput_min_max_ratio([1.0, 2.0, 3.0], [6.0] * 3, [1, 2, 3]) == pytest.approx(1)
    assert throughput_min_max_ratio([2.0, 2.0, 2.0], [6.0] * 3, [1, 2, 3]) == pytest.approx(1 / 3)


def test_who_gets_more_than_its_part_is_above_one() -> None:
    assert normalised_throughputs([1.0, 5.0], [8.0, 8.0], [1, 3]) == pytest.approx([0.5, 5 / 6])
    assert min(normalised_throughputs([2.0, 2.0, 3.0], [6.0] * 3, [1, 2, 3])) == pytest.approx(1)


def test_programs_of_different_units_can_be_fair() -> None:
    assert throughput_min_max_ratio([50.0, 0.5], [100.0, 1.0], [1, 1]) == pytest.approx(1)


def test_one_that_stands_still_is_not_fair() -> None:
    assert throughput_min_max_ratio([0.0, 1.0], [1.0, 1.0], [1, 1]) == 0


def test_aggregated_overhead_of_one_program_is_the_quotient_of_sums() -> None:
    assert aggregated_overhead([1.0, 2.0, 2.0], [6.0] * 3) == pytest.approx(6 / 5)
    assert aggregated_overhead([3.0, 3.0], [6.0] * 2) == pytest.approx(1)
    assert aggregated_overhead([0.0, 0.0], [6.0] * 2) == math.inf


def test_completion_times() -> None:
    assert completion_times([1.0, 3.0, 0.0], [4.0] * 3, 10) == [40.0, pytest.approx(40 / 3), math.inf]


def test_an_interval_of_known_samples() -> None:
    """The mean of 1..5 is 3, its standard error sqrt(2.5 / 5), Student's t for 4 degrees 2.776."""
    found = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.mean == 3
    assert found.half_width == pytest.approx(2.776 * math.sqrt(0.5))
    assert found.text(2) == "3.00 ± 1.96"


def test_equal_samples_leave_no_interval_and_one_sample_none() -> None:
    assert estimate([2.0] * 30).half_width == 0
    assert estimate([2.0]).half_width is None
    assert estimate([2.0]).text() == "2.000"


def test_students_t_falls_towards_the_normal_distribution() -> None:
    values = [student_t(degrees) for degrees in range(1, 200)]
    assert values == sorted(values, reverse=True)
    assert values[0] == 12.706
    assert student_t(29) == 2.045
    assert student_t(60) == pytest.approx(2.000, abs=0.002)
    assert student_t(10_000) == pytest.approx(1.960, abs=0.001)
    with pytest.raises(ValueError, match="two samples"):
        student_t(0)


def test_geometric_mean() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4)
    assert math.isnan(geometric_mean([]))
