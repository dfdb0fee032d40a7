"""Linear memory that makes room for others': it comes back as it was, whatever the client does meanwhile; targets are set by hand here."""

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend_host.device.pager import Pager
from backend_host.device.readings import Keeps
from tests.backend_host.between import build_between
from tests.backend_host.swapping import (
    CAPACITY,
    DEVICE,
    INVALID_VALUE,
    OUT_OF_MEMORY,
    PHYSICAL,
    SPAN,
    STEP,
    allocate,
    bring_out,
    compared,
    filled,
    first_word,
    moved,
    numbered,
    room,
    serving,
    set_target,
    two_full,
    wait_for,
    words,
)
from tests.backend_host.test_host_functions import posted, rearm, set_behind_function, take_mailbox
from tests.backend_host.worker_guest import PRIMARY, STREAM, make_region
from tests.backend_host.worker_harness import Host, Served
from tests.end_to_end.host import wait_until

SECOND = 1_000_000_000
PAUSE_NS = 20_000_000
"""More than a switch to another vGPU and back, and than a twentieth of a burst."""


@pytest.fixture
def served() -> Iterator[Served]:
    yield from serving()


def test_memory_goes_and_comes_back_as_it_was(served: Served) -> None:
    guest = served.guest
    addresses = filled(guest, 5)
    for target in (0, 2 * STEP, STEP + 1):
        bring_out(served, target)
        assert room(served).resident_bytes == target // STEP * STEP
        set_target(served, CAPACITY)
        assert words(guest, addresses) == numbered(5)
    assert room(served).resident_bytes == 5 * STEP
    assert moved(served) == (5 * STEP, (5 + 3 + 4) * STEP)


def test_what_did_not_change_is_not_brought_out_again(served: Served) -> None:
    """In one extent of four blocks."""
    guest = served.guest
    [address] = filled(guest, 1, 4 * STEP)
    bring_out(served)
    assert compared(served) == (0, 0), "nobody knows how it was before"
    set_target(served, CAPACITY)
    guest.ok("cuMemsetD32Async", dstDevice=address + 2 * STEP + 4000, ui=9, N=1, hStream=0)
    assert first_word(guest, address + 2 * STEP + 4000) == 9
    before = moved(served)
    bring_out(served)
    assert moved(served) == (before[0] + STEP, before[1]), "the block of the word that changed"
    assert compared(served) == (4 * STEP, STEP)
    set_target(served, CAPACITY)
    assert words(guest, [address], 4 * STEP) == [(1, 1)]
    assert first_word(guest, address + 2 * STEP + 4000) == 9
    guest.ok("cuMemsetD32Async", dstDevice=address + 2 * STEP + 4000, ui=1, N=1, hStream=0)
    guest.ok("cuCtxSynchronize")
    bring_out(served)
    assert moved(served)[0] == before[0] + 2 * STEP, "it changed again, to what it had been"
    assert compared(served) == (8 * STEP, 2 * STEP)


def test_zeros_are_not_brought_out(served: Served) -> None:
    """Nor in: they are made anew, and what else stood in their place in the copy does not come back."""
    guest = served.guest
    [address] = filled(guest, 1, 4 * STEP)
    bring_out(served)
    set_target(served, CAPACITY)
    guest.ok("cuMemsetD32Async", dstDevice=address + STEP, ui=0, N=2 * STEP // 4, hStream=0)
    guest.ok("cuCtxSynchronize")
    before = moved(served)
    bring_out(served)
    set_target(served, CAPACITY)
    blocks = [address + each * STEP for each in range(4)]
    assert words(guest, blocks) == [(1, 1), (0, 0), (0, 0), (1, 1)]
    assert moved(served) == (before[0], before[1] + 2 * STEP)
    guest.ok("cuMemsetD32Async", dstDevice=address + STEP, ui=1, N=2 * STEP // 4, hStream=0)
    guest.ok("cuCtxSynchronize")
    bring_out(served)
    assert moved(served)[0] == before[0] + 2 * STEP, "their copies were given up"
    set_target(served, CAPACITY)
    assert words(guest, blocks) == [(1, 1)] * 4


def test_random_words_in_random_blocks_come_back(served: Served) -> None:
    draw = random.Random(3)
    guest = served.guest
    nr_blocks = [1, 3, 2]
    starts = [allocate(guest, nr * STEP) for nr in nr_blocks]
    blocks = [start + each * STEP for start, nr in zip(starts, nr_blocks, strict=True) for each in range(nr)]
    held = dict.fromkeys(blocks, 0)
    for start, nr in zip(starts, nr_blocks, strict=True):
        guest.ok("cuMemsetD32Async", dstDevice=start, ui=0, N=nr * STEP // 4, hStream=0)
    for _ in range(25):
        changed = draw.sample(blocks, draw.randrange(len(blocks)))
        before = dict(held)
        for block in changed:
            held[block] = draw.choice((0, 1, 2))
            guest.ok("cuMemsetD32Async", dstDevice=block + 8, ui=held[block], N=1, hStream=0)
        guest.ok("cuCtxSynchronize")
        out = moved(served)[0]
        bring_out(served)
        nr_out = sum(held[block] not in (0, before[block]) for block in changed)
        assert moved(served)[0] == out + nr_out * STEP
        set_target(served, CAPACITY)
        assert [first_word(guest, block + 8) for block in blocks] == list(held.values())


def test_a_context_that_is_made_again_has_its_own_prints(served: Served) -> None:
    guest = served.guest
    filled(guest, 3)
    bring_out(served)
    set_target(served, CAPACITY)
    guest.ok("cuMemsetD32Async", dstDevice=SPAN, ui=9, N=4, hStream=0)
    guest.ok("context_destroy", handle=guest.context)
    served.primary()
    addresses = filled(guest, 3)
    before = moved(served)[0]
    for _ in range(2):
        bring_out(served)
        set_target(served, CAPACITY)
        assert words(guest, addresses) == numbered(3)
    assert moved(served)[0] == before + 3 * STEP


def test_a_context_that_is_made_again_has_anothers_prints(served: Served) -> None:
    """What takes them was made in the other one while that was alone, and the driver launches it nowhere else."""
    guest = served.guest
    guest.ok("context_create", context=0, handle=PRIMARY + 1, is_primary=0)
    guest.ok("context_destroy", handle=PRIMARY)
    guest.context = PRIMARY + 1
    addresses = filled(guest, 3)
    bring_out(served)
    set_target(served, CAPACITY)
    assert words(guest, addresses) == numbered(3)
    served.primary()
    before = compared(served)[0]
    bring_out(served)
    assert compared(served)[0] == before + 3 * STEP, "they have prints"
    set_target(served, CAPACITY)
    assert words(guest, addresses) == numbered(3)


def test_a_move_that_the_driver_refuses_leaves_others_their_prints(tmp_path: Path) -> None:
    """While the first one's copy is on its way. The last one, of zeros, would have the place of its prints."""
    host = Host(build_between("refused_print", tmp_path))
    with contextlib.contextmanager(serving)(host) as served:
        guest = served.guest
        addresses = filled(guest, 4)
        guest.ok("cuMemsetD32Async", dstDevice=addresses[0], ui=0, N=STEP // 4, hStream=0)
        guest.ok("cuCtxSynchronize")
        bring_out(served)
        set_target(served, CAPACITY)
        assert words(guest, addresses) == [(0, 0), *numbered(4)[1:]]


def test_nothing_is_submitted_until_all_is_back(served: Served) -> None:
    guest = served.guest
    addresses = filled(guest, 3)
    bring_out(served, STEP)
    slot = guest.begin("cuMemsetD32Async", dstDevice=addresses[0], ui=9, N=4, hStream=0)
    waiting = guest.begin("cuCtxSynchronize")
    wait_for(served, lambda each: each.displaced_since_ns != 0, "it waits for its memory")
    assert [each.vgpu for each in served.host.control.displaced()] == [served.vgpu]
    assert room(served).wants
    assert served.host.control.holder().vgpu is None, "not for its turn"
    set_target(served, 2 * STEP)
    wait_for(served, lambda each: each.resident_bytes == 2 * STEP, "what may come has come")
    assert not guest.is_answered(waiting)
    before = served.gpu_ns()
    set_target(served, 3 * STEP)
    assert guest.finish("cuMemsetD32Async", slot).result == 0
    assert guest.finish("cuCtxSynchronize", waiting).result == 0
    assert not served.host.control.displaced()
    assert served.gpu_ns() >= before
    assert words(guest, addresses)[1:] == numbered(3)[1:]
    assert first_word(guest, addresses[0]) == 9


def test_a_wait_for_memory_is_no_pause(served: Served) -> None:
    """A pause ends with what the program wants next, and not when its memory is there."""

    def nr_bursts() -> int:
        worker = served.host.control.worker(served.worker.slot)
        assert worker is not None
        return worker.nr_bursts

    guest = served.guest
    addresses = filled(guest, 3)
    assert served.gpu_ns() > 0
    bring_out(served)
    nr_before = nr_bursts()  # on a busy host it may have paused before
    paused_ns = time.monotonic_ns()
    wait_until(lambda: time.monotonic_ns() - paused_ns > PAUSE_NS, "it pauses")
    assert nr_bursts() == nr_before
    slot = guest.begin("cuMemsetD32Async", dstDevice=addresses[0], ui=9, N=4, hStream=0)
    wait_until(lambda: nr_bursts() == nr_before + 1, "the pause has ended")
    wait_for(served, lambda each: each.displaced_since_ns != 0, "it waits for its memory")
    waiting_ns = time.monotonic_ns()
    wait_until(lambda: time.monotonic_ns() - waiting_ns > PAUSE_NS, "for as long as a pause lasts")
    set_target(served, CAPACITY)
    assert guest.finish("cuMemsetD32Async", slot).result == 0
    guest.ok("cuCtxSynchronize")
    assert nr_bursts() == nr_before + 1


def test_memory_beyond_the_target_comes_with_the_first_use(served: Served) -> None:
    guest = served.guest
    set_target(served, STEP)
    addresses = [allocate(guest, STEP) for _ in range(3)]
    assert (room(served).allocated_bytes, room(served).resident_bytes) == (3 * STEP, STEP)
    guest.ok("cuMemFree_v2", dptr=addresses.pop())
    set_target(served, CAPACITY)
    for address in addresses:
        guest.ok("cuMemsetD32Async", dstDevice=address, ui=3, N=STEP // 4, hStream=0)
    assert words(guest, addresses) == [(3, 3)] * 2


def test_what_is_freed_while_it_is_out_is_gone(served: Served) -> None:
    guest = served.guest
    addresses = filled(guest, 4)
    bring_out(served)
    guest.ok("cuMemFree_v2", dptr=addresses[1])
    guest.ok("cuMemFree_v2", dptr=addresses[3])
    assert room(served).allocated_bytes == 2 * STEP
    assert guest.call("cuMemFree_v2", dptr=addresses[3]).result == INVALID_VALUE
    again = allocate(guest, STEP)
    assert again == addresses[1]
    set_target(served, CAPACITY)
    assert words(guest, [addresses[0], addresses[2]]) == [(1, 1), (3, 3)]


def test_calls_while_memory_is_on_its_way(served: Served) -> None:
    """A client that frees, allocates and copies all the time, while its target goes up and down."""
    guest = served.guest
    kept = filled(guest, 3)
    for turn in range(60):
        set_target(served, (turn % 4) * STEP)
        address = allocate(guest, 3 * STEP)
        guest.ok("cuMemFree_v2", dptr=address)
        if turn % 4 == 0:
            set_target(served, CAPACITY)
            assert words(guest, kept) == numbered(3)
    set_target(served, CAPACITY)
    assert words(guest, kept) == numbered(3)
    assert room(served).allocated_bytes == 3 * STEP
    wait_for(served, lambda each: each.resident_bytes == 3 * STEP, "what was claimed was given back")


def test_pools_make_room_too(served: Served) -> None:
    guest = served.guest
    address = int(guest.ok("cuMemAllocFromPoolAsync", bytes=STEP).address)
    guest.ok("cuMemsetD32Async", dstDevice=address, ui=5, N=STEP // 4, hStream=0)
    guest.ok("cuCtxSynchronize")
    bring_out(served)
    slot = guest.begin("cuMemFreeAsync", address=address, stream=0)
    set_target(served, CAPACITY)
    assert guest.finish("cuMemFreeAsync", slot).result == 0
    assert int(guest.ok("cuMemAllocFromPoolAsync", bytes=STEP).address) == address


def test_more_than_the_device_is_refused_and_so_is_more_than_all_may_have(served: Served) -> None:
    guest = served.guest
    assert guest.call("cuMemAlloc_v2", bytesize=CAPACITY + 1).result == OUT_OF_MEMORY
    allocate(guest, CAPACITY - STEP)
    assert guest.call("cuMemAlloc_v2", bytesize=2 * STEP).result == OUT_OF_MEMORY
    assert room(served).allocated_bytes == CAPACITY - STEP
    info = guest.ok("cuMemGetInfo_v2")
    assert (info.free, info.total) == (STEP, CAPACITY)
    with make_region() as region:
        other = Served(served.host, region, memory="span")
        other.primary().ok("span_open", address=SPAN, bytes=4 * CAPACITY)
        allocate(other.guest, CAPACITY)
        served.host.control.set_capacity(CAPACITY, 2 * CAPACITY - STEP)
        assert guest.call("cuMemAlloc_v2", bytesize=STEP).result == OUT_OF_MEMORY
        other.worker.process.kill()
        other.worker.process.wait()
        served.host.control.repair(other.worker.slot)
        allocate(guest, STEP)


def test_what_is_refused_takes_nothing_of_the_device(served: Served) -> None:
    """Others would be sent away for it."""
    guest = served.guest
    before = room(served).other_bytes
    seen = set()
    refused: dict[str, dict[str, Any]] = {
        "cuMemAlloc_v2": {"bytesize": 3 * DEVICE},
        "cuMemAllocFromPoolAsync": {"bytes": 3 * DEVICE},
        "cuMemCreate": {"handle": PHYSICAL, "bytes": 1 << 50, "rdma": 1},
    }
    for call, fields in refused.items():
        for _ in range(300):
            slot = guest.begin(call, **fields)
            while not guest.is_answered(slot):
                seen.add(room(served).other_bytes)
            assert guest.finish(call, slot).result == OUT_OF_MEMORY
    assert seen <= {before}


def test_memory_that_is_shared_stays(served: Served) -> None:
    guest = served.guest
    addresses = filled(guest, 2)
    bring_out(served)
    slot = guest.begin("ipc_export", address=addresses[0])
    wait_for(served, lambda each: each.displaced_since_ns != 0, "it has to be there to be shared")
    set_target(served, CAPACITY)
    assert guest.finish("ipc_export", slot).result == 0
    set_target(served, 0)
    wait_for(served, lambda each: each.keeps is Keeps.SHARED, "it says why it stays")
    assert room(served).resident_bytes == 2 * STEP
    assert words(guest, addresses[1:]) == [(2, 2)], "it goes on meanwhile"


def test_programs_that_share_memory_do_not_wait_for_each_others(served: Served) -> None:
    """Neither's goes: what would have room beside its own alone can be allocated."""
    pager = Pager(served.host.control, CAPACITY, DEVICE, 0.05)
    with two_full(served) as (_, other):
        for each in (served, other):
            each.guest.ok("ipc_export", address=SPAN)
            wait_for(each, lambda room: room.keeps is Keeps.SHARED, "it says so")
        pager.look(0)
        assert served.guest.call("cuMemAlloc_v2", bytesize=3 * STEP).result == OUT_OF_MEMORY
        assert served.guest.ok("cuMemGetInfo_v2").free == 2 * STEP
        address = allocate(served.guest, 2 * STEP)
        pager.look(1)
        wait_for(served, lambda room: room.resident_bytes == 9 * STEP, "there is room for it")
        pager.look(2)
        assert other.guest.call("cuMemAlloc_v2", bytesize=STEP).result == OUT_OF_MEMORY
        served.guest.ok("cuMemFree_v2", dptr=address)
        pager.look(3)
        allocate(other.guest, STEP)


def test_a_capture_keeps_memory(served: Served) -> None:
    guest = served.guest
    addresses = filled(guest, 2)
    guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=1)
    guest.ok("capture_begin", stream=STREAM)
    set_target(served, 0)
    wait_for(served, lambda each: each.keeps is Keeps.FOR_CAPTURE, "it says why it stays")
    assert words(guest, addresses) == numbered(2), "it goes on meanwhile"
    assert room(served).resident_bytes == 2 * STEP


def test_of_captures_that_wait_for_each_other_one_is_ended(served: Served) -> None:
    """What they have stays until they end, and they do not before they have all of it."""
    pager = Pager(served.host.control, CAPACITY, DEVICE, 0.05)
    ended: list[int] = []
    pager.watch(10 * SECOND, lambda slot, _: ended.append(slot))
    with two_full(served) as (_, other):
        for each in (served, other):
            each.guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=1)
            each.guest.ok("capture_begin", stream=STREAM)
            wait_for(each, lambda room: room.keeps is Keeps.FOR_CAPTURE, "it says so before it has to go")
            allocate(each.guest, 3 * STEP)
            each.guest.cast_off("cuMemsetD32Async", dstDevice=SPAN, ui=9, N=4, hStream=0)
            wait_for(each, lambda room: room.displaced_since_ns != 0, "it waits")
        for now_s in range(10):
            pager.look(now_s * SECOND)
        assert ended == []
        pager.look(11 * SECOND)
        assert len(ended) == 1
        assert [each.resident_bytes for each in served.host.control.rooms()] == [7 * STEP] * 2


def test_a_value_that_is_to_be_written_keeps_memory(tmp_path: Path) -> None:
    """No submission tells of it, and it must find its place."""
    file = tmp_path / "held"
    host = Host(build_between("held_write", tmp_path), {"FAIRGV_HELD_WRITE": str(file)}, shared=[tmp_path])
    with contextlib.contextmanager(serving)(host) as served:
        guest = served.guest
        [address] = filled(guest, 1)
        guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=1)
        file.touch()
        guest.ok("cuStreamWriteValue32_v2", stream=STREAM, addr=address, value=9)
        set_target(served, 0)
        wait_for(served, lambda each: each.keeps is Keeps.FOR_WORK, "it says why it stays")
        assert room(served).resident_bytes == STEP
        file.unlink()
        bring_out(served)
        set_target(served, CAPACITY)
        assert first_word(guest, address) == 9


def test_what_stands_behind_a_host_function_ends_before_memory_goes(served: Served) -> None:
    """The function returns only once the memory has to go."""
    guest = served.guest
    [address] = filled(guest, 1)
    take_mailbox(guest)
    set_behind_function(guest, address, 9)
    guest.ok("cuMemGetInfo_v2")
    set_target(served, 0)
    wait_for(served, lambda each: each.keeps is Keeps.FOR_WORK, "it says why it stays")
    assert posted(guest) == (1, 0)
    rearm(guest)
    wait_for(served, lambda each: each.resident_bytes == 0, "it has gone")
    set_target(served, CAPACITY)
    assert first_word(guest, address) == 9


def test_a_client_that_ends_while_memory_is_on_its_way(served: Served) -> None:
    guest = served.guest
    filled(guest, 8)
    bring_out(served, 4 * STEP)
    set_target(served, CAPACITY)
    guest.cast_off("cuMemsetD32Async", dstDevice=SPAN, ui=9, N=4, hStream=0)
    guest.close()
    assert "closed" in str(served.worker.ended()["ended"])


def test_a_daemon_that_makes_no_room_any_more_lets_all_come_back(served: Served) -> None:
    """One that was started anew without oversubscription."""
    guest = served.guest
    addresses = filled(guest, 4)
    bring_out(served)
    served.host.control.set_capacity(0, 0)
    assert words(guest, addresses) == numbered(4)


def test_a_driver_that_has_no_room_is_told_of(served: Served) -> None:
    """It says so, and tries again until there is."""
    guest = served.guest
    served.host.control.set_capacity(2 * DEVICE, 4 * DEVICE)
    set_target(served, 2 * DEVICE)
    large = allocate(guest, DEVICE - 8 * STEP)
    other = allocate(guest, 16 * STEP)
    assert room(served).resident_bytes < DEVICE
    wait_for(served, lambda each: each.refused_bytes == 16 * STEP, "the driver has no room")
    guest.ok("cuMemFree_v2", dptr=large)
    guest.ok("cuMemsetD32Async", dstDevice=other, ui=7, N=4 * STEP, hStream=0)
    assert words(guest, [other], 16 * STEP) == [(7, 7)]
    assert room(served).refused_bytes == 0


def test_a_program_ends_to_whose_memory_a_driver_says_no(tmp_path: Path) -> None:
    """Its memory never comes back, and others would wait for one that waits for it."""
    file = tmp_path / "no_mapping"
    host = Host(build_between("no_mapping", tmp_path), {"FAIRGV_NO_MAPPING": str(file)}, shared=[tmp_path])
    with contextlib.contextmanager(serving)(host) as served:
        filled(served.guest, 2)
        bring_out(served)
        file.touch()
        set_target(served, CAPACITY)
        served.guest.cast_off("cuMemsetD32Async", dstDevice=SPAN, ui=9, N=4, hStream=0)
        assert served.worker.ended() == {"ended": "the driver takes no memory where the program has some"}


def test_a_target_that_a_page_of_zeroes_says_is_none(served: Served) -> None:
    """A worker that was never told one waits, and takes nothing from others."""
    guest = served.guest
    set_target(served, 0)
    address = allocate(guest, STEP)
    assert room(served).resident_bytes == 0
    slot = guest.begin("cuMemsetD32Async", dstDevice=address, ui=9, N=4, hStream=0)
    wait_for(served, lambda each: each.displaced_since_ns != 0, "it waits")
    set_target(served, CAPACITY)
    assert guest.finish("cuMemsetD32Async", slot).result == 0
