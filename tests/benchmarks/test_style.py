"""What plots have in common: bars and axes of what cannot be below 0."""

from benchmarks.plots import limits, round_values, spread
from benchmarks.ratios import Estimate, estimate


def test_an_interval_ends_at_zero() -> None:
    assert spread([Estimate(2.0, 0.5, 3), Estimate(1.0, 3.0, 2)]) == [[0.5, 1.0], [0.5, 3.0]]


def test_what_was_measured_once_has_no_interval() -> None:
    assert spread([estimate([2.0]), estimate([3.0])]) is None
    assert spread([Estimate(2.0, 0.5, 3), Estimate(1.0, None, 1)]) == [[0.5, 0.0], [0.5, 0.0]]


def test_an_axis_shows_all_bars_from_zero() -> None:
    least, most = limits([3.0, 60.0, 20.0])
    assert least == 0
    assert 60 < most < 120


def test_round_values_go_around() -> None:
    assert round_values(139, 1800) == [100, 200, 500, 1000, 2000]
    assert round_values(0.3, 0.4) == [0.2, 0.5]
    assert round_values(7, 7) == [5, 10]
