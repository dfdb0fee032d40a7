"""How many of a worker's submissions share a mark while others wait: each mark takes the device a moment."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from backend_host.worker.build_ffi import HERE, INCLUDES, WARNINGS

SLICE_NS, MARK_NS, PART = 30_000_000, 100_000, 8
MOST = 512


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """queue.c by itself; what else it asks for is not called."""
    built = tmp_path_factory.mktemp("queue") / "queue.so"
    includes = [f"-I{folder}" for folder in INCLUDES]
    sources = [str(Path(__file__).with_name("queue.c")), str(HERE / "queue.c"), str(HERE / "gate.c")]
    subprocess.run(["gcc", *WARNINGS, *includes, "-shared", "-fPIC", "-o", str(built), *sources], check=True)
    library = ctypes.CDLL(str(built), mode=1)  # RTLD_LAZY
    library.fill.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_bool, ctypes.c_void_p, ctypes.c_uint32]
    return library


def marks_of(queue: ctypes.CDLL, mean_ns: int, *, is_preemptive: bool) -> list[int]:
    """Submissions of each mark, in a queue that was filled for a whole slice."""
    marks = (ctypes.c_uint32 * MOST)()
    nr = queue.fill(SLICE_NS, mean_ns, is_preemptive, ctypes.byref(marks), MOST)
    return list(marks[:nr])


@pytest.mark.parametrize("is_preemptive", [True, False])
@pytest.mark.parametrize("mean_ns", [60_000, 100_000, 157_000, 500_000, 3_000_000, 40_000_000])
def test_marks_are_few_early_in_a_slice_and_close_to_its_end(
    queue: ctypes.CDLL, mean_ns: int, is_preemptive: bool
) -> None:
    marks = marks_of(queue, mean_ns, is_preemptive=is_preemptive)
    assert 1 <= len(marks) <= 48, "as many as there are steps from 1/8 of what is left, and of 0.1 ms at the end"
    begun_ns = 0
    for nr in marks:
        left_ns = SLICE_NS - begun_ns
        begun_ns += nr * mean_ns
        assert nr == 1 or nr * mean_ns <= max(left_ns // PART, MARK_NS) + mean_ns
    assert SLICE_NS - begun_ns < max(MARK_NS, mean_ns) + mean_ns, "the last one is at the end"
    assert marks[-1] == max(1, MARK_NS // mean_ns)


def test_nothing_shares_a_mark_while_no_length_is_known(queue: ctypes.CDLL) -> None:
    assert set(marks_of(queue, 0, is_preemptive=True)) == {1}
