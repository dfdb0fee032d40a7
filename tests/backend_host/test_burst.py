"""Bursts of GPU time: what ends one, what does not, which are kept, and what is said of them, against the same in Python."""

import ctypes
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backend_host.parts import load_parts

US = 1_000
SWITCH_NS, KEPT, SHORT_DIVISOR = 400 * US, 32, 20


@pytest.fixture(scope="module")
def monitor(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = load_parts("burst", ("burst",), tmp_path_factory.mktemp("burst"))
    for name in ("pause_at", "resume_at"):
        getattr(library, name).argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    library.resume_at.restype = ctypes.c_bool
    for name in ("percentile_ns", "last_ns", "gap_ns"):
        getattr(library, name).restype = ctypes.c_uint64
    return library


@dataclass
class Twin:
    """The rule once more, by lists."""

    bursts: list[int] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)
    pending_ns: int = 0

    def step(self, used_ns: int, gap_ns: int) -> bool:
        self.pending_ns += used_ns
        kept = self.bursts[-KEPT:]
        mean_ns = sum(kept) // len(kept) if kept else self.pending_ns
        if self.pending_ns == 0 or gap_ns <= SWITCH_NS or gap_ns <= mean_ns // SHORT_DIVISOR:
            return False
        self.bursts.append(self.pending_ns)
        self.gaps.append(gap_ns)
        self.pending_ns = 0
        return True

    def view(self) -> tuple[int, int, int]:
        kept, gaps = sorted(self.bursts[-KEPT:]), self.gaps[-KEPT:]
        return (kept[-(-len(kept) * 9 // 10) - 1], self.bursts[-1], sum(gaps) // len(gaps)) if kept else (0, 0, 0)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, 50), st.integers(0, 300_000 * US)),
            st.one_of(st.integers(1, 2 * SWITCH_NS), st.integers(1, 10**10)),
        ),
        max_size=100,
    )
)
def test_it_is_as_in_python(monitor: ctypes.CDLL, steps: list[tuple[int, int]]) -> None:
    """GPU time of a piece of work, and the pause behind it."""
    monitor.begin()
    twin, gpu_ns, now_ns = Twin(), 0, 10**12
    for used_ns, gap_ns in steps:
        gpu_ns, now_ns = gpu_ns + used_ns, now_ns + used_ns + 1
        monitor.pause_at(gpu_ns, now_ns)
        now_ns += gap_ns
        assert monitor.resume_at(SWITCH_NS, now_ns) == twin.step(used_ns, gap_ns)
        assert not monitor.resume_at(SWITCH_NS, now_ns + 10**9), "what goes on has no pause"
        assert (monitor.percentile_ns(), monitor.last_ns(), monitor.gap_ns()) == twin.view()


def test_short_pauses_are_within_a_burst(monitor: ctypes.CDLL) -> None:
    monitor.begin()
    for nr in range(1, 11):
        monitor.pause_at(nr * 100 * US, nr * 2000 * US)
        assert monitor.resume_at(SWITCH_NS, nr * 2000 * US + SWITCH_NS + (nr == 10)) == (nr == 10)
    assert monitor.last_ns() == 10 * 100 * US


def test_five_percent_of_a_long_burst_are_a_short_pause(monitor: ctypes.CDLL) -> None:
    monitor.begin()
    monitor.pause_at(100_000 * US, 1)
    assert not monitor.resume_at(SWITCH_NS, 1 + 5_000 * US)
    monitor.pause_at(150_000 * US, 10**9)
    assert monitor.resume_at(SWITCH_NS, 10**9 + 7_501 * US)
    assert monitor.last_ns() == 150_000 * US
