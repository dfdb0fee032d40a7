"""Calls that cost the device nothing, and name memory that has left it: they wait for it, as work does that uses it."""

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.backend_host.swapping import CAPACITY, STEP, bring_out, filled, first_word, serving, set_target, wait_for
from tests.backend_host.test_worker_graphs import copy_node, node_params
from tests.backend_host.worker_guest import STREAM, Guest
from tests.backend_host.worker_harness import Served

EXEC = 0x4A_00000001_000001
MEMSET = 2
WRITE = 2
"""Of CUstreamBatchMemOpType."""


@pytest.fixture
def served() -> Iterator[Served]:
    for served in serving():
        served.guest.ok("cuStreamCreate", phStream=STREAM, Flags=1)
        yield served


def waits_for_memory(served: Served, call: str, payload: bytes = b"", **fields: Any) -> Any:
    """All of it is off the device, and comes back while the call waits. The call's answer."""
    bring_out(served)
    slot = served.guest.begin(call, payload, **fields)
    wait_for(served, lambda each: each.displaced_since_ns != 0, "it waits for its memory")
    assert not served.guest.is_answered(slot)
    set_target(served, CAPACITY)
    answer = served.guest.finish(call, slot)
    assert answer.result == 0
    return answer


def test_a_value_is_written_where_it_belongs(served: Served) -> None:
    guest = served.guest
    [address] = filled(guest, 1)
    for value, call in ((5, "cuStreamWriteValue32_v2"), (6, "cuStreamWriteValue64_v2")):
        waits_for_memory(served, call, stream=STREAM, addr=address, value=value)
        assert first_word(guest, address) == value
    batch = struct.pack("<I4xQQI4xQ8x", WRITE, address + STEP - 8, 7, 0, 0)
    waits_for_memory(served, "cuStreamBatchMemOp_v2", batch, stream=STREAM, count=1)
    assert first_word(guest, address + STEP - 8) == 7


def test_a_value_is_waited_for_where_it_is(served: Served) -> None:
    guest = served.guest
    [address] = filled(guest, 1)
    for call in ("cuStreamWaitValue32_v2", "cuStreamWaitValue64_v2"):
        guest.ok("cuMemsetD32_v2", dstDevice=address, ui=0, N=2)
        guest.ok("cuStreamWriteValue32_v2", stream=STREAM, addr=address, value=1)
        waits_for_memory(served, call, stream=STREAM, addr=address, value=1, flags=1)
        guest.ok("cuStreamSynchronize", hStream=STREAM)


def test_values_elsewhere_are_written_at_once(served: Served) -> None:
    guest = served.guest
    filled(guest, 1)
    offset = guest.allocate(4096)
    guest.ok("host_register", address=guest.address + offset, bytes=4096)
    bring_out(served)
    guest.ok("cuStreamWriteValue32_v2", stream=STREAM, addr=guest.address + offset, value=9)
    set_target(served, CAPACITY)
    guest.ok("cuCtxSynchronize")
    assert guest.read(offset, 4) == (9).to_bytes(4, "little")


def launched(guest: Guest, address: int, graph: int) -> int:
    """The first word there, once a graph has run."""
    assert guest.ok("graph_instantiate", exec=EXEC, graph=graph).error == 0
    guest.cast_off("cuGraphLaunch", hGraphExec=EXEC, hStream=STREAM)
    guest.ok("cuStreamSynchronize", hStream=STREAM)
    return first_word(guest, address)


def test_what_is_captured_finds_its_memory(served: Served) -> None:
    guest = served.guest
    [address] = filled(guest, 1)
    bring_out(served)
    guest.ok("capture_begin", stream=STREAM)
    waits_for_memory(served, "cuMemsetD32Async", dstDevice=address, ui=8, N=4, hStream=STREAM)
    assert launched(guest, address, guest.ok("capture_end", stream=STREAM).graph) == 8


def set_node(address: int, value: int) -> bytes:
    return node_params(MEMSET, struct.pack("<QQIIQQQ", address, 0, value, 4, 4, 1, 0))


def copying(guest: Guest, address: int) -> bytes:
    heap = guest.address + guest.allocate(4096)
    guest.ok("host_register", address=heap, bytes=4096)
    guest.write(heap - guest.address, (8).to_bytes(4, "little"))
    return copy_node(heap, address, 4)


@pytest.mark.parametrize("params", [lambda guest, address: set_node(address, 8), copying], ids=["set", "copy"])
def test_a_node_finds_its_memory(served: Served, params: Callable[[Guest, int], bytes]) -> None:
    guest = served.guest
    [address] = filled(guest, 1)
    graph = guest.ok("graph_create").graph
    waits_for_memory(served, "graph_add_node", params(guest, address), graph=graph)
    assert launched(guest, address, graph) == 8


def test_a_node_that_changes_finds_its_memory(served: Served) -> None:
    guest = served.guest
    [address] = filled(guest, 1)
    graph = guest.ok("graph_create").graph
    node = guest.ok("graph_add_node", set_node(address, 7), graph=graph).node
    waits_for_memory(served, "graph_set_node", set_node(address, 8), node=node)
    assert waits_for_memory(served, "graph_instantiate", exec=EXEC + 1, graph=graph).error == 0
    assert waits_for_memory(served, "graph_update", exec=EXEC + 1, graph=graph).error == 0
    assert launched(guest, address, graph) == 8
