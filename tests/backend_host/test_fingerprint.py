"""Fingerprints of memory: what the kernel computes is what the polynomials are, and points are drawn."""

import json
import random
import struct
import subprocess
import sys
from pathlib import Path

from backend_host.worker._worker import ffi, lib

from benchmarks.nvcc import find_nvcc
from tests.backend_host.print_player import PRINT_BYTES, THREADS
from tests.backend_host.worker_harness import SOFTGPU

PRIME = 2**61 - 1
NR_WORDS = PRINT_BYTES // 4
POINTS = 2, PRIME - 12345


def taken(content: bytes, points: tuple[int, int] = POINTS) -> list[list[int]]:
    command = [sys.executable, "-m", "tests.backend_host.print_player", str(SOFTGPU), *map(str, points)]
    result = subprocess.run(command, input=content, capture_output=True, check=True)
    found: list[list[int]] = json.loads(result.stdout)
    return found


def exponent(word: int) -> int:
    """Of the point, for a word of a print: a thread reads four at a time, and all threads read what follows each other."""
    step, place = divmod(word, 4 * THREADS)
    return 4 * THREADS * (NR_WORDS // (4 * THREADS) - 1 - step) + place


def expected(words: dict[int, int]) -> list[int]:
    """Of a print that is zero but for these words."""
    bits = 0
    for word in words.values():
        bits |= word
    return [sum(word * pow(point, exponent(i), PRIME) for i, word in words.items()) % PRIME for point in POINTS] + [
        bits
    ]


def content_of(words: dict[int, int]) -> bytes:
    content = bytearray(PRINT_BYTES)
    for i, word in words.items():
        struct.pack_into("<I", content, 4 * i, word)
    return bytes(content)


def test_each_word_has_a_power_of_its_own() -> None:
    assert {exponent(word) for word in range(NR_WORDS)} == set(range(NR_WORDS))


def test_the_kernel_evaluates_the_polynomials() -> None:
    draw = random.Random(5)
    prints = [
        {},
        {0: 1},
        {NR_WORDS - 1: 0xFFFFFFFF},
        {4 * THREADS - 1: 0x80000000, 4 * THREADS: 7},
        {draw.randrange(NR_WORDS): draw.getrandbits(32) for _ in range(3000)},
        dict.fromkeys(range(NR_WORDS), 0xFFFFFFFF),
    ]
    assert taken(b"".join(map(content_of, prints))) == list(map(expected, prints))


def test_what_is_the_prime_itself_is_zero_in_the_field_alone() -> None:
    """Words whose sum at the point 2 is the prime: 2^61 - 1 is 2^32 - 1 once and 2^29 - 1 thirty-two places on."""
    place = 4 * THREADS * (NR_WORDS // (4 * THREADS) - 1)
    words = {place: 0xFFFFFFFF, place + 32: 0x1FFFFFFF}
    [(value, _, bits)] = taken(content_of(words))
    assert (value, bits) == (0, 0xFFFFFFFF)


def test_points_are_drawn_once_in_a_process() -> None:
    def drawn() -> tuple[int, int]:
        points = ffi.new("uint64_t[2]")
        lib.fgw_print_points(points)
        return points[0], points[1]

    first = drawn()
    assert first == drawn()
    assert all(2 <= point < PRIME for point in first)
    assert first[0] != first[1]


def test_nvidias_assembler_takes_the_kernel(tmp_path: Path) -> None:
    assembler = find_nvcc().libraries.parent / "bin" / "ptxas"
    source = tmp_path / "print.ptx"
    source.write_bytes(ffi.string(lib.fgw_print_ptx()))
    for architecture in ("sm_75", "sm_90"):
        subprocess.run([assembler, f"-arch={architecture}", source, "-o", tmp_path / "print.cubin"], check=True)


def scanned(content: bytes, ranges: dict[int, int]) -> int:
    """Ranges by place among eight: address and size."""
    words = [0] * 16
    for place, (address, nr_bytes) in zip((0, 3, 7), ranges.items(), strict=False):
        words[2 * place : 2 * place + 2] = address, nr_bytes
    command = [sys.executable, "-m", "tests.backend_host.print_player", str(SOFTGPU), "scan", *map(str, words)]
    return int(subprocess.run(command, input=content, capture_output=True, check=True).stdout)


def test_words_that_are_addresses_are_found() -> None:
    """From the first byte of a range to the last, wherever such a word stands."""
    ranges = {1 << 40: 64, (1 << 47) - 8: 8, 3: 1}
    around = [(1 << 40) - 1, (1 << 40) + 64, (1 << 47) - 9, 1 << 47, 2, 4, 0, 2**64 - 1]
    filled = [around[i % len(around)] for i in range(4096)]
    assert scanned(struct.pack("<4096Q", *filled), ranges) == 0
    for place, word in ((0, 1 << 40), (1, (1 << 40) + 63), (2049, (1 << 47) - 1), (4094, 3), (4095, (1 << 47) - 8)):
        one = [*filled]
        one[place] = word
        assert scanned(struct.pack("<4096Q", *one), ranges) == word
    assert scanned(struct.pack("<4096Q", *filled), {}) == 0
