"""The handshake's export tables and their slots. test_runtimes.py proves them against NVIDIA's runtimes."""

import ctypes
import os
import re
import subprocess
import sys
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

import pytest

from tests.cuda_api.embedder import (
    COMPILE,
    CONTEXT_CHECKS,
    CUDART_INTERFACE,
    IDENTITIES,
    INTEGRITY,
    INVALID_CONTEXT,
    INVALID_VALUE,
    MODULES,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    REFUSED,
    SIZES_BYTES,
    SOURCES,
    STORAGE,
    SUCCESS,
    TOOLS_HOOKS,
    TOOLS_TLS,
    Embedder,
    uuid_bytes,
)

# ---- tables ----


@pytest.mark.parametrize("uuid", SIZES_BYTES)
def test_a_table_begins_with_its_size_and_stays_where_it_is(embedder: Embedder, uuid: str) -> None:
    assert embedder.word(uuid, 0) == SIZES_BYTES[uuid]
    assert embedder.table_address(uuid) == embedder.table_address(uuid)


@pytest.mark.parametrize("uuid", SIZES_BYTES)
def test_no_slot_is_null_but_those_that_are_in_nvidias_driver(embedder: Embedder, uuid: str) -> None:
    null_slots = [slot for slot in range(SIZES_BYTES[uuid] // 8) if embedder.word(uuid, slot) == 0]
    assert null_slots == {CUDART_INTERFACE: [10], MODULES: [93]}.get(uuid, [])


def test_storage_has_no_size_and_ends_with_null(embedder: Embedder) -> None:
    words = [embedder.word(STORAGE, slot) for slot in range(4)]
    assert all(word > 0x10000 for word in words[:3])
    assert words[3] == 0


def test_an_unknown_table_is_refused_and_counted(embedder: Embedder) -> None:
    before = embedder.statistics().nr_tables_refused
    for uuid in REFUSED:
        table = c_void_p(0xBAD)
        assert embedder.library.embedder_table(byref(table), uuid_bytes(uuid)) == INVALID_VALUE
        assert table.value is None
    assert embedder.statistics().nr_tables_refused == before + len(REFUSED)


def test_null_arguments_are_invalid(embedder: Embedder) -> None:
    assert embedder.library.embedder_table(None, uuid_bytes(STORAGE)) == INVALID_VALUE
    assert embedder.library.embedder_table(byref(c_void_p()), None) == INVALID_VALUE


def test_tables_are_served_before_the_embedder_has_started(library_path: Path) -> None:
    """In a fresh process: f8cff951 is asked for before cuInit, and a library may be asked in a constructor."""
    script = f"""
import ctypes
library = ctypes.CDLL({str(library_path)!r})
table = ctypes.c_void_p()
uuid = bytes.fromhex({CUDART_INTERFACE.replace("-", "")!r})
assert library.embedder_table(ctypes.byref(table), uuid) == 0
slot = ctypes.c_uint64.from_address(table.value + 16).value
context = ctypes.c_void_p()
print(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(slot)(ctypes.byref(context), 0))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) == NOT_INITIALIZED


@pytest.mark.parametrize(
    ("log", "is_logged"),
    [
        ("handshake", True),
        ("calls,handshake", True),
        ("handshakes", False),
        ("calls", False),
        ("", False),
        (None, False),
    ],
)
def test_refusals_and_unknown_slots_are_logged_on_request(library_path: Path, log: str | None, is_logged: bool) -> None:
    script = f"""
import ctypes
library = ctypes.CDLL({str(library_path)!r})
table = ctypes.c_void_p()
library.embedder_table(ctypes.byref(table), bytes.fromhex({REFUSED[0].replace("-", "")!r}))
library.embedder_table(ctypes.byref(table), bytes.fromhex({IDENTITIES.replace("-", "")!r}))
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.c_uint64.from_address(table.value + 8 * 92).value)())
"""
    environment = {key: value for key, value in os.environ.items() if key != "FAIRGV_LOG"}
    if log is not None:
        environment["FAIRGV_LOG"] = log
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == NOT_SUPPORTED
    lines = [
        f"fairgv: handshake: table refused {REFUSED[0]}",
        f"fairgv: handshake: unknown slot called {IDENTITIES}[92]",
    ]
    assert done.stderr.splitlines() == (lines if is_logged else [])


# ---- the slots ----


def test_primary_context_is_handed_out(embedder: Embedder) -> None:
    context = c_void_p()
    assert embedder.slot(CUDART_INTERFACE, 2, c_void_p, c_int)(byref(context), 3) == SUCCESS
    assert context.value == 0x1003
    assert embedder.slot(CUDART_INTERFACE, 2, c_void_p, c_int)(None, 0) == INVALID_VALUE


def test_the_old_module_loaders_load(embedder: Embedder) -> None:
    loaded = c_void_p.in_dll(embedder.library, "loaded_image")
    module = c_void_p()
    assert embedder.slot(CUDART_INTERFACE, 1, c_void_p, c_void_p)(byref(module), 0x11) == SUCCESS
    assert (loaded.value, module.value) == (0x11, 0x2000)
    load_with = embedder.slot(CUDART_INTERFACE, 6, c_void_p, c_void_p, c_void_p, c_void_p, c_uint32)
    assert load_with(byref(module), 0x12, None, None, 0) == SUCCESS
    assert loaded.value == 0x12
    load_header = embedder.slot(CUDART_INTERFACE, 8, c_void_p, c_void_p, c_void_p, c_void_p, c_uint32)
    assert load_header(0x13, byref(module), None, None, 0) == SUCCESS
    assert loaded.value == 0x13
    assert load_with(byref(module), 0x14, 0x1, None, 1) == NOT_SUPPORTED
    assert load_header(0x14, byref(module), None, None, 1) == NOT_SUPPORTED
    assert load_header(None, byref(module), None, None, 0) == INVALID_VALUE
    assert loaded.value == 0x13


def test_loading_the_compilers_succeeds(embedder: Embedder) -> None:
    assert embedder.slot(CUDART_INTERFACE, 12)() == SUCCESS


def test_an_unknown_slot_is_not_supported_and_counted(embedder: Embedder) -> None:
    before = embedder.statistics().nr_unknown_slots
    for uuid, slot in [(CUDART_INTERFACE, 3), (INTEGRITY, 2), (CONTEXT_CHECKS, 14), (IDENTITIES, 1), (IDENTITIES, 92)]:
        assert embedder.slot(uuid, slot)() == NOT_SUPPORTED
    assert embedder.statistics().nr_unknown_slots == before + 5


def test_no_tool_is_attached(embedder: Embedder) -> None:
    for slot, size_bytes in [(2, 1024), (6, 14)]:
        buffer = c_void_p()
        size = c_size_t()
        embedder.slot(TOOLS_HOOKS, slot, c_void_p, c_void_p, result=None)(byref(buffer), byref(size))
        assert size.value == size_bytes
        assert buffer.value is not None
        assert ctypes.string_at(buffer.value, 4096) == bytes(4096)
    out = c_uint64(5)
    assert embedder.slot(TOOLS_HOOKS, 4, c_void_p, c_void_p)(None, byref(out)) == SUCCESS
    assert out.value == 0


def test_tools_see_the_current_context(embedder: Embedder) -> None:
    current = embedder.slot(TOOLS_TLS, 2, c_void_p)
    context = c_void_p(0xBAD)
    assert current(byref(context)) == INVALID_CONTEXT
    assert context.value is None
    embedder.make_current(0x77)
    assert current(byref(context)) == SUCCESS
    assert context.value == 0x77


def test_no_context_is_wrapped(embedder: Embedder) -> None:
    is_wrapped = c_uint32(7)
    inner = c_void_p(0x55)
    check = embedder.slot(CONTEXT_CHECKS, 2, c_void_p, c_void_p, c_void_p)
    assert check(0x77, byref(is_wrapped), byref(inner)) == SUCCESS
    assert (is_wrapped.value, inner.value) == (0, 0x55)
    assert embedder.slot(CONTEXT_CHECKS, 3)() == 0


def test_contexts_and_streams_have_ids(embedder: Embedder) -> None:
    identity = c_uint64()
    context_id = embedder.slot(IDENTITIES, 4, c_void_p, c_void_p)
    assert context_id(0x77, byref(identity)) == SUCCESS
    assert identity.value == 0x78
    assert context_id(None, byref(identity)) == INVALID_CONTEXT
    embedder.make_current(0x99)
    assert context_id(None, byref(identity)) == SUCCESS
    assert identity.value == 0x9A
    stream_object = embedder.slot(IDENTITIES, 51, c_void_p, c_void_p, c_void_p, c_int)
    stream_id = embedder.slot(IDENTITIES, 39, c_void_p, c_void_p, c_void_p)
    found = []
    for stream, is_per_thread in [(None, 0), (None, 1), (1, 0), (2, 0), (0x500, 1)]:
        private = c_void_p()
        assert stream_object(0x1000, stream, byref(private), is_per_thread) == SUCCESS
        assert stream_id(0x1000, private, byref(identity)) == SUCCESS
        found.append(identity.value - 0x1000)
    assert found == [1, 2, 1, 2, 0x500]
    assert stream_id(0x1000, None, byref(identity)) == INVALID_VALUE


# ---- what the library needs of its surroundings ----


def test_no_symbol_is_newer_than_glibc_2_28_and_none_is_exported(library_path: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.so"
    subprocess.run([*COMPILE, "-O2", "-shared", "-fPIC", "-o", plain, *SOURCES], check=True)
    symbols = subprocess.run(["nm", "-D", plain], capture_output=True, text=True, check=True).stdout
    versions = [tuple(map(int, version.split("."))) for version in re.findall(r"@+GLIBC_([\d.]+)", symbols)]
    assert versions
    assert max(versions) <= (2, 28)
    assert not re.findall(r" [TDBR] (\w+)", symbols)
    needed = subprocess.run(["readelf", "-d", plain], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"NEEDED.*\[(.*)\]", needed)) == {"libc.so.6"}
