"""What a standing is made of is two numbers: nobody sees one of them without the other, wherever the daemon or a worker is stopped."""

import contextlib
import ctypes
import os
from collections.abc import Iterator

import pytest

from backend_host.device.control import NR_OBJECTS
from tests.backend_host.parts import PAGE, load_parts

USED_NS = 10**12
WHOLE = 1_000_000
"""More instructions than it takes."""
PAIRS = ((0.0, 1.0), (-3.0 * USED_NS, 4.5), (7.0 * USED_NS, 0.25), (20.0 * USED_NS, 2.0))
"""A standing with nothing charged, and what it grows by with each ns. No two of the sums are equal that they make with each other."""
Objects = ctypes.c_int * NR_OBJECTS
Doubles = ctypes.c_double * 3


def stands(number: int) -> float:
    standing, per_ns = PAIRS[number % len(PAIRS)]
    return standing + per_ns * USED_NS


@pytest.fixture
def standings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    library = load_parts("standings", PAGE, tmp_path_factory.mktemp("standings"))
    library.begin.argtypes = [Objects, ctypes.c_uint64]
    library.begin.restype = ctypes.c_bool
    library.publish.argtypes = [ctypes.c_double, ctypes.c_double]
    library.read_it.restype = ctypes.c_double
    library.publish_and_die.argtypes = [*library.publish.argtypes, ctypes.c_uint32, ctypes.c_void_p]
    library.read_amid.argtypes = [Doubles, Doubles, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p]
    with contextlib.ExitStack() as stack:
        objects = [os.memfd_create(f"object-{number}") for number in range(NR_OBJECTS)]
        for fd in objects:
            stack.callback(os.close, fd)
        assert library.begin(Objects(*objects), USED_NS)
        stack.callback(library.end)
        seen = ctypes.c_double()
        library.publish(*PAIRS[0])
        assert library.read_it() == stands(0)
        if library.publish_and_die(*PAIRS[0], WHOLE, ctypes.byref(seen)) < 0:
            pytest.skip("a process may not watch another one here")
        yield library


def test_a_daemon_that_stops_or_dies_as_it_publishes_leaves_a_whole_standing(standings: ctypes.CDLL) -> None:
    seen, number, nr_instructions = ctypes.c_double(), 0, 0
    values = set()
    while True:
        outcome = standings.publish_and_die(*PAIRS[(number + 1) % len(PAIRS)], nr_instructions, ctypes.byref(seen))
        assert outcome >= 0
        assert seen.value in (stands(number), stands(number + 1))
        assert standings.read_it() == seen.value
        values.add(seen.value == stands(number + 1))
        if outcome == 0:
            break
        # The next daemon goes on from there.
        number, nr_instructions = number + 2, nr_instructions + 1
        standings.publish(*PAIRS[number % len(PAIRS)])
        assert standings.read_it() == stands(number)
    assert values == {False, True}
    assert nr_instructions > 10


@pytest.mark.parametrize("nr", [1, 2, 3])
def test_a_worker_that_stops_as_it_looks_reads_a_whole_standing(standings: ctypes.CDLL, nr: int) -> None:
    """However often another one is published meanwhile."""
    seen, number, nr_instructions = ctypes.c_double(), 0, 0
    values = set()
    while True:
        pairs = [PAIRS[(number + each) % len(PAIRS)] for each in range(1, nr + 1)]
        told = (Doubles(*(pair[0] for pair in pairs)), Doubles(*(pair[1] for pair in pairs)))
        outcome = standings.read_amid(*told, nr, nr_instructions, ctypes.byref(seen))
        assert outcome >= 0
        assert seen.value in (stands(number), stands(number + nr))
        values.add(seen.value == stands(number))
        number += nr
        assert standings.read_it() == stands(number)
        if outcome == 0:
            break
        nr_instructions += 1
    assert values == {False, True}
    assert nr_instructions > 10
