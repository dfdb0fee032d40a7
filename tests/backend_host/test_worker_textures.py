"""Boxes, arrays and texture objects on the wire: what an honest guest asks for, and what none would."""

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from cuda_api.generated.values import Place
from ivshmem.region import ClientState
from tests.backend_host.worker_guest import FUNCTION, MODULE, NO_CHUNK, PRIMARY, Guest, kernel_image, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served

PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry sum(.param .u64 out, .param .u64 texture)
{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [texture];
    mov.u32 %r1, 0;
    mov.u32 %r2, 0;
AGAIN:
    and.b32 %r3, %r2, 15;
    tex.2d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [%rd2, {%r3, %r3}];
    add.u32 %r1, %r1, %r4;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 1600000;
    @%p1 bra AGAIN;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
ARENA, HEAP, DEVICE, ARRAY = Place.ARENA, Place.HEAP, Place.DEVICE, Place.ARRAY
INVALID_VALUE, OUT_OF_MEMORY, INVALID_HANDLE, ILLEGAL_ADDRESS, NOT_SUPPORTED = 1, 2, 400, 700, 801
FLOAT, BYTE = 0x20, 0x01
ONE = 0x48_00000001_000001
MIPMAP = 0x49_00000001_000001
MAX = (1 << 64) - 1


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    host = Host(SOFTGPU)
    yield host
    host.close()


@pytest.fixture
def served(host: Host) -> Iterator[Served]:
    with make_region() as region:
        served = Served(host, region)
        yield served
        served.guest.close()
        assert served.worker.ended() == {"ended": "the client closed"}


def array(guest: Guest, handle: int = ONE, width: int = 64, height: int = 32, depth: int = 0, **more: Any) -> int:
    """Makes an array of bytes; the CUresult."""
    fields: dict[str, Any] = {
        "handle": handle,
        "width": width,
        "height": height,
        "depth": depth,
        "format": BYTE,
        "nr_channels": 1,
    }
    return guest.call("cuArray3DCreate_v2", **{**fields, **more}).result


def box(guest: Guest, **fields: Any) -> int:
    """Sends a copy; what it left as its error, or gave the chunk that it lent."""
    guest.call("cuCtxSynchronize")
    is_lending = ARENA in (fields.get("to_place"), fields.get("from_place"))
    if is_lending:
        guest.lend_chunk(0)
    size = {"width_bytes": 16, "height": 4, "depth": 1}
    guest.cast_off("cuMemcpy3DAsync_v2", **{**size, "chunk": 0 if is_lending else NO_CHUNK, **fields})
    if is_lending:
        result = guest.await_chunk(0)
        guest.call("cuCtxSynchronize")
        return result
    return guest.call("cuCtxSynchronize").result


def refused(served: Served) -> int:
    worker = served.host.control.worker(served.worker.slot)
    assert worker is not None
    return worker.nr_refused


def test_a_box_goes_to_an_array_and_back(served: Served) -> None:
    guest = served.primary()
    assert array(guest) == 0
    assert array(guest) == INVALID_HANDLE, "the number is in use"
    data = bytes(range(64))
    guest.write(guest.chunk_offset(0), data)
    assert box(guest, to_place=ARRAY, to_address=ONE, to_x_bytes=40, to_y=20, from_place=ARENA) == 0
    guest.write(guest.chunk_offset(0), bytes(64))
    assert box(guest, from_place=ARRAY, from_address=ONE, from_x_bytes=40, from_y=20, to_place=ARENA) == 0
    assert guest.read(guest.chunk_offset(0), 64) == data
    memory = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    where = {"to_place": DEVICE, "to_address": memory, "to_pitch_bytes": 100}
    assert box(guest, from_place=ARRAY, from_address=ONE, from_x_bytes=40, from_y=20, **where) == 0
    assert guest.from_device(memory + 200, 16) == data[32:48]
    guest.ok("cuArrayDestroy", handle=ONE)
    assert guest.call("cuArrayDestroy", handle=ONE).result == INVALID_HANDLE


def test_pinned_memory_is_copied_in_place(served: Served) -> None:
    guest = served.primary()
    offset = guest.allocate(8192)
    address = guest.address + offset
    guest.ok("host_register", address=address, bytes=8192, flags=3)
    assert array(guest) == 0
    guest.write(offset + 50, bytes(range(16)))
    where = {"from_place": HEAP, "from_address": address, "from_pitch_bytes": 50}
    assert box(guest, to_place=ARRAY, to_address=ONE, **where) == 0
    assert (
        box(guest, from_place=ARRAY, from_address=ONE, to_place=HEAP, to_address=address + 4096, to_pitch_bytes=16) == 0
    )
    assert guest.read(offset + 4096 + 16, 16) == bytes(range(16))


BOX_LIES: list[dict[str, int]] = [
    {"width_bytes": 0},
    {"depth": 0},
    {"width_bytes": MAX, "height": MAX},
    {"width_bytes": 1 << 40, "height": 1 << 20, "depth": 1 << 20},
    {"from_address": (1 << 20) * 4 - 63},
    {"from_address": MAX},
    {"height": 1 << 30},
    {"to_address": ONE + 1},
    {"to_address": PRIMARY},
    {"to_x_bytes": 49},
    {"to_x_bytes": MAX},
    {"to_y": 29},
    {"to_z": 1},
    {"to_z": MAX},
    {"to_place": 0},
    {"to_place": 5},
    {"stream": 77},
]


def test_boxes_out_of_bounds(served: Served) -> None:
    guest = served.primary()
    assert array(guest) == 0
    honest = {"to_place": ARRAY, "to_address": ONE, "from_place": ARENA}
    for lie in BOX_LIES:
        assert box(guest, **honest) == 0
        assert box(guest, **{**honest, **lie}) in (INVALID_VALUE, INVALID_HANDLE), lie
    assert box(guest, **honest) == 0


MEMORY_LIES: list[dict[str, int]] = [
    {"to_pitch_bytes": 15},
    {"to_pitch_bytes": MAX},
    {"to_pitch_bytes": 1 << 62, "to_plane_rows": 16, "depth": 2},
    {"depth": 2, "to_plane_rows": 3},
    {"depth": 2, "to_plane_rows": MAX},
    {"height": 1 << 40},
    {"to_address": MAX - 10},
    {"to_address": 4096},
]


def test_pitches_and_heap_out_of_bounds(served: Served) -> None:
    guest = served.primary()
    offset = guest.allocate(4096)
    guest.ok("host_register", address=guest.address + offset, bytes=4096, flags=3)
    memory = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    honest = {
        "to_place": HEAP,
        "to_address": guest.address + offset,
        "to_pitch_bytes": 64,
        "to_plane_rows": 4,
        "from_place": DEVICE,
        "from_address": memory,
        "from_pitch_bytes": 16,
        "from_plane_rows": 4,
    }
    assert box(guest, **honest) == 0
    for lie in MEMORY_LIES:
        before = refused(served)
        assert box(guest, **{**honest, **lie}) == INVALID_VALUE, lie
        assert refused(served) == before + 1, lie
    before = refused(served)
    assert box(guest, **{**honest, "to_place": DEVICE, "to_address": 4096}) == INVALID_VALUE
    assert refused(served) == before, "what is no memory of the device the driver refuses"


ARRAY_LIES: list[tuple[dict[str, int], int]] = [
    ({"width": 0}, INVALID_VALUE),
    ({"width": MAX, "height": MAX}, INVALID_VALUE),
    ({"width": 1 << 33, "height": 1 << 33, "depth": 1 << 33}, INVALID_VALUE),
    ({"format": 0x77}, INVALID_VALUE),
    ({"format": 0xFFFFFFFF}, INVALID_VALUE),
    ({"nr_channels": 3}, INVALID_VALUE),
    ({"nr_channels": 0}, INVALID_VALUE),
    ({"flags": 1 << 31}, INVALID_VALUE),
    ({"flags": 0x40}, NOT_SUPPORTED),
    ({"flags": 0x80}, NOT_SUPPORTED),
    ({"width": 1 << 20}, INVALID_VALUE),
    ({"handle": 2}, INVALID_HANDLE),
]


def test_arrays_that_cannot_be(served: Served) -> None:
    guest = served.primary()
    for lie, result in ARRAY_LIES:
        assert array(guest, **lie) == result, lie
    assert array(guest) == 0
    reading = served.host.control.vgpu(served.vgpu)
    assert reading is not None
    assert reading.memory_bytes == 64 * 32, "what was refused is not paid"


def test_arrays_count_against_the_quota(host: Host) -> None:
    with make_region() as region:
        served = Served(host, region, quota_bytes=1 << 20)
        guest = served.primary()
        assert array(guest, width=1024, height=1025) == OUT_OF_MEMORY
        assert array(guest, width=1024, height=1024) == 0
        assert guest.call("cuMemAlloc_v2", bytesize=1).result == OUT_OF_MEMORY
        assert array(guest, ONE + 1, width=16, height=0) == OUT_OF_MEMORY
        guest.ok("cuArrayDestroy", handle=ONE)
        levels: dict[str, Any] = {"format": BYTE, "nr_channels": 1, "nr_levels": 10}
        assert guest.call("cuMipmappedArrayCreate", handle=MIPMAP, width=1024, height=1024, **levels).result == 2
        guest.ok("cuMipmappedArrayCreate", handle=MIPMAP, width=512, height=512, **levels)
        guest.ok("cuMipmappedArrayGetLevel", mipmap=MIPMAP, handle=ONE, level=9)
        assert guest.call("cuMipmappedArrayGetLevel", mipmap=MIPMAP, handle=ONE + 1, level=10).result == INVALID_VALUE
        assert guest.call("cuArrayDestroy", handle=ONE).result == INVALID_HANDLE, "a level lives with the whole"
        reading = host.control.vgpu(served.vgpu)
        assert reading is not None
        assert 512 * 512 < reading.memory_bytes < 512 * 512 * 1.5
        guest.ok("cuMipmappedArrayDestroy", handle=MIPMAP)
        assert guest.call("cuMipmappedArrayGetLevel", mipmap=MIPMAP, handle=ONE, level=0).result == INVALID_HANDLE
        assert array(guest, width=1024, height=1024) == 0
        guest.ok("context_destroy", handle=PRIMARY)
        reading = host.control.vgpu(served.vgpu)
        assert reading is not None
        assert reading.memory_bytes == 0, "arrays go with their context"
        guest.close()
        assert served.worker.ended() == {"ended": "the client closed"}
        assert region.client(0).state in (ClientState.FREE, ClientState.DEAD, ClientState.CLOSING)


def texture(guest: Guest, **fields: Any) -> Any:
    honest = {"type": 0, "address": ONE, "address_mode": [1, 1, 1]}
    return guest.call("cuTexObjectCreate", **{**honest, **fields})


def test_an_object_is_the_clients_own(host: Host) -> None:
    with make_region() as region, make_region() as other_region:
        mine, others = Served(host, region), Served(host, other_region)
        guest, other = mine.primary(), others.primary()
        assert array(guest) == 0
        assert array(other) == 0
        objects = [texture(guest).object for _ in range(3)]
        assert len(set(objects)) == 3
        before = refused(others)
        other.cast_off("cuTexObjectDestroy", object=objects[0])
        other.cast_off("cuTexObjectDestroy", object=MAX)
        other.call("cuCtxSynchronize")
        assert refused(others) == before + 2
        guest.cast_off("cuSurfObjectDestroy", object=objects[0])
        assert guest.call("cuCtxSynchronize").result == INVALID_VALUE, "a texture is no surface"
        for value in (objects[0], objects[0]):
            guest.cast_off("cuTexObjectDestroy", object=value)
        assert guest.call("cuCtxSynchronize").result == INVALID_VALUE, "once is enough"
        assert array(guest, ONE + 1, flags=2) == 0
        surface = guest.ok("cuSurfObjectCreate", array=ONE + 1).object
        guest.cast_off("cuSurfObjectDestroy", object=surface)
        assert guest.call("cuCtxSynchronize").result == 0
        for served in (mine, others):
            served.guest.close()
            assert served.worker.ended() == {"ended": "the client closed"}


def test_what_a_kernel_reads_stays_until_it_ends(served: Served) -> None:
    guest = served.primary()
    assert guest.load(kernel_image(PTX)).result == 0
    guest.ok("cuModuleGetFunction", b"sum", module=MODULE, handle=FUNCTION, name_bytes=3, chunk=1)
    memory = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    assert array(guest) == 0
    guest.write(guest.chunk_offset(0), bytes(range(256)))
    assert box(guest, height=16, to_place=ARRAY, to_address=ONE, from_place=ARENA) == 0
    read = texture(guest, flags=1)
    assert read.result == 0
    guest.launch(FUNCTION, struct.pack("<QQ", memory, read.object))
    guest.cast_off("cuTexObjectDestroy", object=read.object)
    guest.ok("cuArrayDestroy", handle=ONE)
    assert guest.from_device(memory, 4) == struct.pack("<I", 100000 * sum(17 * i for i in range(16)))
    guest.launch(FUNCTION, struct.pack("<QQ", memory, read.object))
    assert guest.call("cuCtxSynchronize").result == ILLEGAL_ADDRESS, "the object is gone"


def test_what_reaches_behind_memory_is_taken_and_reading_there_is_a_fault(served: Served) -> None:
    """As with an H200. It is the fault of the client whose kernel reads, as with any other address."""
    guest = served.primary()
    assert guest.load(kernel_image(PTX)).result == 0
    guest.ok("cuModuleGetFunction", b"sum", module=MODULE, handle=FUNCTION, name_bytes=3, chunk=1)
    memory = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    shape = {"width": 16, "height": 65000, "pitch_bytes": 2097120, "format": BYTE, "nr_channels": 1}
    read = texture(guest, type=3, address=memory, flags=1, **shape)
    assert read.result == 0
    guest.launch(FUNCTION, struct.pack("<QQ", memory, read.object))
    assert guest.call("cuCtxSynchronize").result == ILLEGAL_ADDRESS


TEXTURE_LIES: list[dict[str, Any]] = [
    {"address": ONE + 5},
    {"address": PRIMARY},
    {"type": 1},
    {"type": 4},
    {"type": 0xFFFFFFFF},
    {"address_mode": [0, 4, 0]},
    {"filter_mode": 2},
    {"mipmap_filter_mode": 7},
    {"flags": 1 << 20},
    {"has_view": 1, "view_format": 0x23},
    {"has_view": 1, "first_layer": 2, "last_layer": 1},
    {"has_view": 1, "last_layer": 9},
    {"has_view": 1, "last_level": 1},
    {"has_view": 1, "view_width": MAX},
    {"type": 2, "address": 4096, "width": 4096, "format": FLOAT, "nr_channels": 1},
    {"type": 2, "address": 0, "width": MAX, "format": FLOAT, "nr_channels": 1},
    {"type": 2, "address": 0, "width": 4096, "format": 0x91, "nr_channels": 4},
    {"type": 3, "address": 0, "width": 16, "height": MAX, "pitch_bytes": 64, "format": FLOAT, "nr_channels": 1},
    {"type": 3, "address": 0, "width": 16, "height": 16, "pitch_bytes": MAX, "format": FLOAT, "nr_channels": 1},
    {"type": 3, "address": 0, "width": MAX, "height": 16, "pitch_bytes": 64, "format": FLOAT, "nr_channels": 4},
]


def test_textures_that_cannot_be(served: Served) -> None:
    guest = served.primary()
    memory = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    assert array(guest) == 0
    for lie in TEXTURE_LIES:
        fields = {**lie, **({"address": memory} if lie.get("address") == 0 else {})}
        assert texture(guest, **fields).result in (INVALID_VALUE, INVALID_HANDLE), lie
    assert texture(guest).result == 0
    assert texture(guest, type=2, address=memory, width=4096, format=FLOAT, nr_channels=1).result == 0
