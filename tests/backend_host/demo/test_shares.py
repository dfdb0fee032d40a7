"""What the demo draws and judges, from statuses that are made up."""

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from backend_host.demo import shares
from backend_host.demo.shares import Share, Stretch
from backend_host.errors import FairGVError
from backend_host.ipc import Message
from backend_host.top.figures import Row
from tests.backend_host.top.looking import after, status_at

NAMES = ("vm-one", "vm-two")


def status_of(used_ns: Sequence[int], weights: Sequence[int] = (1, 2), second: int = 0) -> Message:
    status = status_at(second, NAMES)
    for entry, used, weight in zip(status["vgpus"], used_ns, weights, strict=True):
        entry.update(used_ns=used, weight=weight)
    return status


def stretch(*used_ns: int, weights: Sequence[int] = (1, 2)) -> Stretch:
    return Stretch.between(status_of((7, 9), weights), status_of((7 + used_ns[0], 9 + used_ns[1]), weights, 15))


def rows() -> list[Row]:
    """Of a second in which they had 10 and 20 percent; they are entitled to 10 and 30."""
    return list(after(2, NAMES)[1].vgpus)


def printed(what: object, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_what_follows_the_weights_is_fair() -> None:
    fair = stretch(500, 1000)
    assert fair.weights == "1:2"
    assert fair.passed_ns == 15 * 10**9
    assert [share.got for share in fair.shares] == pytest.approx([1 / 3, 2 / 3])
    assert [share.due for share in fair.shares] == pytest.approx([1 / 3, 2 / 3])
    assert fair.ratio == pytest.approx(1)
    assert shares.judged([fair, fair]).startswith("Shares follow the weights: ")


def test_half_of_what_the_other_got_of_its_due() -> None:
    unfair = stretch(500, 500, weights=(4, 2))
    assert [share.of_due for share in unfair.shares] == pytest.approx([3 / 4, 3 / 2])
    assert unfair.ratio == pytest.approx(1 / 2)
    assert shares.judged([stretch(500, 1000), unfair]) == (
        "Shares do not follow the weights here: of what was due to it, the worse-off VM got 50% as much as the better-off, "
        "with the weights 4:2; 100% is fair."
    )


@pytest.mark.parametrize(("used", "ratio"), [((0, 0), 0), ((0, 5), 0)])
def test_who_got_nothing(used: tuple[int, int], ratio: float) -> None:
    assert stretch(*used).ratio == ratio


def test_who_has_no_program_any_more_is_named() -> None:
    later = status_of((1, 1))
    later["vgpus"][1]["clients"] = []
    with pytest.raises(FairGVError, match="vm-two: its program has ended"):
        Stretch.between(status_of((0, 0)), later)


@given(st.tuples(*[st.integers(0, 10**12)] * 2), st.tuples(*[st.integers(1, 10_000)] * 2))
def test_parts_make_a_whole_and_no_ratio_is_beyond_one(used: tuple[int, int], weights: tuple[int, int]) -> None:
    one = stretch(*used, weights=weights)
    assert sum(share.due for share in one.shares) == pytest.approx(1)
    assert sum(share.got for share in one.shares) == pytest.approx(1 if any(used) else 0)
    assert 0 <= one.ratio <= 1


@pytest.mark.parametrize("width", [60, 80, 200])
def test_bars_are_as_wide_as_the_terminal_and_read_without_colours(width: int) -> None:
    one, two = (text.plain for text in shares.bars(rows(), width))
    assert len(one) == len(two) <= width - len("^C")
    assert one.startswith("  vm-one  weight 1  █")
    assert one.endswith(" got 10.0% due 10.0%")
    assert two.endswith(" got 20.0% due 30.0%")
    assert "·" in two  # it lacks something up to the mark
    assert two.count("┃") == 1


def test_a_line_for_what_is_no_terminal() -> None:
    assert shares.line(rows()) == "vm-one got 10.0% (due 10.0%), vm-two got 20.0% (due 30.0%)"
    away = rows()[0]
    assert shares.line([replace(away, entry={**away.entry, "entitled_share": None})]) == "vm-one got 10.0% (due -)"


@pytest.mark.parametrize("console", [Console(file=io.StringIO()), Console(file=io.StringIO(), force_terminal=True)])
def test_how_it_is_shown(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is left of the terminal when it is interrupted: a cursor."""
    monkeypatch.setenv("TERM", "xterm")
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt), shares.live(console, said.append) as show:
        show("1 of 2 s", rows())
        raise KeyboardInterrupt
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert said == ([] if console.is_terminal else [shares.line(rows())])
    assert ("1 of 2 s" in text) == ("vm-two" in text) == console.is_terminal
    assert text.rfind("\x1b[?25l") <= text.rfind("\x1b[?25h")


def test_the_table_fits_80_columns() -> None:
    changed = Stretch(8_400_000_000, (Share("vm-one", 4, 0.66, 2 / 3), Share("vm-two", 2, 0.34, 1 / 3)))
    lines = printed(shares.table([stretch(500, 1000), changed]))
    assert max(map(len, lines)) <= 80
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    assert cells == [
        ["1:2, 15 s", "vm-one", "33.3%", "33.3%", "1.00", "1.00"],
        ["", "vm-two", "66.7%", "66.7%", "1.00", ""],
        ["4:2, 8 s", "vm-one", "66.0%", "66.7%", "0.99", "0.97"],
        ["", "vm-two", "34.0%", "33.3%", "1.02", ""],
    ]
