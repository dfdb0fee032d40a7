"""Events that programs of one guest share: what workers let devices reach of the table, and what a lie there costs whom."""

from collections.abc import Iterator

import pytest

from ivshmem.region import ClientState, Region, ffi, lib
from tests.backend_host.test_worker import PTX
from tests.backend_host.worker_guest import (
    FUNCTION,
    MODULE,
    NO_CHUNK,
    PRIMARY,
    STREAM,
    Guest,
    kernel_image,
    wait_for_state,
)
from tests.backend_host.worker_harness import Host, Served
from tests.end_to_end.host import wait_until

TABLE, NR_BYTES, EVENT_BYTES = 90112, 4096 * 128, 128  # docs/region.md
NR_USED = 148
HEAP_FIRST = TABLE + NR_BYTES
PAGE = 4096
NOT_READY, INVALID_VALUE, ALREADY_REGISTERED, ILLEGAL_ADDRESS = 600, 1, 712, 700
GEQ = 0
WRONG_PLACES = {
    "the page before": (TABLE - PAGE, NR_BYTES),
    "the page behind": (TABLE, NR_BYTES + PAGE),
    "the clients": (TABLE - PAGE, PAGE),
    "the owners": (HEAP_FIRST, PAGE),
    "a part": (TABLE, PAGE),
    "another part": (TABLE + PAGE, NR_BYTES - PAGE),
    "moved": (TABLE + 8, NR_BYTES),
    "nothing": (TABLE, 0),
    "beyond all numbers": (TABLE, 2**64 - PAGE),
}


def word_of(index: int, word: int = 0) -> int:
    """Offset of what devices write, in the region."""
    return TABLE + index * EVENT_BYTES + 32 + 16 * word + 8


def map_table(guest: Guest) -> None:
    guest.ok("host_register", address=guest.address + TABLE, bytes=NR_BYTES)


@pytest.fixture
def second(served: Served, host: Host, region: Region) -> Iterator[Guest]:
    """Another program of the same guest, with the table. The first one has it, too."""
    map_table(served.primary())
    guest = Guest(region, 1)
    host.start(region, 1, served.vgpu)
    assert wait_for_state(region, 1, {ClientState.READY, ClientState.REFUSED}) is ClientState.READY
    guest.ok("context_create", context=0, handle=PRIMARY, is_primary=1)
    map_table(guest)
    for one in (served.guest, guest):
        for i in range(2):
            one.cast_off("cuStreamCreate", phStream=STREAM + i, Flags=1)
    yield guest
    guest.close()


def wait_for(guest: Guest, offset: int, number: int) -> int:
    """Has a stream wait, and somebody wait for the stream."""
    guest.cast_off("cuStreamWaitValue64_v2", stream=STREAM, addr=guest.address + offset, value=number, flags=GEQ)
    return guest.begin("cuStreamSynchronize", hStream=STREAM)


def test_the_table_is_mapped_whole_and_once(served: Served) -> None:
    guest = served.primary()
    for offset, nbytes in WRONG_PLACES.values():
        assert guest.call("host_register", address=guest.address + offset, bytes=nbytes).result == INVALID_VALUE
    map_table(guest)
    assert guest.call("host_register", address=guest.address + TABLE, bytes=NR_BYTES).result == ALREADY_REGISTERED
    for offset, nbytes in WRONG_PLACES.values():
        assert guest.call("host_register", address=guest.address + offset, bytes=nbytes).result == INVALID_VALUE
    assert guest.take_error() == 0


def test_devices_reach_the_table_and_nothing_beside_it(served: Served) -> None:
    guest = served.primary()
    inside, outside = (TABLE, HEAP_FIRST - 8), (0, TABLE - 8, HEAP_FIRST, served.region.region_bytes - 8)

    def write(offset: int) -> int:
        return guest.call("cuStreamWriteValue64_v2", stream=0, addr=guest.address + offset, value=3).result

    assert [write(offset) for offset in (*inside, *outside)] == [INVALID_VALUE] * 6
    map_table(guest)
    assert [write(offset) for offset in inside] == [0, 0]
    guest.ok("cuCtxSynchronize")
    assert [int.from_bytes(guest.read(offset, 8), "little") for offset in inside] == [3, 3]
    assert [write(offset) for offset in outside] == [INVALID_VALUE] * 4
    assert guest.take_error() == 0


def test_a_stream_waits_for_another_programs_stream(served: Served, second: Guest, host: Host) -> None:
    first, offset = served.guest, word_of(7, 2)
    slot = wait_for(second, offset, 5)
    first.cast_off("cuStreamWriteValue64_v2", stream=STREAM, addr=first.address + offset, value=4)
    first.ok("cuStreamSynchronize", hStream=STREAM)
    assert second.call("cuStreamQuery", hStream=STREAM).result == NOT_READY
    wait_until(lambda: host.control.holder().vgpu is None, "nobody holds the grant")
    first.cast_off("cuStreamWriteValue64_v2", stream=STREAM, addr=first.address + offset, value=5)
    assert second.finish("cuStreamSynchronize", slot).result == 0
    assert first.take_error() == second.take_error() == 0


@pytest.mark.parametrize("lie", [0, (1 << 63) + 9, (1 << 64) - 1])
def test_words_that_change_under_the_worker_hold_up_their_own_guest(
    served: Served, second: Guest, region: Region, lie: int
) -> None:
    """Whatever all of the table says, streams that do not wait go on, and one that waits does when its word is right."""
    slot = wait_for(second, word_of(3), 9)
    second.write(TABLE, lie.to_bytes(8, "little") * (NR_BYTES // 8))
    second.write(NR_USED, b"\xff" * 4)
    memory = int(second.ok("cuMemAlloc_v2", bytesize=64).dptr)
    second.cast_off("cuMemsetD32Async", dstDevice=memory, ui=17, N=16, hStream=STREAM + 1)
    second.ok("cuStreamSynchronize", hStream=STREAM + 1)
    assert second.from_device(memory, 4, STREAM + 1) == (17).to_bytes(4, "little")
    second.write(word_of(3), (9).to_bytes(8, "little"))
    assert second.finish("cuStreamSynchronize", slot).result == 0
    assert region.client(0).state == region.client(1).state == ClientState.READY
    assert served.guest.take_error() == second.take_error() == 0


def test_a_wait_for_what_nobody_writes_ends_with_its_program(served: Served, second: Guest, host: Host) -> None:
    wait_for(second, word_of(3), 9)
    wait_until(lambda: host.control.holder().vgpu is None, "nobody holds the grant")
    second.close()
    worker = host.workers[1]
    assert worker.process.has_ended(60)
    served.guest.ok("cuCtxSynchronize")


def test_what_a_program_owes_is_over_after_a_fault(served: Served, region: Region) -> None:
    guest = served.primary()
    assert guest.load(kernel_image(PTX)).result == 0
    guest.ok("cuModuleGetFunction", b"broken", module=MODULE, handle=FUNCTION, name_bytes=6, chunk=NO_CHUNK)
    rows = [int(lib.fgv_event_take(region.c_region, client, ffi.new("uint64_t *", 5))) for client in (0, 1)]
    places = []
    for client, row in enumerate(rows):
        place, after = ffi.new("struct fgv_event_place *"), ffi.new("uint64_t *")
        own = [0] * lib.FGV_NR_EVENT_WORDS
        assert lib.fgv_event_claim(lib.fgv_face_event(region.c_region, row), client, own, place, after)
        places.append(place)

    def is_done(client: int) -> bool:
        return bool(lib.fgv_event_is_done(lib.fgv_face_event(region.c_region, rows[client]), places[client]))

    assert not is_done(0)
    guest.launch(FUNCTION, b"")
    assert guest.call("cuCtxSynchronize").result == ILLEGAL_ADDRESS
    assert is_done(0)
    assert not is_done(1), "another program's"
