"""A vGPU's limit: what one that obeys can get in any window, at most and at least, and what sleep saves."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.allowance import Allowance, has_limit

MS = 1_000_000

limits = st.integers(1, 999)
slices_ns = st.sampled_from([MS, 6 * MS, 30 * MS, 12_345_678])
starts_ns = st.one_of(st.just(0), st.integers(0, 1 << 60))
ROUNDING_NS = 2
"""Of one charge and one answer."""


@dataclass(frozen=True)
class Run:
    """One that was charged in one piece."""

    begin_ns: int
    end_ns: int

    @property
    def used_ns(self) -> int:
        return self.end_ns - self.begin_ns


class Caller:
    """It obeys: it stops when nothing is left, but for what cannot be stopped, and goes on when it may."""

    def __init__(self, limit: int, slice_ns: int, now_ns: int, as_it_goes: bool = True) -> None:
        self.allowance, self.slice_ns, self.now_ns = Allowance(limit, slice_ns), slice_ns, now_ns
        self.as_it_goes = as_it_goes
        self.runs: list[Run] = []
        self.overshoot_ns = 0

    def work(self, wanted_ns: int, overshoot_ns: int = 0) -> None:
        """One kernel, after a wait if that has to be. If it is as long as all that is left, it lasts longer by `overshoot_ns`."""
        left_ns = self.allowance.left_ns(self.now_ns)
        if left_ns == 0:
            self.now_ns = max(self.now_ns, self.allowance.back_ns(self.slice_ns))
            left_ns = self.allowance.left_ns(self.now_ns)
        used_ns = wanted_ns
        if wanted_ns >= left_ns:
            used_ns = left_ns + overshoot_ns
            self.overshoot_ns = max(self.overshoot_ns, overshoot_ns)
        self.runs.append(Run(self.now_ns, self.now_ns + used_ns))
        # Charged in small pieces it would be cut where it begins, and lag less and less while it goes.
        self.allowance.charge(used_ns, self.now_ns + (0 if self.as_it_goes else used_ns))
        self.now_ns += used_ns


steps = st.lists(
    st.tuples(
        st.one_of(st.just(0), st.integers(0, 400 * MS)),  # asleep before it
        st.integers(1_000, 40 * MS),  # how long the kernel is
        st.one_of(st.just(0), st.integers(0, 300 * MS)),  # what of it cannot be stopped
    ),
    min_size=2,
    max_size=40,
)


@given(limits, slices_ns, starts_ns, steps, st.booleans())
def test_in_no_window_it_gets_more_than_its_limit_and_a_slice(
    limit: int, slice_ns: int, start_ns: int, trace: list[tuple[int, int, int]], as_it_goes: bool
) -> None:
    caller = Caller(limit, slice_ns, start_ns, as_it_goes)
    for asleep_ns, wanted_ns, overshoot_ns in trace:
        caller.now_ns += asleep_ns
        caller.work(wanted_ns, overshoot_ns)
    for first, begin in enumerate(caller.runs):
        used_ns = 0
        for nr, end in enumerate(caller.runs[first:], 1):
            used_ns += end.used_ns
            most = limit * (end.end_ns - begin.begin_ns) / 1000 + slice_ns + caller.overshoot_ns
            assert used_ns <= most + nr * ROUNDING_NS


@given(limits, slices_ns, starts_ns, st.lists(st.integers(1_000, 40 * MS), min_size=2, max_size=40), st.booleans())
def test_one_that_always_has_work_gets_its_limit_but_for_a_slice(
    limit: int, slice_ns: int, start_ns: int, wanted: list[int], is_stopped: bool
) -> None:
    """In any window, wherever that begins and ends. What cannot be stopped is to be paid back first."""
    caller = Caller(limit, slice_ns, start_ns)
    for wanted_ns in wanted:
        caller.work(wanted_ns, 0 if is_stopped else wanted_ns)
    moments_ns = sorted({moment_ns for run in caller.runs for moment_ns in (run.begin_ns, run.end_ns)})
    for first, begin_ns in enumerate(moments_ns):
        for end_ns in moments_ns[first + 1 :]:
            used_ns = sum(run.used_ns for run in caller.runs if begin_ns <= run.begin_ns and run.end_ns <= end_ns)
            least = limit * (end_ns - begin_ns) / 1000 - slice_ns - caller.overshoot_ns
            assert used_ns >= least - len(caller.runs) * ROUNDING_NS


@given(limits, slices_ns, starts_ns, st.integers(0, 1 << 60), st.integers(0, 100 * MS))
def test_sleep_saves_no_more_than_a_slice(
    limit: int, slice_ns: int, start_ns: int, asleep_ns: int, used_ns: int
) -> None:
    """What it can have at one go is a slice, and what it earns while it has that."""
    allowance = Allowance(limit, slice_ns)
    allowance.charge(used_ns, start_ns)
    left_ns = allowance.left_ns(start_ns + used_ns + asleep_ns)
    assert left_ns * (1000 - limit) <= slice_ns * 1000


def test_by_hand() -> None:
    """A quarter of the GPU, slices of 6 ms: in a depth of 24 ms 6 ms are had."""
    allowance = Allowance(250, 6 * MS)
    assert allowance.depth_ns == 24 * MS
    assert allowance.left_ns(0) == 0
    assert allowance.left_ns(100 * MS) == 8 * MS
    allowance.charge(8 * MS, 108 * MS)
    assert allowance.limited_until_ns == (84 + 32) * MS
    assert allowance.left_ns(108 * MS) == 0
    assert allowance.back_ns(6 * MS) == (116 + 18) * MS
    assert allowance.left_ns(134 * MS) == 6 * MS
    assert allowance.left_ns(1000 * MS) == 8 * MS
    assert allowance.limited_until_ns == 116 * MS, "asking changes nothing"


@pytest.mark.parametrize("permille", [-1, 0, 1000, 1001])
def test_no_limit_is_no_allowance(permille: int) -> None:
    assert not has_limit(permille)
    with pytest.raises(ValueError, match="permille"):
        Allowance(permille, MS)


@pytest.mark.parametrize("permille", [1, 500, 999])
def test_limits(permille: int) -> None:
    assert has_limit(permille)
