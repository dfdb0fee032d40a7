"""Bursts of GPU time in C: the monitor that the simulator goes by, to the ns."""

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.bursts import KEPT, Bursts
from scheduler.patience import SWITCH_NS
from tests.backend_host.parts import load_parts


@pytest.fixture(scope="module")
def monitor(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = load_parts("burst", ("burst",), tmp_path_factory.mktemp("burst"))
    for name in ("pause_at", "resume_at"):
        getattr(library, name).argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    library.resume_at.restype = ctypes.c_bool
    for name in ("percentile_ns", "last_ns", "gap_ns"):
        getattr(library, name).restype = ctypes.c_uint64
    return library


TIMES = st.one_of(
    st.integers(0, 50), st.integers(1, 2 * SWITCH_NS), st.integers(0, 300_000_000), st.integers(1, 10**10)
)
EVENTS = st.lists(st.tuples(st.sampled_from(("pause", "resume")), TIMES, TIMES), max_size=3 * KEPT)
"""What is said; after how long, and how much of that was GPU time."""


@given(EVENTS, st.one_of(st.just(SWITCH_NS), TIMES))
def test_it_is_the_rule_of_the_simulator(
    monitor: ctypes.CDLL, events: list[tuple[str, int, int]], switch_ns: int
) -> None:
    """Also where a pause is said twice, or goes on that never began."""
    monitor.begin()
    twin, gpu_ns, now_ns = Bursts(), 0, 1
    for said, after_ns, used_ns in events:
        now_ns, gpu_ns = now_ns + after_ns, gpu_ns + min(after_ns, used_ns)
        if said == "pause":
            monitor.pause_at(gpu_ns, now_ns)
            twin.pause(gpu_ns, now_ns)
        else:
            assert monitor.resume_at(switch_ns, now_ns) == twin.resume(switch_ns, now_ns)
        assert (monitor.percentile_ns(), monitor.last_ns(), monitor.gap_ns()) == twin.view()


@given(st.lists(st.tuples(TIMES, TIMES), min_size=KEPT + 1, max_size=3 * KEPT))
def test_it_is_so_where_each_pause_follows_work(monitor: ctypes.CDLL, steps: list[tuple[int, int]]) -> None:
    """GPU time of a piece of work, and the pause behind it: more bursts than are kept, mostly."""
    monitor.begin()
    twin, gpu_ns, now_ns = Bursts(), 0, 10**12
    for used_ns, gap_ns in steps:
        gpu_ns, now_ns = gpu_ns + used_ns, now_ns + used_ns
        monitor.pause_at(gpu_ns, now_ns)
        twin.pause(gpu_ns, now_ns)
        now_ns += gap_ns
        assert monitor.resume_at(SWITCH_NS, now_ns) == twin.resume(SWITCH_NS, now_ns)
        assert (monitor.percentile_ns(), monitor.last_ns(), monitor.gap_ns()) == twin.view()
