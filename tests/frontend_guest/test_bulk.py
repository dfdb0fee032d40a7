"""Copies between the arena and the program: every byte, and no other, whatever the addresses and lengths, in each of the ways."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from backend_host.config import PACKAGE_ROOT

SOURCE = PACKAGE_ROOT / "frontend_guest/base/bulk.c"
LINE_BYTES = 64
STREAMED_BYTES = 256 * 1024
ROOM_BYTES = STREAMED_BYTES + 4096
UNTOUCHED = b"\xee"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    built = tmp_path_factory.mktemp("bulk") / "bulk.so"
    command = ["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{SOURCE.parents[1]}"]
    subprocess.run([*command, "-o", str(built), str(SOURCE)], check=True)
    return ctypes.CDLL(str(built))


def has_avx512() -> bool:
    return "avx512f" in Path("/proc/cpuinfo").read_text().split()


def check(library: ctypes.CDLL, way: str, to_offset: int, from_offset: int, nbytes: int) -> None:
    """Copies to `to_offset` behind a line's begin, and looks at all that lies around."""
    source = bytes(index * 7 % 251 for index in range(ROOM_BYTES))
    origin = ctypes.create_string_buffer(source, ROOM_BYTES)
    room = ctypes.create_string_buffer(UNTOUCHED * (ROOM_BYTES + LINE_BYTES), ROOM_BYTES + LINE_BYTES)
    base = -ctypes.addressof(room) % LINE_BYTES
    getattr(library, way)(
        ctypes.c_void_p(ctypes.addressof(room) + base + to_offset),
        ctypes.c_void_p(ctypes.addressof(origin) + from_offset),
        ctypes.c_size_t(nbytes),
    )
    wanted = UNTOUCHED * to_offset + source[from_offset : from_offset + nbytes]
    whole = room.raw[base : base + ROOM_BYTES]
    assert whole == wanted + UNTOUCHED * (ROOM_BYTES - len(wanted))


@pytest.mark.parametrize("to_offset", [0, 1, 63])
@pytest.mark.parametrize("from_offset", [0, 5])
@pytest.mark.parametrize("nbytes", [0, 1, STREAMED_BYTES - 1, STREAMED_BYTES, STREAMED_BYTES + 63, STREAMED_BYTES + 65])
def test_a_copy_is_whole_and_nothing_else(library: ctypes.CDLL, to_offset: int, from_offset: int, nbytes: int) -> None:
    check(library, "fgv_bulk_copy", to_offset, from_offset, nbytes)


@pytest.mark.parametrize("way", ["fgv_bulk_lines_sse2", "fgv_bulk_lines_avx512"])
@pytest.mark.parametrize("from_offset", [0, 9])
def test_each_way_copies_lines(library: ctypes.CDLL, way: str, from_offset: int) -> None:
    if way.endswith("avx512") and not has_avx512():
        pytest.skip("this processor has no AVX-512")
    check(library, way, 0, from_offset, STREAMED_BYTES)
