"""Memory that is copied ahead of a change of devices, while its program allocates, frees and writes: what lies there in the end is what was."""

import ctypes
import random
from collections.abc import Callable, Iterator

import pytest

from tests.backend_host.parts import load_parts

STEP = 2 << 20
PIECE = 128
"""Steps that are copied at once."""
BASE = 0x2000_0000_0000
NR_STEPS = 6 * PIECE
"""Of addresses that extents may have."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """replay/ahead.c by itself."""
    library = load_parts("ahead_blocks", ["ahead", "ranges"], tmp_path_factory.mktemp("ahead"))
    for name in ("allocate", "write_block"):
        getattr(library, name).argtypes = [ctypes.c_uint64] * 2
    for name in ("release", "read_block"):
        getattr(library, name).argtypes = [ctypes.c_uint64]
    for name in ("read_block", "end"):
        getattr(library, name).restype = ctypes.c_uint64
    for name in ("take_round", "exchange"):
        getattr(library, name).restype = ctypes.c_char_p
    library.begin.restype = ctypes.c_bool
    return library


class Program:
    """Its extents, by where they begin in steps, and the number in each step of them."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library, self.extents = library, dict[int, list[int]]()
        self.does: Callable[[], None] = lambda: None
        """What it does while the lock is free."""
        self._asked = ctypes.CFUNCTYPE(None)(self._ask)
        assert library.begin(self._asked)

    def _ask(self) -> None:
        self.does()

    def allocate(self, at: int, values: list[int]) -> None:
        self.library.allocate(BASE + at * STEP, len(values) * STEP)
        self.extents[at] = [0] * len(values)
        for i, value in enumerate(values):
            self.write(at, i, value)

    def free(self, at: int) -> None:
        self.library.release(BASE + at * STEP)
        del self.extents[at]

    def write(self, at: int, i: int, value: int) -> None:
        self.library.write_block(BASE + (at + i) * STEP, value)
        self.extents[at][i] = value

    def take_round(self, does: Callable[[], None] = lambda: None) -> None:
        self.does = does
        assert self.library.take_round() is None

    def exchange(self) -> None:
        assert self.library.exchange() is None

    def check(self) -> None:
        """Its memory is as it left it."""
        for at, values in self.extents.items():
            assert [self.library.read_block(BASE + (at + i) * STEP) for i in range(len(values))] == values, at


@pytest.fixture
def program(library: ctypes.CDLL) -> Iterator[Program]:
    program = Program(library)
    yield program
    assert library.end() == 0, "no memory is left behind"


def test_what_changed_since_it_was_copied_is_copied_again(program: Program) -> None:
    program.allocate(0, [3] * 2 * PIECE)
    program.allocate(2 * PIECE, [0, 4])
    program.take_round(lambda: program.write(0, 5, 7))
    program.take_round()
    program.exchange()
    program.check()


def test_what_comes_in_the_midst_of_a_round_is_copied_whole(program: Program) -> None:
    """In place of others, of which more was copied than there is left of it: zeros of its beginning, too."""
    for nr in range(2):
        program.allocate(nr * PIECE, [1] * PIECE)
    steps = iter(range(NR_STEPS))

    def replace() -> None:
        if next(steps) == 1:
            program.free(0)
            program.free(PIECE)
            program.allocate(0, [0] * 3 * PIECE)

    program.take_round(replace)
    program.take_round()
    program.exchange()
    program.check()


@pytest.mark.parametrize("seed", range(50))
def test_whatever_it_does_meanwhile(program: Program, seed: int) -> None:
    """The last round is as the program stands still."""
    draw = random.Random(seed)

    for at in range(0, 3 * PIECE, PIECE):
        program.allocate(at, [1] * PIECE)

    def do_something() -> None:
        if draw.random() < 0.6:
            return
        if program.extents and draw.random() < 0.5:
            at = draw.choice(list(program.extents))
            program.write(at, draw.randrange(len(program.extents[at])), draw.choice((0, 1, 2)))
        at, nr = draw.choice((0, PIECE, 2 * PIECE)), draw.choice((1, PIECE, 2 * PIECE, 3 * PIECE))
        for other in [
            other for other, values in program.extents.items() if other < at + nr and at < other + len(values)
        ]:
            program.free(other)
        program.allocate(at, [draw.choice((0, 1))] * nr)

    for _ in range(draw.randrange(1, 4)):
        program.take_round(do_something)
    program.take_round()
    program.exchange()
    program.check()
