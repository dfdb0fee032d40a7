"""Memory pools that programs of one vGPU share: pieces on the shelf, who keeps them, what counts, and what is not to be had."""

import random
from collections.abc import Iterator

import pytest

from tests.backend_host.sharing_machine import (
    INVALID_CONTEXT,
    INVALID_VALUE,
    MOST_LIVE,
    PIECE,
    POOL,
    SPAN,
    STEP,
    Machine,
    fill,
    opened,
    result_of_open,
    running,
    settled,
)
from tests.backend_host.worker_guest import Guest


@pytest.fixture
def machine() -> Iterator[Machine]:
    with running() as machine:
        yield machine


def pool(guest: Guest, number: int = POOL, *, is_shareable: bool = True) -> int:
    guest.ok("cuMemPoolCreate", handle=number, is_shareable=int(is_shareable))
    return number


def pooled(guest: Guest, number: int, nbytes: int) -> int:
    return int(guest.ok("cuMemAllocFromPoolAsync", bytes=nbytes, pool=number).address)


def piece(guest: Guest, address: int) -> tuple[tuple[int, int], int, int]:
    """Key, base and size of what is shared."""
    answer = settled(guest, "ipc_export", address=address)
    assert answer.result == 0
    return (int(answer.key[0]), int(answer.key[1])), int(answer.base), int(answer.bytes)


def test_memory_of_a_pool_in_two_programs(machine: Machine) -> None:
    first, second = machine.first, machine.second
    one, other = (pooled(first, pool(first) if number == 0 else POOL, STEP) for number in range(2))
    fill(first, one, 3, STEP)
    fill(first, other, 4, STEP)
    key, base, nbytes = piece(first, other)
    assert piece(first, one) == (key, base, nbytes), "small memory of a pool lies in one piece"
    assert nbytes == PIECE
    assert base <= min(one, other)
    there = opened(second, key)
    assert second.from_device(there + one - base, 1) == b"\3"
    assert second.from_device(there + other - base, 1) == b"\4"
    fill(second, there + one - base, 5, 1)
    assert first.from_device(one, 2) == b"\5\3"
    large = pooled(first, POOL, PIECE + STEP)
    far, far_base, far_bytes = piece(first, large)
    assert (far != key, far_base, far_bytes) == (True, large, 2 * PIECE), "memory never lies across two pieces"
    assert machine.nr_shared() == 2


def test_a_piece_of_a_pool_stays_as_long_as_some_of_it_is_used(machine: Machine) -> None:
    first, second = machine.first, machine.second
    one, other = (pooled(first, pool(first) if number == 0 else POOL, STEP) for number in range(2))
    fill(first, other, 4, STEP)
    key, base, _ = piece(first, one)
    first.ok("cuMemFree_v2", dptr=one)
    first.ok("cuMemPoolTrimTo", pool=POOL)
    first.ok("cuMemPoolDestroy", pool=POOL)
    assert piece(first, other)[0] == key
    there = opened(second, key)
    first.ok("cuMemFree_v2", dptr=other)
    assert machine.nr_shared() == 0, "nothing of it is used: it is given back"
    assert second.from_device(there + other - base, 1) == b"\4", "but for whoever has it open"
    second.ok("ipc_close", address=there)
    assert result_of_open(second, key) == INVALID_VALUE


def test_a_pool_that_is_not_to_be_had(machine: Machine) -> None:
    first, second = machine.first, machine.second
    plain = pooled(first, pool(first, POOL + 1, is_shareable=False), STEP)
    own = pooled(first, pool(first), STEP)
    gone = pooled(first, POOL, STEP)
    first.ok("cuMemFree_v2", dptr=gone)
    for wrong in (plain, gone, own - 1, own + PIECE):
        assert settled(first, "ipc_export", address=wrong).result == INVALID_VALUE
    key, base, _ = piece(first, own)
    assert result_of_open(machine.foreign, key) == INVALID_VALUE
    assert result_of_open(second, (key[1], key[0])) == INVALID_VALUE
    assert result_of_open(first, key) == INVALID_CONTEXT
    again = settled(first, "ipc_open", key=list(key), may_be_own=1)
    assert (again.result, again.address != base) == (0, True)
    assert settled(first, "ipc_open", key=list(key), may_be_own=1).result == INVALID_VALUE, "it is open"
    there = opened(second, key)
    for call in ("cuMemFreeAsync", "ipc_export"):
        assert settled(second, call, address=there).result == INVALID_VALUE, "it is not its own"


def test_the_maker_of_a_pool_dies(machine: Machine) -> None:
    first, second = machine.first, machine.second
    mine = pooled(first, pool(first), STEP)
    fill(first, mine, 5, STEP)
    key, base, _ = piece(first, mine)
    there = opened(second, key)
    machine.workers[0].process.kill()
    machine.workers[0].process.wait()
    assert second.from_device(there + mine - base, 4) == b"\5\5\5\5"
    second.ok("ipc_close", address=there)
    assert result_of_open(second, key) == INVALID_VALUE


def test_what_is_open_of_a_pool_counts_once(machine: Machine) -> None:
    first, second = machine.first, machine.second
    before = machine.memory_bytes()
    addresses = [pooled(first, pool(first) if number == 0 else POOL, STEP) for number in range(4)]
    assert machine.memory_bytes() == before + 4 * STEP
    keys = {piece(first, address)[0] for address in addresses for _ in range(100)}
    [key] = keys
    assert machine.nr_shared() == 1
    there = opened(second, key)
    assert machine.memory_bytes() == before + 4 * STEP + PIECE
    second.ok("ipc_close", address=there)
    for address in addresses:
        first.ok("cuMemFree_v2", dptr=address)
    first.ok("cuMemPoolTrimTo", pool=POOL)
    assert machine.memory_bytes() == before


@pytest.mark.parametrize("seed", range(3))
def test_pieces_against_a_model(machine: Machine, seed: int) -> None:
    """Whatever is allocated and freed: what lies in a piece has its key, and a piece that is unused is gone."""
    chance = random.Random(seed)
    first = machine.start(machine.first.region, 2, 0, SPAN, 4 << 30)
    pool(first)
    before = machine.memory_bytes()
    live: dict[int, int] = {}
    keys: dict[int, tuple[int, int]] = {}
    for _ in range(80):
        if len(live) == MOST_LIVE or (live and chance.random() < 0.45):
            address = chance.choice(list(live))
            first.ok("cuMemFree_v2", dptr=address)
            del live[address]
            first.ok("cuMemPoolTrimTo", pool=POOL)
        else:
            nbytes = chance.choice((512, STEP, 5 * STEP, PIECE, PIECE + 512))
            address = pooled(first, POOL, nbytes)
            assert all(address + nbytes <= other or other + size <= address for other, size in live.items())
            live[address] = nbytes
        bases = set()
        for address, nbytes in live.items():
            key, base, size = piece(first, address)
            assert base <= address
            assert address + nbytes <= base + size
            assert keys.setdefault(base, key) == key, "a piece keeps its key"
            bases.add(base)
        for base in set(keys) - bases:
            del keys[base]
    for address in live:
        first.ok("cuMemFree_v2", dptr=address)
    first.ok("cuMemPoolTrimTo", pool=POOL)
    assert machine.nr_shared() == 0
    assert machine.memory_bytes() == before
