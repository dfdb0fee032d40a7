"""The runtime's integrity check: digests, hashes and what they are of."""

import ctypes
import os
import subprocess
import sys
import threading
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

import pytest

from tests.cuda_api.embedder import CUDART_INTERFACE, INTEGRITY, NOT_INITIALIZED, SUCCESS, Embedder


class Subject(ctypes.Structure):
    _fields_ = (
        ("driver_version", c_uint32),
        ("check_version", c_uint32),
        ("process_id", c_uint32),
        ("thread_id", c_uint32),
        ("cudart_table", c_uint64),
        ("integrity_table", c_uint64),
        ("check_function", c_uint64),
        ("unix_seconds", c_uint64),
    )


@pytest.mark.parametrize(
    ("message", "digest"),
    [
        (b"", "8350e5a3e24c153df2275c9f80692773"),
        (b"a", "32ec01ec4a6dac72c0ab96fb34c0b5d1"),
        (b"abc", "da853b0d3f88d99b30283a69e6ded6bb"),
        (b"message digest", "ab4f496bfb2a530b219ff33031fe06b0"),
        (b"abcdefghijklmnopqrstuvwxyz", "4e8ddff3650292ab5a4108c3aa47940b"),
        (b"1234567890" * 8, "d5976f79d83d3a0dc9806c3c66f3efd8"),
    ],
)
def test_md2_gives_the_digests_of_rfc_1319(embedder: Embedder, message: bytes, digest: str) -> None:
    out = ctypes.create_string_buffer(16)
    embedder.library.embedder_md2(message, c_size_t(len(message)), out)
    assert out.raw.hex() == digest


def device_set(embedder: Embedder, ordinal: int, uuid: str, address: tuple[int, int, int]) -> None:
    uuids = (ctypes.c_char * 64).in_dll(embedder.library, "device_uuids")
    ctypes.memmove(ctypes.addressof(uuids) + 16 * ordinal, bytes.fromhex(uuid), 16)
    addresses = (c_int * 12).in_dll(embedder.library, "device_addresses")
    addresses[3 * ordinal : 3 * ordinal + 3] = list(address)


@pytest.mark.parametrize(
    ("nr_devices", "digest"),
    [(0, "0779ef5e4ffa2dd207527503d1907bfa"), (1, "4448a171b026cef76c8c3e39051b02dd")],
)
def test_the_hash_of_a_known_process_is_known(embedder: Embedder, nr_devices: int, digest: str) -> None:
    subject = Subject(12080, 12082, 0x002FA423, 0xF79C1000, 0x7FFFF6958240, 0x7FFFF6958220, 0x7FFFF2AAF4A0, 0x682B9CEE)
    device_set(embedder, 0, "9afe2b8aac252d38ea37aec56d71325f", (0, 2, 0))
    c_int.in_dll(embedder.library, "nr_devices").value = nr_devices
    result = (c_uint64 * 2)()
    assert embedder.library.embedder_integrity_hash(byref(subject), result) == SUCCESS
    assert bytes(result).hex() == digest


def check_now(embedder: Embedder, version: int, seconds: int = 1_700_000_000) -> tuple[int, tuple[int, int]]:
    result = (c_uint64 * 2)()
    error = embedder.slot(INTEGRITY, 1, c_uint32, c_uint64, c_void_p)(version, seconds, result)
    return error, (result[0], result[1])


def test_two_versions_have_constant_answers(embedder: Embedder) -> None:
    assert check_now(embedder, 13000) == (SUCCESS, (0x3341181C03CB675C, 0x8ED383AA1F4CD1E8))
    assert check_now(embedder, 13001) == (SUCCESS, (0x1841181C03CB675C, 0x8ED383AA1F4CD1E8))


def test_the_check_hashes_this_process_and_thread(embedder: Embedder) -> None:
    subject = Subject(
        13000,
        13002,
        os.getpid(),
        threading.get_ident() & 0xFFFFFFFF,
        embedder.table_address(CUDART_INTERFACE),
        embedder.table_address(INTEGRITY),
        embedder.word(INTEGRITY, 1),
        1_700_000_000,
    )
    expected = (c_uint64 * 2)()
    assert embedder.library.embedder_integrity_hash(byref(subject), expected) == SUCCESS
    before = embedder.statistics().nr_integrity_checks
    assert check_now(embedder, 13002) == (SUCCESS, (expected[0], expected[1]))
    assert embedder.statistics().nr_integrity_checks == before + 1


def test_the_check_follows_a_fork(library_path: Path) -> None:
    """The child's own process id is hashed, not the one at the time of loading."""
    script = f"""
import ctypes, os
library = ctypes.CDLL({str(library_path)!r})
library.embedder_start()
table = ctypes.c_void_p()
library.embedder_table(ctypes.byref(table), bytes.fromhex({INTEGRITY.replace("-", "")!r}))
slot = ctypes.c_uint64.from_address(table.value + 8).value
check = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p)(slot)
def answer():
    result = (ctypes.c_uint64 * 2)()
    assert check(13002, 1, result) == 0
    return bytes(result).hex()
print(answer(), flush=True)
child = os.fork()
if child == 0:
    print(answer(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(answer(), flush=True)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    parent, child, parent_again = done.stdout.split()
    assert parent == parent_again != child


def test_an_embedders_error_is_the_answer(embedder: Embedder) -> None:
    c_int.in_dll(embedder.library, "nr_devices").value = 1
    c_int.in_dll(embedder.library, "device_result").value = NOT_INITIALIZED
    assert check_now(embedder, 13002)[0] == NOT_INITIALIZED
