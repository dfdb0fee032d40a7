"""Blocks of a pool against a model: nobody gets what is used, or what somebody else's unfinished work may still use."""

import ctypes
import random
from dataclasses import dataclass

import pytest

from tests.backend_host.parts import load_parts

STEP = 32 << 20
BLOCK = 512
BASE = 0x2000_0000_0000
NR_STREAMS = 4


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """pool_blocks.c by itself."""
    library = load_parts("pool_blocks", ["pool_blocks"], tmp_path_factory.mktemp("blocks"))
    u64, u32, pointer = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p
    library.add.argtypes = [u64, u64]
    library.finish.argtypes = [u32, u64]
    library.take.argtypes = [u64, u32, ctypes.POINTER(pointer)]
    library.give.argtypes = [pointer, u32]
    library.give_at_once.argtypes = [pointer]
    for name in ("grow", "shrink"):
        getattr(library, name).argtypes = [u64]
    for name in ("take", "grow", "shrink", "reserved"):
        getattr(library, name).restype = u64
    library.check.restype = ctypes.c_char_p
    library.begin()
    return library


@dataclass
class Piece:
    """Memory that somebody has, or had: then `stream` and `seq` say until when others may not."""

    address: int
    nbytes: int
    block: int
    stream: int = -1
    seq: int = 0

    def meets(self, other: "Piece") -> bool:
        return self.address < other.address + other.nbytes and other.address < self.address + self.nbytes


class Pool:
    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        library.begin()
        self.used: list[Piece] = []
        self.freed: list[Piece] = []
        self.last = [0] * NR_STREAMS
        self.done = [0] * NR_STREAMS

    def check(self) -> None:
        wrong = self.library.check()
        assert wrong is None, wrong

    def work(self, stream: int) -> None:
        self.library.work(stream)
        self.last[stream] += 1

    def finish(self, stream: int, seq: int) -> None:
        self.library.finish(stream, seq)
        self.done[stream] = seq

    def take(self, nbytes: int, stream: int) -> Piece | None:
        block = ctypes.c_void_p()
        address = self.library.take(nbytes, stream, ctypes.byref(block))
        if not address:
            return None
        piece = Piece(address, -(-nbytes // BLOCK) * BLOCK, block.value or 0)
        assert not any(piece.meets(other) for other in self.used), "somebody has it"
        for other in self.freed:
            if piece.meets(other):
                assert other.stream == stream or self.done[other.stream] >= other.seq, "somebody may still use it"
        self.freed = [rest for other in self.freed for rest in self.without(other, piece)]
        self.used.append(piece)
        return piece

    def without(self, freed: Piece, piece: Piece) -> list[Piece]:
        """What others must still wait for. A stream that has again what it freed frees it in the end: then that counts."""
        if self.done[freed.stream] >= freed.seq:
            return []
        if not freed.meets(piece):
            return [freed]
        ends = (
            (freed.address, piece.address),
            (piece.address + piece.nbytes, freed.address + freed.nbytes),
        )
        return [Piece(begin, end - begin, 0, freed.stream, freed.seq) for begin, end in ends if begin < end]

    def allocate(self, nbytes: int, stream: int) -> Piece | None:
        return self.take(nbytes, stream) or (self.take(nbytes, stream) if self.library.grow(nbytes) else None)

    def free(self, piece: Piece, stream: int) -> None:
        self.library.give(piece.block, stream)
        self.used.remove(piece)
        self.freed.append(Piece(piece.address, piece.nbytes, 0, stream, self.last[stream]))


@pytest.mark.parametrize("seed", range(12))
def test_random_calls_against_a_model(blocks: ctypes.CDLL, seed: int) -> None:
    dice = random.Random(seed)
    pool = Pool(blocks)
    for number in range(3):
        assert blocks.add(BASE + number * 64 * STEP, 8 * STEP)
    for _ in range(1500):
        stream = dice.randrange(NR_STREAMS)
        match dice.randrange(10):
            case 0 | 1 | 2 | 3:
                pool.allocate(int(2 ** dice.uniform(0, 26)), stream)
            case 4 | 5 | 6:
                if pool.used:
                    pool.free(dice.choice(pool.used), stream)
            case 7:
                pool.work(stream)
            case 8:
                pool.finish(stream, dice.randint(pool.done[stream], pool.last[stream]))
            case 9:
                blocks.shrink(dice.randint(1, 3) * STEP)
        pool.check()
        held = sum(piece.nbytes for piece in pool.used)
        assert held <= blocks.reserved() <= 24 * STEP
    for stream in range(NR_STREAMS):
        pool.finish(stream, pool.last[stream])
    for piece in list(pool.used):
        pool.free(piece, 0)
    while blocks.shrink(1 << 40):
        pool.check()
    assert blocks.reserved() == 0


def test_a_stream_has_again_at_once_what_it_freed(blocks: ctypes.CDLL) -> None:
    pool = Pool(blocks)
    assert blocks.add(BASE, 8 * STEP)
    piece = pool.allocate(40 << 20, 1)
    assert piece is not None
    pool.work(1)
    pool.free(piece, 1)
    other = pool.allocate(30 << 20, 2)
    assert other is not None
    assert not other.meets(piece), "its stream is not done"
    again = pool.take(30 << 20, 1)
    assert again is not None
    assert again.address == piece.address
    pool.finish(1, 1)
    rest = pool.take(10 << 20, 2)
    assert rest is not None
    assert rest.address == piece.address + (30 << 20)


def test_a_pool_grows_in_place_by_steps(blocks: ctypes.CDLL) -> None:
    """As an H100's: docs/lab/memory.md."""
    pool = Pool(blocks)
    assert blocks.add(BASE, 64 * STEP)
    for nbytes, reserved in ((1000, 1), (40 << 20, 2), ((40 << 20) + 5, 3)):
        assert pool.allocate(nbytes, 0) is not None
        assert blocks.reserved() == reserved * STEP
    assert [piece.address - BASE for piece in pool.used] == [0, 0x400, 0x2800400]


def test_three_small_ones_and_a_large_one(blocks: ctypes.CDLL) -> None:
    pool = Pool(blocks)
    assert blocks.add(BASE, 64 * STEP)
    for nbytes in (100, 100, 513, 200 << 20):
        assert pool.allocate(nbytes, 0) is not None
    assert blocks.reserved() == 224 << 20
    assert [piece.address - BASE for piece in pool.used] == [0, 0x200, 0x400, 0x800]


def test_what_does_not_fit_is_not_had(blocks: ctypes.CDLL) -> None:
    pool = Pool(blocks)
    assert blocks.add(BASE, 2 * STEP)
    assert pool.allocate(2 * STEP + 1, 0) is None
    assert pool.allocate(2 * STEP, 0) is not None
    assert pool.allocate(1, 0) is None
    pool.check()
