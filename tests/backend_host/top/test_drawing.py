"""Lines of `top`: as wide as they are told, hosts with several Gpus, names that are somebody's choice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_host.tables import NO_VGPU
from backend_host.top.drawing import Table, gpus, once, percent, remarks
from backend_host.top.figures import Figures, Looks
from tests.backend_host.top.looking import NAMES, after, status_at


def on_gpus(nr: int) -> Figures:
    """Of a host with so many."""
    status = status_at(0)
    [gpu] = status["gpus"]
    status["gpus"] = [{**gpu, "number": number} for number in range(nr)]
    status["vgpus"][1]["gpu_number"] = nr - 1
    return Looks().add(status)


@pytest.mark.parametrize(("nr", "most", "nr_shown"), [(1, 4, 1), (4, 4, 4), (5, 4, 3), (8, None, 8)])
def test_gpus_that_have_no_place_are_counted(nr: int, most: int | None, nr_shown: int) -> None:
    lines = [line.plain for line in gpus(on_gpus(nr).gpus, 80, most)]
    assert sum(line.startswith("GPU ") for line in lines) == nr_shown
    assert lines[nr_shown:] == ([f"... and {nr - nr_shown} more Gpus"] if nr_shown < nr else [])


def test_which_gpu_a_vgpu_is_on_is_told_where_there_are_several() -> None:
    alone, beside = on_gpus(1), on_gpus(3)
    assert "GPU" not in Table(alone.vgpus, 1, 80).head.plain.split()
    table = Table(beside.vgpus, 3, 80)
    assert table.head.plain.split()[:2] == ["vGPU", "GPU"]
    assert [table.row(row).plain.split()[1] for row in beside.vgpus] == ["0", "2", "0"]


@given(st.lists(st.text(min_size=1, max_size=40), max_size=5, unique=True), st.integers(12, 250), st.integers(1, 3))
def test_no_line_is_wider_than_told(names: list[str], width: int, nr_gpus: int) -> None:
    figures = after(3, names)[1]
    table = Table(figures.vgpus, nr_gpus, width)
    lines = [table.head, *map(table.row, figures.vgpus), *gpus(figures.gpus, width)]
    assert max(line.cell_len for line in lines) <= width
    assert len({table.row(row).cell_len for row in figures.vgpus}) <= 1, "figures stand below each other"


def test_names_send_nothing_to_the_terminal() -> None:
    figures = after(2, ["\x1b[2Jvm", "[bold]vm[/bold]"])[1]
    text = "\n".join(line.plain for line in once(figures, 120))
    assert "\x1b" not in text
    assert "[bold]vm[/bold]" in text


def test_columns_give_way_from_the_right() -> None:
    rows = after(3)[1].vgpus
    heads = [Table(rows, 1, width).head.plain.split() for width in (80, 76, 70, 44, 20)]
    assert [head[-1] for head in heads] == ["demand", "programs", "memory", "entitled", "weight"]
    assert all(head[0] == "vGPU" for head in heads)


def test_why_no_program_is_served_stands_first() -> None:
    """And whole: what would make a vGPU is refused, and so is not proposed."""
    sentence = "3 programs are served by an earlier release " + "and " * 40
    for names in ((), NAMES):
        lines = once(Looks().add({**status_at(0, names), "waits_for": sentence}), 80)
        assert lines[0].plain == sentence
        assert not lines[0].no_wrap
        assert NO_VGPU not in [line.plain for line in lines]
    assert NO_VGPU in [line.plain for line in once(Looks().add(status_at(0, ())), 80)]


def test_remarks_that_have_no_place_are_counted() -> None:
    status = status_at(0)
    for vgpu in status["vgpus"]:
        vgpu.update(late_ns=5_000_000_000)
    figures = Looks().add(status)
    assert len(remarks(figures)) == len(NAMES)
    assert [line.plain for line in remarks(figures, 2)][1:] == ["... and 2 more remarks"]
    assert remarks(after(1)[1]) == []


@pytest.mark.parametrize(
    ("share", "text"), [(None, "-"), (0.0, "0.0%"), (0.3333, "33.3%"), (0.9999, "100%"), (1.25, "125%")]
)
def test_percent(share: float | None, text: str) -> None:
    assert percent(share) == text
