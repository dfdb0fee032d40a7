"""Inputs of the worker's fuzzer, spelt by names: what a test sends, and the seeds that the fuzzer begins with."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.backend_host.worker_guest import CALLS, request_bytes

HEADER = Path(__file__).with_name("worker.h").read_text()
FIRST = 3
"""The number of a context, a stream, an event, a module, a function, a library and a kernel that are there already."""
NO_CHUNK = 0xFFFFFFFF
GRAPH = 3 << 62 | 13 << 56
NODE = 3 << 62 | 14 << 56
"""Numbers that the worker gives, less the count."""
MOVE, TAKE, TOLD = 200, 202, 203
OF_ENTRY, OF_ASSIGNMENT = 1 << 23, 1 << 24
SPAN, OWN_PAGE, BELLS = 16, 32, 64
"""Flags beside those of slicing."""
ARENA, HEAP, DEVICE, ARRAY = 1, 2, 3, 4
"""Places of bytes."""
MEMORY = 0x7000_0000_0000
"""The first address that the stand-in gives: 8 KiB that are there already."""
RESERVED = MEMORY + 0x3000
"""The next one, behind memory of a page or less."""
PINNED = int(re.findall(r"FUZZ_PINNED \(FUZZ_REGION \+ (\w+)\)", HEADER)[0], 16) + 0x2000_0000_0000
"""Two pages of the guest's heap that are no chunk's."""
CONDITION = 1000
"""Of any graph's first condition."""
TEXTURE = 1
"""The first texture object."""


@dataclass(frozen=True)
class Record:
    """One request. `rounds`: of the worker's loop, before the next one."""

    call: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes = b""
    context: int = FIRST
    rounds: int = 0
    response: int = 0

    def packed(self) -> bytes:
        header = struct.pack("<HHI", CALLS[self.call], 0, self.context)
        whole = header + request_bytes(self.call, self.fields) + self.payload
        return struct.pack("<HBB", len(whole), self.response, self.rounds) + whole


@dataclass(frozen=True)
class Taking:
    """What is otherwise as the worker takes its client: words of the region's header, of the client's entry, of the assignment."""

    patches: Sequence[tuple[int, int, int]]
    """Offset, bytes and value; see worker.h."""

    def packed(self) -> bytes:
        whole = b"".join(struct.pack("<IIQ", *patch) for patch in self.patches)
        return struct.pack("<HBB", len(whole), TAKE, 0) + whole


@dataclass(frozen=True)
class Told:
    """What the daemon does or says: a place in `enum fuzz_word`, with up to three values."""

    word: int
    values: Sequence[int] = ()
    message: bytes = b""
    rounds: int = 0

    def packed(self) -> bytes:
        whole = struct.pack("<4Q", self.word, *(*self.values, 0, 0, 0)[:3]) + self.message
        return struct.pack("<HBB", len(whole), TOLD, self.rounds) + whole


def pack(
    records: Sequence[Record | Taking | Told],
    *,
    fail_at: int = -1,
    busy: int = 0,
    seed: int = 1,
    flags: int = 0,
    fails: int = 0,
) -> bytes:
    """An input. `fail_at`: this call of the driver fails, counted from 0; `fails` and `busy` of 256: how often any does, and how often work
    has not ended."""
    return struct.pack("<IBBBBi", seed, fails, busy, flags, 0, fail_at) + b"".join(
        record.packed() for record in records
    )
