"""The handshake in a library of the smallest kind, handshake_embedder.c, and what its tests ask of it."""

import ctypes
import subprocess
from collections.abc import Callable
from ctypes import byref, c_int, c_uint64, c_void_p
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HANDSHAKE = ROOT / "cuda_api" / "common" / "handshake"
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


def build_embedder(folder: Path) -> Path:
    """The library, in this folder."""
    path = folder / "embedder.so"
    source = ROOT / "tests/cuda_api/handshake_embedder.c"
    subprocess.run([*COMPILE, "-O2", "-shared", "-fPIC", "-o", path, source, *SOURCES], check=True)
    return path
