"""A guest made by hand, and the region that it is a client of.

It packs requests from the structs of cuda_api/wire.h, so that it can also send what no honest library would: any bytes, any length.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cffi import FFI

from cuda_api.generated.values import Place
from ivshmem.region import BEAT_SECONDS, ClientState, Region, Wake, ffi, lib

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "cuda_api" / "include" / "cuda_api"
WIRE_TEXT = (INCLUDE / "wire.h").read_text()
CALLS = {name: int(number, 0) for name, number in re.findall(r"FGV_CALL_(\w+) = (\w+),", WIRE_TEXT)}
TABLE_HASH = int(re.findall(r"FGV_TABLE_HASH UINT64_C\((\w+)\)", WIRE_TEXT)[0], 0)
NO_RESPONSE = 0xFFFF
NO_CHUNK = 0xFFFFFFFF
PRIMARY = 0x41_00000001_000000
STREAM = 0x42_00000001_000001
EVENT = 0x43_00000001_000001
MODULE = 0x44_00000001_000001
FUNCTION = 0x45_00000001_000001
"""Numbers as a guest library gives them: kind, generation, index. A next one is one more."""


def structs(header: str, names: str) -> list[str]:
    """Those of a generated header whose names fit."""
    return re.findall(rf"^struct fgv_{names} \{{.*?^\}};", header, re.DOTALL | re.MULTILINE)


wire = FFI()
for text in [*structs((INCLUDE / "values.h").read_text(), r"\w+"), *structs(WIRE_TEXT, r"(?:request|reply)_\w+")]:
    wire.cdef(text)


def kernel_image(text: str) -> bytes:
    """PTX as a program passes it."""
    return text.encode() + b"\0"


def container(text: str, sm: int = 75) -> bytes:
    """A fat binary with one entry, of PTX."""
    payload = text.encode() + bytes(-len(text) % 8 or 8)
    entry = struct.pack("<HHIQIIIIIIQQQ", 1, 0x101, 0x40, len(payload), 0, 0, 0, sm, 0, 0, 0, 0, 0)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(payload)) + entry + payload


def request_bytes(call: str, fields: Mapping[str, Any]) -> bytes:
    """The call's fixed struct; b"" for a call without one."""
    if f"struct fgv_request_{call} {{" not in WIRE_TEXT:
        return b""
    return bytes(wire.buffer(wire.new(f"struct fgv_request_{call} *", dict(fields))))


@dataclass(frozen=True)
class Answer:
    """What came back: the CUresult, and the reply's bytes, whose members are ours, and so are those of what the compiler said."""

    call: str
    result: int
    payload: bytes

    def __getattr__(self, name: str) -> Any:
        reply: Any = wire.new(f"struct fgv_reply_{self.call} *")
        wire.buffer(reply)[:] = self.payload
        has_said = "said" in dict(wire.typeof(reply).item.fields)
        return getattr(reply.said if has_said and not hasattr(reply, name) else reply, name)


_guests: list[Guest] = []


class GuestTimeoutError(Exception):
    """No answer within the time that any answer takes."""


class Guest:
    """A client of a region, on the guest's side. Its heap is seen at `address` by the worker and at `region.base` here."""

    CHUNK_BYTES = 1 << 20
    NR_CHUNKS = 4
    NR_RESPONSES = 16
    RING_BYTES = 1 << 16
    LIMIT_NS = 60_000_000_000
    ADDRESS = 0x2000_0000_0000

    def __init__(
        self,
        region: Region,
        index: int = 0,
        address: int = ADDRESS,
        ring_start: int = 0,
        bell: tuple[int, int] = (0, 0),
    ) -> None:
        """`bell`: whether it has one, and the vector, as the entry says it."""
        self.region, self.index, self.address, self.bell = region, index, address, bell
        self.commit_key = 0x1234_5678_9ABC_DEF0 + index
        self.context = PRIMARY
        self._entry = 4096 + 65536 + index * 320
        parts = {
            "ring": self.RING_BYTES + 192,
            "responses": self.NR_RESPONSES * 512,
            "chunks": self.NR_CHUNKS * 8,
            "arena": self.NR_CHUNKS * self.CHUNK_BYTES,
        }
        self.parts = {name: self.allocate(nbytes) for name, nbytes in parts.items()}
        self._memory = ffi.buffer(ffi.cast("uint8_t *", region.base), region.region_bytes)
        ring = ffi.cast("uint8_t *", region.base + self.parts["ring"])
        self.producer = ffi.new("struct fgv_producer *")
        lib.fgv_producer_init(self.producer, ring, self.RING_BYTES, ring_start, self.commit_key, int(region.wake))
        self._free = list(range(self.NR_RESPONSES))
        self._write_entry()
        assert region.step(index, ClientState.FREE, ClientState.CLAIMED)
        assert region.step(index, ClientState.CLAIMED, ClientState.HELLO)
        self._is_beating = threading.Event()
        _guests.append(self)
        self._beat = threading.Thread(target=self._beat_on, daemon=True)
        self._beat.start()

    def _write_entry(self) -> None:
        part = self.parts
        fields = struct.pack(
            "<I16sQQQQQQIIII64sII",
            os.getpid(),
            b"boot",
            self.address,
            self.commit_key,
            part["ring"],
            part["responses"],
            part["chunks"],
            part["arena"],
            self.RING_BYTES,
            self.NR_RESPONSES,
            self.NR_CHUNKS,
            self.CHUNK_BYTES,
            b"test-guest",
            *self.bell,
        )
        self.write(self._entry + 4, fields)

    def _beat_on(self) -> None:  # ends before the region is unmapped: see make_region
        beat = 1
        while not self._is_beating.wait(BEAT_SECONDS):
            self.write(self._entry + 192, beat.to_bytes(8, "little"))
            beat += 1

    def allocate(self, nbytes: int) -> int:
        """Heap pages of this client, as an offset in the region."""
        offset = int(lib.fgv_heap_allocate(self.region.c_region, self.index, nbytes))
        assert offset != lib.FGV_HEAP_NONE
        return offset

    def write(self, offset: int, data: bytes) -> None:
        self._memory[offset : offset + len(data)] = data

    def write_word(self, offset: int, value: int) -> None:
        """For a word that the worker writes, too: memcpy() of four bytes may store them twice, and undo what it wrote."""
        lib.fgv_face_slot_store(ffi.cast("void *", self.region.base + offset), value)

    def read(self, offset: int, nbytes: int) -> bytes:
        return bytes(self._memory[offset : offset + nbytes])

    def send_raw(self, record: bytes, response: int = NO_RESPONSE, kind: int = 2) -> None:
        """One record with these bytes; kind 2 is what an honest guest writes."""
        position = ffi.new("uint64_t *")
        reserved = lib.fgv_producer_reserve(self.producer, len(record), position)
        assert reserved != ffi.NULL
        ffi.buffer(ffi.cast("uint8_t *", reserved) + 16, len(record))[:] = record
        reserved.response, reserved.kind = response, kind
        lib.fgv_producer_commit(self.producer, reserved, position[0])

    def record(self, call: str, payload: bytes = b"", context: int | None = None, **fields: Any) -> bytes:
        number = self.context if context is None else context
        header = CALLS[call].to_bytes(2, "little") + b"\0\0" + (number & 0xFFFFFFFF).to_bytes(4, "little")
        return header + request_bytes(call, fields) + payload

    def cast_off(self, call: str, payload: bytes = b"", context: int | None = None, **fields: Any) -> None:
        """Sends and waits for nothing."""
        self.send_raw(self.record(call, payload, context, **fields))

    def begin_raw(self, record: bytes) -> int:
        """Sends with a response slot, whose number `finish` takes."""
        slot = self._free.pop()
        self.write_word(self._slot(slot), 1)
        self.send_raw(record, slot)
        return slot

    def begin(self, call: str, payload: bytes = b"", context: int | None = None, **fields: Any) -> int:
        return self.begin_raw(self.record(call, payload, context, **fields))

    def is_answered(self, slot: int) -> bool:
        return self.read(self._slot(slot), 4) == (3).to_bytes(4, "little")

    def finish(self, call: str, slot: int) -> Answer:
        self._wait(self._slot(slot))
        head = self.read(self._slot(slot), 512)
        result, nbytes = int.from_bytes(head[4:8], "little"), int.from_bytes(head[8:12], "little")
        self._free.append(slot)
        return Answer(call, result, head[16 : 16 + nbytes])

    def call(self, call: str, payload: bytes = b"", context: int | None = None, **fields: Any) -> Answer:
        """Sends and waits for the answer."""
        return self.finish(call, self.begin(call, payload, context, **fields))

    def ok(self, call: str, payload: bytes = b"", **fields: Any) -> Answer:
        answer = self.call(call, payload, **fields)
        assert answer.result == 0, (call, answer.result)
        return answer

    def lend_chunk(self, chunk: int) -> None:
        self.write(self.parts["chunks"] + chunk * 8, (1).to_bytes(8, "little"))

    def await_chunk(self, chunk: int) -> int:
        """The result with which the worker completed the chunk."""
        self._wait(self.parts["chunks"] + chunk * 8)
        return int.from_bytes(self.read(self.parts["chunks"] + chunk * 8 + 4, 4), "little")

    def chunk_offset(self, chunk: int) -> int:
        return self.parts["arena"] + chunk * self.CHUNK_BYTES

    def to_device(self, address: int, data: bytes, stream: int = 0) -> None:
        self.cast_off("cuMemcpyHtoDAsync_v2", data, destination=address, stream=stream, bytes=len(data), chunk=NO_CHUNK)

    def from_device(self, address: int, nbytes: int, stream: int = 0, chunk: int = 0) -> bytes:
        self.lend_chunk(chunk)
        fields: dict[str, Any] = {"source": address, "destination": chunk * self.CHUNK_BYTES, "stream": stream}
        self.cast_off("cuMemcpyDtoHAsync_v2", bytes=nbytes, place=Place.ARENA, chunk=chunk, **fields)
        assert self.await_chunk(chunk) == 0
        return self.read(self.chunk_offset(chunk), nbytes)

    def send_blob(self, data: bytes, blob: int = 7) -> int:
        """Gives the blob's number."""
        self.cast_off("blob_begin", blob=blob, bytes=len(data))
        for start in range(0, len(data), 16384):
            part = data[start : start + 16384]
            self.cast_off("blob_append", part, blob=blob, offset=start, bytes=len(part), chunk=NO_CHUNK)
        return blob

    def load(self, image: bytes, handle: int = 0x44_00000001_000001, blob: int = 7, nr_prelinked: int = 0) -> Answer:
        """An image, or a set of a fat binary and those that it was linked from."""
        fields: dict[str, Any] = {"handle": handle, "prelinked": nr_prelinked, "chunk": NO_CHUNK}
        return self.call("cuModuleLoadDataEx", blob=self.send_blob(image, blob), **fields)

    def launch(self, function: int, parameters: bytes, grid: int = 1, block: int = 1, stream: int = 0) -> None:
        dimensions: dict[str, Any] = {
            "grid": [grid, 1, 1],
            "block": [block, 1, 1],
            "nr_parameter_bytes": len(parameters),
        }
        self.cast_off("cuLaunchKernel", parameters, function=function, stream=stream, **dimensions)

    def take_error(self) -> int:
        """The deferred error, which is then gone."""
        client = self.region.client(self.index)
        self.write(self._entry + 260, bytes(4))
        return client.deferred_error

    def close(self) -> None:
        self._is_beating.set()
        self._beat.join()
        self.region.step(self.index, ClientState.READY, ClientState.CLOSING)
        self.region.announce()

    def stop_beating(self) -> None:
        self._is_beating.set()
        self._beat.join()

    def _slot(self, slot: int) -> int:
        return self.parts["responses"] + slot * 512

    def _wait(self, offset: int) -> None:
        word = ffi.cast("void *", self.region.base + offset)
        rounds = ffi.callback(
            "bool(void *, uint32_t)", lambda _context, nr_rounds: nr_rounds < self.LIMIT_NS // 50_000_000
        )
        if not lib.fgv_face_slot_wait(word, int(self.region.wake), 20_000, rounds, ffi.NULL):
            raise GuestTimeoutError(f"client in state {self.region.client(self.index).state}")


def wait_for_state(region: Region, index: int, wanted: set[ClientState]) -> ClientState:
    """Waits, on announcements, until the client is in one of these states."""
    for _ in range(600):
        state = region.client(index).state
        if state in wanted:
            return ClientState(state)
        region.wait_announce(0.1)
    raise GuestTimeoutError(f"client {index} is in state {region.client(index).state}, not {wanted}")


@contextlib.contextmanager
def make_region(nbytes: int = 64 << 20, wake: Wake = Wake.FUTEX) -> Iterator[Region]:
    region = Region.create(
        f"fairgv-worker-{os.getpid()}-{os.urandom(4).hex()}", nbytes, table_hash=TABLE_HASH, wake=wake
    )
    try:
        yield region
    finally:
        for guest in _guests:
            guest.stop_beating()
        _guests.clear()
        region.unlink()
        region.close()
