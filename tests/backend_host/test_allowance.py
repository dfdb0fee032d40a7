"""A vGPU's limit in C: the same rule as the simulator's, to the ns, in one word that no charge and no moment leads astray."""

import pytest
from backend_host.worker._worker import ffi, lib
from hypothesis import given
from hypothesis import strategies as st

from backend_host.device.control import ControlPage
from scheduler.allowance import Allowance

MS = 1_000_000
USED_UP = 1
LIMITS = st.integers(1, 999)
SLICES = st.integers(1, 100 * MS)
TRACES = st.lists(st.tuples(st.integers(0, 2_000 * MS), st.integers(0, 12_000 * MS)), min_size=1, max_size=40)
"""After how long, and how much is charged."""


def rate(permille: int, slice_ns: int) -> ffi.CData:
    return ffi.new("struct fgw_rate *", {"permille": permille, "slice_ns": slice_ns})[0]


@given(LIMITS, SLICES, TRACES, st.integers(0, 1 << 60))
def test_it_is_the_rule_of_the_simulator(limit: int, slice_ns: int, trace: list[tuple[int, int]], now_ns: int) -> None:
    """The word's lowest bit says that what it may have is used up, so a moment is off by a ns."""
    word, twin = 0, Allowance(limit, slice_ns)
    for nr, (after_ns, used_ns) in enumerate(trace):
        now_ns += after_ns
        word = lib.fgw_allowance_after(word, rate(limit, slice_ns), used_ns, now_ns)
        twin.charge(used_ns, now_ns)
        assert 0 <= twin.limited_until_ns - (word & ~USED_UP) <= nr + 1
        rounded = (nr + 3) * limit // (1000 - limit) + 2
        is_over = (word & ~USED_UP) > now_ns
        assert bool(word & USED_UP) == is_over
        back_ns = lib.fgw_allowance_return_ns(word, rate(limit, slice_ns))
        if is_over:
            assert lib.fgw_allowance_room_ns(word, rate(limit, slice_ns), now_ns) == 0
            assert lib.fgw_allowance_room_ns(word, rate(limit, slice_ns), back_ns - 1) == 0
            assert abs(back_ns - twin.back_ns(slice_ns)) <= nr + 2
            assert abs(lib.fgw_allowance_room_ns(word, rate(limit, slice_ns), back_ns) - slice_ns) <= rounded
        else:
            assert back_ns == 0
            room_ns = lib.fgw_allowance_room_ns(word, rate(limit, slice_ns), now_ns)
            assert 0 <= room_ns - twin.left_ns(now_ns) <= rounded


@given(
    st.integers(0, 2**64 - 1),
    LIMITS,
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**63 - 1),
)
def test_no_word_of_a_worker_that_was_taken_over_stops_it(
    word: int, limit: int, slice_ns: int, used_ns: int, now_ns: int
) -> None:
    """Any word, any budget of a policy, any charge: an answer, and never a division by zero."""
    after = lib.fgw_allowance_after(word, rate(limit, slice_ns), used_ns, now_ns)
    assert lib.fgw_allowance_room_ns(after, rate(limit, slice_ns), now_ns) >= 0
    assert lib.fgw_allowance_return_ns(after, rate(limit, slice_ns)) >= 0
    assert lib.fgw_allowance_changed(word, rate(limit, slice_ns), rate(1000 - limit, slice_ns), now_ns) >= 0


@pytest.mark.parametrize(("before", "after"), [(300, 600), (600, 300), (10, 999)])
def test_what_is_to_be_paid_back_stays_under_another_limit(before: int, after: int) -> None:
    now_ns, used_ns, slice_ns = 10**12, 900 * MS, 6 * MS
    word = lib.fgw_allowance_after(now_ns, rate(before, slice_ns), used_ns, now_ns)
    changed = lib.fgw_allowance_changed(word, rate(before, slice_ns), rate(after, slice_ns), now_ns)
    assert changed & USED_UP
    assert (changed & ~USED_UP) - now_ns == pytest.approx(used_ns * 1000 / after, rel=1e-3)


def test_a_limit_is_changed_and_taken_away_on_the_page() -> None:
    with ControlPage.create(6 * MS) as page:
        vgpu = page.vgpu_take()
        for permille in (300, 125, 0):
            page.set_limit(vgpu, permille)
            reading = page.vgpu(vgpu)
            assert reading is not None
            assert (reading.limit_permille, reading.limited_until_ns) == (permille, 0)
        page.set_limit(vgpu, 300)
        page.vgpu_free(vgpu)
        again = page.vgpu(page.vgpu_take())
        assert again is not None
        assert again.limit_permille == 0
