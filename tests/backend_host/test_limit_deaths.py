"""A limit and deaths: a worker that is killed behind any instruction of a charge loses that charge at most, and leaves a word that all go on
from."""

import contextlib
import ctypes
import os
import random
from collections.abc import Iterator

import pytest
from backend_host.worker._worker import ffi, lib

from backend_host.device.control import NR_OBJECTS
from tests.backend_host.parts import PAGE, load_parts

MS = 1_000_000
SLICE_NS, LIMIT = 6 * MS, 300
WHOLE = 1_000_000
"""More instructions than a charge has."""
Objects = ctypes.c_int * NR_OBJECTS


@pytest.fixture
def deaths(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    library = load_parts("deaths", PAGE, tmp_path_factory.mktemp("deaths"))
    library.begin.argtypes = [Objects, ctypes.c_uint64, ctypes.c_uint32]
    library.begin.restype = ctypes.c_bool
    library.charge.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    library.charge_and_die.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32]
    library.used_ns.restype = library.limited_until_ns.restype = ctypes.c_uint64
    with contextlib.ExitStack() as stack:
        objects = [os.memfd_create(f"object-{number}") for number in range(NR_OBJECTS)]
        for fd in objects:
            stack.callback(os.close, fd)
        assert library.begin(Objects(*objects), SLICE_NS, LIMIT)
        stack.callback(library.end)
        yield library


def after(word: int, used_ns: int, now_ns: int) -> int:
    rate = ffi.new("struct fgw_rate *", {"permille": LIMIT, "slice_ns": SLICE_NS})[0]
    moved: int = lib.fgw_allowance_after(word, rate, used_ns, now_ns)
    return moved


def test_a_death_behind_any_instruction_loses_one_charge_at_most(deaths: ctypes.CDLL) -> None:
    choice, now_ns = random.Random(31), 10**12
    seen: set[tuple[bool, bool]] = set()
    nr_instructions = nr_died = lost_ns = 0
    if deaths.charge_and_die(now_ns - 1, now_ns, WHOLE) < 0:  # the first one also looks up the functions that it calls
        pytest.skip("a process may not watch another one here")
    while True:
        from_ns = now_ns + choice.randrange(20 * MS)
        now_ns = from_ns + 1 + choice.randrange(10 * MS)
        before, used_ns = deaths.limited_until_ns(), deaths.used_ns()
        outcome = deaths.charge_and_die(from_ns, now_ns, nr_instructions)
        assert outcome >= 0
        charged = deaths.used_ns() - used_ns
        moved = deaths.limited_until_ns()
        assert charged in (0, now_ns - from_ns)
        assert moved in (before, after(before, now_ns - from_ns, now_ns))
        assert charged or moved == before, "the limit counts nothing that was not charged"
        seen.add((charged > 0, moved != before))
        lost_ns += now_ns - from_ns if moved == before else 0
        if outcome == 0:
            break
        nr_died += 1
        nr_instructions += 1
        # Another worker of the vGPU goes on from there.
        from_ns, now_ns = now_ns, now_ns + MS
        before = deaths.limited_until_ns()
        deaths.charge(from_ns, now_ns)
        assert deaths.limited_until_ns() == after(before, MS, now_ns)
    assert seen == {(False, False), (True, False), (True, True)}
    assert nr_died > 50
    assert lost_ns <= nr_died * 10 * MS
