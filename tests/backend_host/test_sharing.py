"""Memory that programs of one vGPU share: what a worker puts on the shelf and maps from it, and what guests that lie get."""

import os
import socket
import struct
from array import array
from collections.abc import Iterator
from typing import Any

import pytest

from backend_host import shelf
from backend_host.shelf import FOUND, Message
from ivshmem.region import ClientState
from tests.backend_host.sharing_machine import (
    BYTES,
    EXTENT_MOST,
    INVALID_CONTEXT,
    INVALID_VALUE,
    NOT_READY,
    NOT_SUPPORTED,
    OPERATING_SYSTEM,
    OTHER_SPAN,
    OUT_OF_MEMORY,
    PHYSICAL,
    SPAN,
    STEP,
    Daemon,
    Machine,
    allocate,
    exported,
    fill,
    opened,
    result_of_open,
    running,
    settled,
)
from tests.backend_host.worker_guest import PRIMARY, STREAM, Guest, wait_for_state
from tests.backend_host.worker_harness import Worker


@pytest.fixture
def machine() -> Iterator[Machine]:
    with running() as machine:
        yield machine


def test_two_programs_of_a_vgpu_have_the_same_memory(machine: Machine) -> None:
    first, second = machine.first, machine.second
    address = allocate(first, 3 * STEP + 1)
    fill(first, address, 7, 3 * STEP + 1)
    answer = settled(first, "ipc_export", address=address + STEP)
    assert (answer.result, answer.base, answer.bytes) == (0, address, 3 * STEP + 1)
    assert first.from_device(address + 3 * STEP, 1) == b"\7", "it lies where it was"
    there = opened(second, exported(first, address))
    assert OTHER_SPAN <= there < OTHER_SPAN + BYTES
    assert second.from_device(there + 3 * STEP, 1) == b"\7"
    fill(second, there, 9, 4)
    assert first.from_device(address, 5) == b"\x09\x09\x09\x09\x07"
    fill(first, address, 10, 2)
    assert second.from_device(there, 3) == b"\x0a\x0a\x09"


def test_memory_that_work_may_use_stays_where_it_is(machine: Machine) -> None:
    first = machine.first
    address = allocate(first, STEP)
    words = first.allocate(4096)
    first.ok("host_register", address=first.address + words, bytes=4096)
    first.cast_off("cuStreamCreate", phStream=STREAM, Flags=1)
    gates: list[dict[str, Any]] = [
        {"stream": STREAM, "addr": first.address + words + 4 * number, "value": 1} for number in range(2)
    ]
    first.cast_off("cuStreamWaitValue32_v2", **gates[0])
    slot = first.begin("ipc_export", address=address)
    first.cast_off("cuStreamWaitValue32_v2", **gates[1])
    assert first.call("cuStreamQuery", hStream=STREAM).result == NOT_READY
    assert not first.is_answered(slot), "what came before it has not ended"
    first.write_word(words, 1)
    assert first.finish("ipc_export", slot).result == NOT_READY, "what came after it has not"
    assert machine.nr_shared() == 0
    first.write_word(words + 4, 1)
    exported(first, address)


def test_large_memory_in_several_extents(machine: Machine) -> None:
    nbytes = EXTENT_MOST + STEP
    guests = [machine.start(machine.first.region, client, 0, SPAN, 4 << 30) for client in (2, 3)]
    address = allocate(guests[0], nbytes)
    for place in (0, EXTENT_MOST - 4, EXTENT_MOST + STEP - 8):  # the middle one lies across two extents
        fill(guests[0], address + place, 3, 8)
    there = opened(guests[1], exported(guests[0], address))
    assert machine.nr_shared() == 2
    for place in (0, EXTENT_MOST - 4, EXTENT_MOST + STEP - 8):
        assert guests[1].from_device(there + place, 8) == bytes([3] * 8)


@pytest.mark.parametrize("is_short_first", [False, True], ids=["less than there is", "more than there is"])
def test_memory_of_before_the_next_daemon_opens(machine: Machine, *, is_short_first: bool) -> None:
    """Which lets programs allocate more than the device has, or no more so: extents have other sizes then."""
    nbytes = EXTENT_MOST + STEP
    control = machine.host.control
    guests = [machine.start(machine.first.region, client, 0, SPAN, 4 << 30) for client in (2, 3)]
    for worker in machine.workers:
        control.set_target(worker.slot, 2 * nbytes)
    capacities = [(0, 0), (4 * nbytes, 8 * nbytes)]
    control.set_capacity(*capacities[is_short_first])
    address = allocate(guests[0], nbytes)
    control.set_capacity(*capacities[not is_short_first])
    key = exported(guests[0], address)
    assert machine.nr_shared() == (5 if is_short_first else 2)
    there = opened(guests[1], key)
    for place in (0, EXTENT_MOST - 4, EXTENT_MOST + STEP - 8):
        fill(guests[0], address + place, 3, 8)
        assert guests[1].from_device(there + place, 8) == bytes([3] * 8)


def test_shared_memory_counts_once_in_what_the_device_may_have(machine: Machine) -> None:
    """Whatever each of those that have it is charged by the quota; and as long as one has it."""
    first, second = machine.first, machine.second
    third = machine.start(first.region, 2, 0, SPAN)
    control = machine.host.control
    control.set_capacity(12 * STEP, 12 * STEP)
    shared = allocate(first, 8 * STEP)
    key = exported(first, shared)
    there = [opened(guest, key) for guest in (second, third)]
    first.ok("cuMemCreate", handle=PHYSICAL, bytes=2 * STEP, is_shareable=1)
    descriptor = settled(first, "physical_export", handle=PHYSICAL)
    assert settled(second, "physical_import", key=list(descriptor.key), handle=PHYSICAL).result == 0
    assert control.counted_again(machine.vgpus[0]) == 18 * STEP
    last = allocate(machine.foreign, 2 * STEP)
    assert machine.foreign.call("cuMemAlloc_v2", bytesize=STEP).result == OUT_OF_MEMORY
    machine.foreign.ok("cuMemFree_v2", dptr=last)
    first.ok("cuMemFree_v2", dptr=shared)
    second.ok("ipc_close", address=there[0])
    assert machine.foreign.call("cuMemAlloc_v2", bytesize=3 * STEP).result == OUT_OF_MEMORY, "it is there still"
    third.ok("ipc_close", address=there[1])
    first.ok("cuMemRelease", handle=PHYSICAL)
    second.ok("cuMemRelease", handle=PHYSICAL)
    assert control.counted_again(machine.vgpus[0]) == 0
    allocate(machine.foreign, 12 * STEP)


def test_an_allocation_has_one_key(machine: Machine) -> None:
    first = machine.first
    one, other = allocate(first, 2 * STEP), allocate(first, STEP)
    key = exported(first, one)
    assert exported(first, one) == exported(first, one + 2 * STEP - 1) == key
    assert exported(first, other) != key
    assert machine.nr_shared() == 2
    first.ok("cuMemFree_v2", dptr=one)
    again = allocate(first, 2 * STEP)
    assert again == one
    assert exported(first, again) != key, "it is other memory"


def test_another_vgpu_and_forged_keys_open_nothing(machine: Machine) -> None:
    key = exported(machine.first, allocate(machine.first, STEP))
    assert result_of_open(machine.foreign, key) == INVALID_VALUE
    for forged in [(0, 0), (key[0], key[1] ^ 1), (key[1], key[0]), ((1 << 64) - 1, (1 << 64) - 1)]:
        assert result_of_open(machine.second, forged) == INVALID_VALUE
    assert machine.foreign.from_device(allocate(machine.foreign, STEP), 1) == b"\0"
    opened(machine.second, key)


def test_what_is_no_allocation_is_not_shared(machine: Machine) -> None:
    first = machine.first
    address = allocate(first, STEP)
    pooled = first.ok("cuMemAllocFromPoolAsync", bytes=STEP, pool=0, stream=0).address
    imported = opened(first, exported(machine.second, allocate(machine.second, STEP)))
    heap = first.address + first.allocate(4096)
    for wrong in (0, 1, address - 1, address + STEP, SPAN + BYTES, (1 << 64) - 1, pooled, imported, heap):
        assert settled(first, "ipc_export", address=wrong).result == INVALID_VALUE
    assert machine.nr_shared() == 1


def test_without_a_span_there_is_no_sharing(machine: Machine) -> None:
    guest = Guest(machine.first.region, 2)
    machine.daemon.listen(machine.host.start(guest.region, 2, machine.vgpus[0], memory="driver"))
    assert wait_for_state(guest.region, 2, {ClientState.READY, ClientState.REFUSED}) is ClientState.READY
    guest.ok("context_create", context=0, handle=PRIMARY, is_primary=1)
    assert guest.call("ipc_export", address=allocate(guest, STEP)).result == NOT_SUPPORTED
    assert guest.call("ipc_open", key=[1, 2]).result == NOT_SUPPORTED


def test_opening_where_it_is_and_twice(machine: Machine) -> None:
    key = exported(machine.first, allocate(machine.first, STEP))
    assert result_of_open(machine.first, key) == INVALID_CONTEXT
    address = opened(machine.second, key)
    assert result_of_open(machine.second, key) == INVALID_VALUE
    for wrong in (0, address + 1, address - STEP, (1 << 64) - 1):
        assert machine.second.call("ipc_close", address=wrong).result == INVALID_VALUE
    assert machine.second.call("cuMemFree_v2", dptr=address).result == INVALID_VALUE
    machine.second.ok("ipc_close", address=address)
    assert machine.second.call("ipc_close", address=address).result == INVALID_VALUE
    assert opened(machine.second, key) == address


def test_the_owner_frees_it(machine: Machine) -> None:
    first, second = machine.first, machine.second
    mine = allocate(first, STEP)
    fill(first, mine, 5, STEP)
    key = exported(first, mine)
    address = opened(second, key)
    first.ok("cuMemFree_v2", dptr=mine)
    assert second.from_device(address, 4) == b"\5\5\5\5", "it is there as long as it is open"
    second.ok("ipc_close", address=address)
    assert result_of_open(second, key) == INVALID_VALUE
    assert machine.nr_shared() == 0


def test_the_owner_dies(machine: Machine) -> None:
    first, second = machine.first, machine.second
    mine = allocate(first, STEP)
    fill(first, mine, 5, STEP)
    key = exported(first, mine)
    address = opened(second, key)
    machine.workers[0].process.kill()
    machine.workers[0].process.wait()
    assert second.from_device(address, 4) == b"\5\5\5\5"
    second.ok("ipc_close", address=address)
    assert result_of_open(second, key) == INVALID_VALUE


def test_what_is_open_counts(machine: Machine) -> None:
    first, second = machine.first, machine.second
    before = machine.memory_bytes()
    key = exported(first, allocate(first, 2 * STEP))
    assert machine.memory_bytes() == before + 2 * STEP
    address = opened(second, key)
    assert machine.memory_bytes() == before + 4 * STEP
    second.ok("ipc_close", address=address)
    assert machine.memory_bytes() == before + 2 * STEP
    opened(second, key)
    second.ok("context_destroy", handle=PRIMARY)
    assert machine.memory_bytes() <= before + 2 * STEP, "it went with its context"


def test_a_quota_without_room() -> None:
    with running(quota_bytes=512 << 20) as machine:
        key = exported(machine.first, allocate(machine.first, 48 * STEP))
        room = (512 << 20) - machine.memory_bytes()
        for _ in range((room - 40 * STEP) // (4 * STEP)):
            machine.second.call("cuMemAlloc_v2", bytesize=4 * STEP)
        used = machine.memory_bytes()
        assert result_of_open(machine.second, key) == OUT_OF_MEMORY
        assert machine.memory_bytes() == used


def test_a_guest_that_asks_without_end_is_answered_and_slowed_down(machine: Machine) -> None:
    second = machine.second
    for number in range(2000):
        assert second.call("ipc_open", key=[number, number]).result == NOT_READY
    key = exported(machine.first, allocate(machine.first, STEP))
    opened(second, key)


def test_without_a_daemon(machine: Machine) -> None:
    key = exported(machine.first, allocate(machine.first, STEP))
    machine.daemon.stop()
    machine.daemon = Daemon()
    machine.workers[1].socket.close()
    assert result_of_open(machine.second, key) == OPERATING_SYSTEM
    address = allocate(machine.second, STEP)
    assert settled(machine.second, "ipc_export", address=address).result == OPERATING_SYSTEM
    machine.second.ok("cuMemFree_v2", dptr=address)


def physical(guest: Guest, number: int = PHYSICAL, *, is_shareable: bool = True) -> int:
    guest.ok("cuMemCreate", handle=number, bytes=STEP, is_shareable=int(is_shareable))
    return number


def passed_on(guest: Guest, number: int) -> tuple[int, int]:
    answer = settled(guest, "physical_export", handle=number)
    assert answer.result == 0
    return int(answer.key[0]), int(answer.key[1])


def result_of_import(guest: Guest, number: int, key: tuple[int, int]) -> int:
    return int(settled(guest, "physical_import", handle=number, key=list(key)).result)


def mapped(guest: Guest, number: int) -> int:
    address = int(guest.ok("cuMemAddressReserve", bytes=STEP).address)
    guest.ok("cuMemMap", address=address, bytes=STEP, offset=0, handle=number)
    guest.ok("cuMemSetAccess", address=address, bytes=STEP, access=3)
    return address


def test_physical_memory_of_two_programs(machine: Machine) -> None:
    first, second = machine.first, machine.second
    key = passed_on(first, physical(first))
    before = machine.memory_bytes()
    assert passed_on(first, PHYSICAL) == key
    assert result_of_import(second, PHYSICAL, key) == 0
    assert result_of_import(first, PHYSICAL + 1, key) == 0, "where it is, too"
    assert machine.memory_bytes() == before + 2 * STEP
    mine, there = mapped(first, PHYSICAL), mapped(second, PHYSICAL)
    fill(first, mine, 3, STEP)
    assert second.from_device(there + STEP - 1, 1) == b"\3"
    assert settled(second, "physical_export", handle=PHYSICAL).result == INVALID_VALUE, "it is not its own to pass on"
    first.ok("cuMemRelease", handle=PHYSICAL)
    assert result_of_import(second, PHYSICAL + 2, key) == 0, "it is mapped"
    first.ok("cuMemUnmap", address=mine, bytes=STEP)
    assert result_of_import(second, PHYSICAL + 3, key) == INVALID_VALUE
    assert second.from_device(there, 1) == b"\3"
    second.ok("cuMemUnmap", address=there, bytes=STEP)
    for number in (PHYSICAL, PHYSICAL + 2):
        second.ok("cuMemRelease", handle=number)
    first.ok("cuMemRelease", handle=PHYSICAL + 1)
    assert machine.memory_bytes() == before - STEP
    assert machine.nr_shared() == 0


def test_physical_memory_that_is_not_to_be_had(machine: Machine) -> None:
    first, second = machine.first, machine.second
    key = passed_on(first, physical(first))
    plain = physical(first, PHYSICAL + 1, is_shareable=False)
    for number in (0, PHYSICAL + 2, plain, PRIMARY, (1 << 64) - 1):
        assert settled(first, "physical_export", handle=number).result == INVALID_VALUE
    assert result_of_import(machine.foreign, PHYSICAL, key) == INVALID_VALUE
    assert result_of_import(second, PHYSICAL, (key[0] ^ 1, key[1])) == INVALID_VALUE
    physical(second)
    before = machine.memory_bytes()
    assert result_of_import(second, PHYSICAL, key) != 0, "the number is taken"
    assert machine.memory_bytes() == before
    assert second.call("cuMemRelease", handle=PHYSICAL).result == 0


def test_descriptors_that_are_no_physical_memory(machine: Machine) -> None:
    second, worker = machine.second, machine.workers[1]
    plain = os.memfd_create("plain")
    os.ftruncate(plain, 4 * STEP)
    before = machine.memory_bytes()
    for number, (nbytes, files) in enumerate(
        [(STEP, [plain]), (0, [plain]), (STEP, [plain, plain]), (1 << 63, [plain])]
    ):
        found(worker, (number, 7), nbytes, files)
        assert result_of_import(second, PHYSICAL, (number, 7)) in (INVALID_VALUE, OUT_OF_MEMORY)
    assert machine.memory_bytes() == before
    os.close(plain)
    assert result_of_import(second, PHYSICAL, passed_on(machine.first, physical(machine.first))) == 0


def found(worker: Worker, key: tuple[int, int], nbytes: int, files: list[int]) -> None:
    """The daemon's answer, which another worker of the vGPU made up."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", files))] if files else []
    worker.socket.sendmsg([Message(FOUND, key, nbytes).packed()], rights)


def test_descriptors_of_a_worker_that_was_taken_over(machine: Machine) -> None:
    """They are of anything, and sizes lie."""
    second, worker = machine.second, machine.workers[1]
    plain = os.memfd_create("plain")
    os.ftruncate(plain, 4 * STEP)
    reader, writer = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    cases = [
        (STEP, [plain]),
        (STEP, [reader]),
        (STEP, [writer]),
        (STEP, [null]),
        (STEP, [worker.socket.fileno()]),
        (0, [plain]),
        (1, [plain]),
        ((1 << 64) - STEP, [plain]),
        (BYTES + STEP, [plain]),
        (STEP, [plain, plain]),
        (STEP, [plain] * shelf.MOST_FILES),
        ((1 << 30) + STEP, [plain]),
    ]
    before = machine.memory_bytes()
    for number, (nbytes, files) in enumerate(cases):
        key = (number, 77)
        found(worker, key, nbytes, files)
        assert result_of_open(second, key) == INVALID_VALUE
    assert machine.memory_bytes() == before
    for file in (plain, reader, writer, null):
        os.close(file)
    opened(second, exported(machine.first, allocate(machine.first, STEP)))


def test_memory_of_another_size_than_was_said(machine: Machine) -> None:
    allocation = allocate(machine.first, 2 * STEP)
    key = exported(machine.first, allocation)
    assert machine.nr_shared() == 1
    [shared] = machine.daemon.shelves._shelves[machine.vgpus[0]].shared.values()
    for nbytes in (STEP, 4 * STEP):
        found(machine.workers[1], (nbytes, 1), nbytes, list(shared.files))
        assert result_of_open(machine.second, (nbytes, 1)) == INVALID_VALUE
    opened(machine.second, key)


def test_noise_on_the_daemon_s_socket(machine: Machine) -> None:
    worker = machine.workers[1]
    for data in (b"noise", bytes(32), struct.pack("<QQQQ", 5, 1, 2, 3), bytes(63), bytes(65), bytes(4096)):
        worker.socket.sendall(data)
    found(worker, (5, 5), STEP, [])
    assert result_of_open(machine.second, (5, 5)) == INVALID_VALUE
    opened(machine.second, exported(machine.first, allocate(machine.first, STEP)))
