"""What plots have in common: heads, whiskers, and axes of what cannot be below 0."""

import pytest

from benchmarks.style import (
    LESS,
    THEMES,
    at_least,
    due,
    figure_of,
    head,
    limits,
    log_axis,
    round_values,
    spread,
    told_whiskers,
)


def test_whiskers_go_from_the_least_to_the_most() -> None:
    assert spread([[1.0, 2.0, 6.0], [4.0, 4.0]]) == [[2.0, 0.0], [3.0, 0.0]]
    assert told_whiskers([[1.0, 2.0, 6.0]])


def test_what_was_measured_once_has_no_whiskers() -> None:
    assert spread([[2.0], [3.0]]) is None
    assert not told_whiskers([[2.0], [3.0]])
    assert spread([[1.0, 3.0], [3.0]]) == [[1.0, 0.0], [1.0, 0.0]]


def test_an_axis_shows_all_bars_from_zero() -> None:
    least, most = limits([3.0, 60.0, 20.0])
    assert least == 0
    assert 60 < most < 70


def test_what_is_promised_is_not_rounded_up() -> None:
    assert [at_least(0.9999), at_least(0.52), at_least(1.0)] == ["0.99", "0.52", "1.00"]


def test_round_values_go_around() -> None:
    assert round_values(139, 1800) == [100, 200, 500, 1000, 2000]
    assert round_values(0.3, 0.4) == [0.2, 0.5]
    assert round_values(7, 7) == [5, 10]


@pytest.mark.parametrize("theme", THEMES)
def test_a_plot_has_a_finding_and_says_what_it_is_of(theme: str) -> None:
    with figure_of((4, 3), THEMES[theme]) as figure:
        axes = figure.subplots()
        axes.plot([1, 100], [2, 3])
        due(axes, "fair", y=2)
        log_axis(axes.xaxis, [1, 10, 1000])
        axes.set_ylabel(f"us\n{LESS}")
        head(figure, "finding " * 10, {"device": "softgpu", "date": "2026-01-02"}, "How to read it.")
        figure.draw_without_rendering()
        box = figure.get_window_extent()
        for text in (figure._suptitle, figure._supxlabel):
            found = text.get_window_extent()
            assert box.x0 <= found.x0 <= found.x1 <= box.x1, "it is folded where the figure ends"
        assert "softgpu, 2026-01-02. How to read it." in figure._supxlabel.get_text().replace("\n", " ")
        assert axes.get_xscale() == "log"
        assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "10", "1,000"]
