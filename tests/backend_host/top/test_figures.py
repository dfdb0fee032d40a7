"""What `top` makes of two looks: shares, waits, a minute, and what is not known."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_host.top.bars import bar, curve, scale_of, whole_bar
from backend_host.top.figures import ORDERS, Minute, ordered
from tests.backend_host.top.looking import NAMES, SECOND_NS, after, status_at


def test_shares_and_waits_are_those_of_the_interval() -> None:
    _, figures = after(2)
    assert [row.share for row in figures.vgpus] == pytest.approx([0.1, 0.2, 0.3])
    assert [row.wait_ns for row in figures.vgpus] == [None, 2_000_000, 4_000_000]
    assert figures.gpus[0].share == pytest.approx(0.6)
    assert figures.gpus[0].wait_ns is None


def test_the_first_look_has_the_shortest_window_and_no_wait() -> None:
    _, figures = after(1)
    assert [row.share for row in figures.vgpus] == [0.5] * 3
    assert [row.wait_ns for row in figures.vgpus] == [None] * 3
    assert figures.vgpus[0].minute.shares(4) == [None] * 4


def test_another_vgpu_of_the_name_begins_anew() -> None:
    looks, _ = after(3)
    status = status_at(3)
    status["vgpus"][1]["used_ns"] = 5
    row = looks.add(status).vgpus[1]
    assert (row.share, row.wait_ns) == (0.5, None)
    assert row.minute.shares(2) == [None] * 2


def test_one_that_comes_and_one_that_goes() -> None:
    looks, _ = after(2, NAMES[:2])
    figures = looks.add(status_at(2, NAMES[1:]))
    assert [row.name for row in figures.vgpus] == ["vm1", "vm2"]
    assert figures.vgpus[1].share == 0.5, "new: its own window"


@pytest.mark.parametrize("change", [{"pid": 1}, {"uptime_ns": 5}])
def test_a_restart_begins_anew(change: dict[str, int]) -> None:
    looks, before = after(3)
    figures = looks.add({**status_at(3), **change})
    assert (before.is_restarted, figures.is_restarted) == (False, True)
    assert [row.share for row in figures.vgpus] == [0.5] * 3
    assert not looks.add({**status_at(4), **change, "uptime_ns": status_at(4)["uptime_ns"]}).is_restarted


def test_a_look_at_the_same_moment_has_no_interval() -> None:
    looks, _ = after(1)
    assert [row.share for row in looks.add(copy.deepcopy(status_at(0))).vgpus] == [0.5] * 3


def test_a_minute_keeps_what_it_has_seen() -> None:
    minute = Minute()
    for second in range(200):
        minute.note(second * SECOND_NS, min(second, 170) * SECOND_NS // 2)
    assert minute.shares(6) == pytest.approx([0.5, 0.5, 0.5, 0, 0, 0])
    assert minute.shares(60) == pytest.approx([0.5] * 31 + [0] * 29)


@given(
    st.lists(st.tuples(st.integers(1, 10**10), st.floats(0, 1)), max_size=80),
    st.integers(1, 80),
    st.integers(0, 10**15),
)
def test_curves_tell_what_was_used(steps: list[tuple[int, float]], nr: int, begin_ns: int) -> None:
    """However far looks are apart, a share is between the least and the greatest of them, and what is blank comes first."""
    minute = Minute()
    at_ns, used_ns = begin_ns, 0
    minute.note(at_ns, used_ns)
    seen = []
    for passed_ns, share in steps:
        at_ns, used_ns = at_ns + passed_ns, used_ns + int(passed_ns * share)
        minute.note(at_ns, used_ns)
        seen.append(int(passed_ns * share) / passed_ns)
    shares = minute.shares(nr)
    known = [share for share in shares if share is not None]
    assert len(shares) == nr
    assert shares[nr - len(known) :] == known, "what nobody saw is older"
    assert all(min(seen) - 1e-3 <= share <= max(seen) + 1e-3 for share in known)
    assert bool(known) == bool(steps)


def test_orders() -> None:
    _, figures = after(3)
    names = {order: [row.name for row in ordered(figures.vgpus, order)] for order in ORDERS}
    assert names == {
        "share": ["vm2", "vm1", "vm0"],
        "name": ["vm0", "vm1", "vm2"],
        "memory": ["vm0", "vm1", "vm2"],
        "wait": ["vm2", "vm1", "vm0"],
    }


@pytest.mark.parametrize(
    ("share", "entitled", "scale", "shown"),
    [
        (0.5, None, 1.0, "████    "),
        (0.5, 0.5, 1.0, "████┃   "),
        (0.25, 0.75, 1.0, "██····┃ "),
        (0.75, 0.25, 1.0, "██┃███  "),
        (0.0, None, 1.0, "        "),
        (0.0, 0.5, 0.5, "·······┃"),
        (0.5, 0.5, 0.5, "███████┃"),
        (3.0, 1.0, 1.0, "███████┃"),
        (0.0625, 0.0, 1.0, "┃       "),
        (1 / 64, None, 0.125, "█       "),
        (3 / 64, None, 1.0, "▍       "),
    ],
)
def test_bars(share: float, entitled: float | None, scale: float, shown: str) -> None:
    assert bar(share, entitled, 8, scale).plain == shown


@given(st.floats(0, 5), st.none() | st.floats(0, 1), st.integers(1, 60), st.sampled_from([1 / 8, 1 / 4, 1 / 2, 1.0]))
def test_bars_are_as_wide_as_told(share: float, entitled: float | None, width: int, scale: float) -> None:
    assert len(bar(share, entitled, width, scale).plain) == width


def test_a_bar_of_a_gpu_tells_where_its_whole_ends() -> None:
    assert whole_bar(0.5, 9).plain == "████    │"
    assert whole_bar(2.0, 9).plain == "████████│"


@pytest.mark.parametrize(
    ("used", "got", "is_short"),
    [(1.0, 0.4, False), (1.0, 0.3, True), (0.5, 0.2, False), (0.5, 0.17, True), (1.5, 0.4, False)],
)
def test_who_has_less_than_its_part_of_what_was_used_is_short(used: float, got: float, is_short: bool) -> None:
    """It is entitled to 0.4."""
    looks, _ = after(1)
    status = status_at(1)
    status["gpus"][0]["used_ns"] = status_at(0)["gpus"][0]["used_ns"] + int(used * SECOND_NS)
    status["vgpus"][0].update(used_ns=status_at(0)["vgpus"][0]["used_ns"] + int(got * SECOND_NS), entitled_share=0.4)
    assert looks.add(status).vgpus[0].is_short == is_short
    status["vgpus"][0]["entitled_share"] = None
    assert not after(1)[0].add(status).vgpus[0].is_short


def test_a_curve_tells_nothing_from_not_known() -> None:
    assert curve([None, 0.0, 0.5, 1.0, 7.0]).plain == " ▁▅██"


@pytest.mark.parametrize(
    ("shares", "scale"), [([], 1.0), ([0.1], 1 / 8), ([0.1, 0.2], 1 / 4), ([0.5], 1 / 2), ([2.0], 1.0)]
)
def test_scales(shares: list[float], scale: float) -> None:
    assert scale_of(shares) == scale
