"""The handshake by itself, in a library of the smallest kind. test_runtimes.py proves it against NVIDIA's runtimes."""

import ctypes
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
HANDSHAKE = ROOT / "cuda_api" / "handshake"
SOURCES = sorted(HANDSHAKE.glob("*.c"))
COMPILE = [
    "gcc",
    "-std=c11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fvisibility=hidden",
    "-I",
    str(ROOT / "cuda_api/include"),
]

SUCCESS = 0
INVALID_VALUE = 1
NOT_INITIALIZED = 3
INVALID_CONTEXT = 201
INVALID_HANDLE = 400
NOT_SUPPORTED = 801

CUDART_INTERFACE = "6bd5fb6c-5bf4-e74a-8987-d93912fd9df9"
TOOLS_HOOKS = "a094798c-2e74-2e74-93f2-0800200c0a66"
TOOLS_TLS = "42d85a81-23f6-cb47-8298-f6e78a3aecdc"
STORAGE = "c693336e-1121-df11-a8c3-68f355d89593"
INTEGRITY = "d4082055-bde6-704b-8d34-ba123c66e1f2"
CONTEXT_CHECKS = "263e8860-7cd2-6143-92f6-bbd5006dfa7e"
IDENTITIES = "21318c60-9714-3248-8ca6-41ff7324c8f2"
PROCESSORS = "1734dc26-800d-4745-8726-c0f1e7dd8bca"
MODULES = "6e163fbe-b958-444d-835c-e182aff1991e"
REFUSED = ["f8cff951-2146-8b4e-b9e2-fb469e7c0dd9", "0" * 32]

SIZES_BYTES = {
    CUDART_INTERFACE: 104,
    TOOLS_HOOKS: 56,
    TOOLS_TLS: 24,
    INTEGRITY: 24,
    CONTEXT_CHECKS: 120,
    IDENTITIES: 93 * 8,
    PROCESSORS: 17 * 8,
    MODULES: 99 * 8,
}

DESTRUCTOR = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)


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


class Statistics(ctypes.Structure):
    _fields_ = (
        ("nr_tables_served", c_uint64),
        ("nr_tables_refused", c_uint64),
        ("nr_unknown_slots", c_uint64),
        ("nr_integrity_checks", c_uint64),
    )


def uuid_bytes(text: str) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(bytes.fromhex(text.replace("-", "")), 16)


class Embedder:
    """The library of handshake_embedder.c, loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path))

    def table_address(self, uuid: str) -> int:
        table = c_void_p()
        assert self.library.embedder_table(byref(table), uuid_bytes(uuid)) == SUCCESS
        assert table.value is not None
        return table.value

    def word(self, uuid: str, slot: int) -> int:
        return c_uint64.from_address(self.table_address(uuid) + 8 * slot).value

    def slot(self, uuid: str, slot: int, *argument_types: type, result: type | None = c_int) -> Callable[..., int]:
        return ctypes.CFUNCTYPE(result, *argument_types)(self.word(uuid, slot))

    def statistics(self) -> Statistics:
        statistics = Statistics()
        self.library.embedder_statistics(byref(statistics))
        return statistics

    def make_current(self, context: int | None) -> None:
        self.library.embedder_set_current(c_void_p(context))

    def put(self, context: int | None, key: int, value: int, destructor: Any = None) -> int:
        put = self.slot(STORAGE, 0, c_void_p, c_void_p, c_void_p, c_void_p)
        return put(context, key, value, ctypes.cast(destructor, c_void_p) if destructor else None)

    def delete(self, context: int | None, key: int) -> int:
        return self.slot(STORAGE, 1, c_void_p, c_void_p)(context, key)

    def get(self, context: int | None, key: int) -> tuple[int, int | None]:
        value = c_void_p(0xBAD)
        result = self.slot(STORAGE, 2, c_void_p, c_void_p, c_void_p)(byref(value), context, key)
        return result, value.value


@pytest.fixture(scope="module")
def library_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("handshake") / "embedder.so"
    source = ROOT / "tests/cuda_api/handshake_embedder.c"
    subprocess.run([*COMPILE, "-O2", "-shared", "-fPIC", "-o", path, source, *SOURCES], check=True)
    return path


@pytest.fixture
def embedder(library_path: Path) -> Iterator[Embedder]:
    embedder = Embedder(library_path)
    embedder.library.embedder_start()
    embedder.make_current(None)
    c_int.in_dll(embedder.library, "nr_devices").value = 0
    c_int.in_dll(embedder.library, "driver_version").value = 13000
    c_int.in_dll(embedder.library, "device_result").value = SUCCESS
    yield embedder
    embedder.make_current(None)


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


# ---- the integrity check ----


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


# ---- context-local storage ----


def test_what_was_put_is_got_until_it_is_deleted(embedder: Embedder) -> None:
    assert embedder.get(0x70, 0x1) == (INVALID_HANDLE, None)
    assert embedder.put(0x70, 0x1, 0xA) == SUCCESS
    assert embedder.put(0x71, 0x1, 0xB) == SUCCESS
    assert embedder.get(0x70, 0x1) == (SUCCESS, 0xA)
    assert embedder.get(0x71, 0x1) == (SUCCESS, 0xB)
    assert embedder.put(0x70, 0x1, 0xC) == SUCCESS
    assert embedder.get(0x70, 0x1) == (SUCCESS, 0xC)
    assert embedder.delete(0x70, 0x1) == SUCCESS
    assert embedder.get(0x70, 0x1) == (INVALID_HANDLE, None)
    assert embedder.get(0x71, 0x1) == (SUCCESS, 0xB)
    assert embedder.delete(0x70, 0x1) == SUCCESS
    assert embedder.delete(0x71, 0x1) == SUCCESS


@pytest.mark.parametrize("current", [None, 2**64 - 1])
def test_no_context_means_the_current_one(embedder: Embedder, current: int | None) -> None:
    assert embedder.put(current, 0x1, 0xA) == INVALID_CONTEXT
    assert embedder.get(current, 0x1) == (INVALID_CONTEXT, None)
    assert embedder.delete(current, 0x1) == INVALID_CONTEXT
    embedder.make_current(0x70)
    assert embedder.put(current, 0x1, 0xA) == SUCCESS
    assert embedder.get(0x70, 0x1) == (SUCCESS, 0xA)
    assert embedder.get(current, 0x1) == (SUCCESS, 0xA)
    embedder.make_current(0x71)
    assert embedder.get(current, 0x1) == (INVALID_HANDLE, None)
    assert embedder.delete(0x70, 0x1) == SUCCESS


def test_many_keys_outgrow_the_first_array(embedder: Embedder) -> None:
    for key in range(1, 200):
        assert embedder.put(0x70, key, 1000 + key) == SUCCESS
    for key in range(1, 200, 2):
        assert embedder.delete(0x70, key) == SUCCESS
    for key in range(1, 200):
        expected = (INVALID_HANDLE, None) if key % 2 else (SUCCESS, 1000 + key)
        assert embedder.get(0x70, key) == expected
    embedder.library.embedder_context_destroyed(c_void_p(0x70))


def test_destructors_run_once_when_the_context_goes(embedder: Embedder) -> None:
    seen: list[tuple[int, int, int]] = []
    destructor = DESTRUCTOR(lambda context, key, value: seen.append((context, key, value)))
    embedder.put(0x70, 0x1, 0xA, destructor)
    embedder.put(0x70, 0x2, 0xB, destructor)
    embedder.put(0x70, 0x3, 0xC)
    embedder.put(0x70, 0x4, 0xD, destructor)
    embedder.put(0x71, 0x1, 0xE, destructor)
    embedder.delete(0x70, 0x4)
    embedder.library.embedder_context_destroyed(c_void_p(0x70))
    assert sorted(seen) == [(0x70, 0x1, 0xA), (0x70, 0x2, 0xB)]
    assert [embedder.get(0x70, key)[0] for key in (1, 2, 3, 4)] == [INVALID_HANDLE] * 4
    embedder.library.embedder_context_destroyed(c_void_p(0x70))
    assert len(seen) == 2
    embedder.library.embedder_context_destroyed(c_void_p(0x71))
    assert seen[2:] == [(0x71, 0x1, 0xE)]


def test_a_destructor_that_stores_again_does_not_live_for_ever(embedder: Embedder) -> None:
    seen: list[int] = []

    def store_again(context: int, key: int, value: int) -> None:
        seen.append(value)
        embedder.put(context, key, value + 1, destructor)

    destructor = DESTRUCTOR(store_again)
    embedder.put(0x70, 0x1, 0xA, destructor)
    embedder.library.embedder_context_destroyed(c_void_p(0x70))
    assert seen[0] == 0xA
    assert embedder.get(0x70, 0x1) == (INVALID_HANDLE, None)


def test_another_threads_changes_are_seen_through_the_cache(embedder: Embedder) -> None:
    embedder.put(0x70, 0x1, 0xA)
    assert embedder.get(0x70, 0x1) == (SUCCESS, 0xA)
    for value in (0xB, 0xC):
        thread = threading.Thread(target=embedder.put, args=(0x70, 0x1, value))
        thread.start()
        thread.join()
        assert embedder.get(0x70, 0x1) == (SUCCESS, value)
    thread = threading.Thread(target=embedder.delete, args=(0x70, 0x1))
    thread.start()
    thread.join()
    assert embedder.get(0x70, 0x1) == (INVALID_HANDLE, None)


@pytest.mark.parametrize(
    ("flags", "nr_rounds"),
    [
        (["-O2"], 200_000),
        (["-O1", "-g", "-fsanitize=thread"], 4000),
        (["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"], 4000),
    ],
    ids=["plain", "thread", "address"],
)
def test_storage_under_threads(tmp_path: Path, flags: list[str], nr_rounds: int) -> None:
    program = tmp_path / "storage_stress"
    source = ROOT / "tests/cuda_api/storage_stress.c"
    subprocess.run([*COMPILE, *flags, "-pthread", "-o", program, source, *SOURCES], check=True)
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1 die_after_fork=0"}
    command = [str(program), str(nr_rounds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "PASS\n"), done.stderr


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
