"""Captures and graphs at the worker: what costs the grant and what does not, and a guest that lies about graphs."""

import contextlib
import struct
from pathlib import Path
from typing import Any

import pytest

from cuda_api.generated.values import Place
from ivshmem.region import Region
from tests.backend_host.between import build_between
from tests.backend_host.worker_guest import EVENT, FUNCTION, MODULE, NO_CHUNK, PRIMARY, STREAM, Guest, kernel_image
from tests.backend_host.worker_harness import Host, Served

PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 out, .param .u32 value)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [value];
    ld.global.u32 %r2, [%rd1];
    add.u32 %r2, %r2, %r1;
    st.global.u32 [%rd1], %r2;
    ret;
}
"""
EXEC = 0x4A_00000001_000001
INVALID_VALUE, INVALID_HANDLE, NOT_SUPPORTED, UNSUPPORTED, INVALIDATED = 1, 400, 801, 900, 901
KERNEL, MEMCPY, HOST_NODE, EMPTY, CONDITIONAL = 0, 1, 3, 5, 13
ON_HOST, ON_DEVICE = 1, 2
NODES, ROOTS, EDGES, DEPENDENCIES = 0, 1, 2, 3


@pytest.fixture
def guest(host: Host, region: Region) -> Guest:
    guest = Served(host, region).primary()
    assert guest.load(kernel_image(PTX)).result == 0
    fields: dict[str, Any] = {"module": MODULE, "handle": FUNCTION, "name_bytes": 3}
    guest.ok("cuModuleGetFunction", b"add", chunk=NO_CHUNK, **fields)
    guest.cast_off("cuStreamCreate", phStream=STREAM)
    return guest


def node_params(kind: int, body: bytes = b"") -> bytes:
    """A CUgraphNodeParams."""
    return struct.pack("<I12x", kind) + body.ljust(240, b"\0")


def kernel_node(function: int, nr_blocks: int = 1) -> bytes:
    return node_params(KERNEL, struct.pack("<Q7I4xQQQQ", function, nr_blocks, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0))


def copy_node(from_host: int, to_device: int, nbytes: int) -> bytes:
    side = struct.Struct("<QQQQI4xQQQQQQ")  # x, y, z, LOD, kind, host, device, array, reserved, pitch, height
    source = side.pack(0, 0, 0, 0, ON_HOST, from_host, 0, 0, 0, nbytes, 1)
    destination = side.pack(0, 0, 0, 0, ON_DEVICE, 0, to_device, 0, 0, nbytes, 1)
    return node_params(MEMCPY, struct.pack("<iiQ", 0, 0, 0) + source + destination + struct.pack("<QQQ", nbytes, 1, 1))


def add_node(
    guest: Guest, graph: int, params: bytes, parameters: bytes = b"", after: tuple[int, ...] = (), **staging: int
) -> Any:
    payload = b"".join(node.to_bytes(8, "little") for node in after) + params + parameters
    fields: dict[str, Any] = {"graph": graph, "nr_nodes": len(after), "nr_parameter_bytes": len(parameters)}
    return guest.call("graph_add_node", payload, **fields, **staging)


def listed(guest: Guest, what: int, handle: int) -> list[int]:
    answer = guest.ok("graph_list", handle=handle, what=what, chunk=0, capacity=1000)
    found = guest.read(guest.chunk_offset(0), 8 * answer.nr)
    return list(struct.unpack(f"<{answer.nr}Q", found))


def word(guest: Guest, address: int) -> int:
    return int.from_bytes(guest.from_device(address, 4), "little")


def test_a_captured_launch_costs_nothing_and_a_launched_graph_does(guest: Guest, host: Host) -> None:
    out = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    guest.to_device(out, bytes(4))
    assert word(guest, out) == 0
    guest.ok("cuMemGetInfo_v2")  # a copy is answered before it is charged
    before = host.control.vgpu(0)
    guest.ok("capture_begin", stream=STREAM)
    for _ in range(3):
        guest.launch(FUNCTION, struct.pack("<QI", out, 5), stream=STREAM)
    info = guest.ok("capture_info", stream=STREAM, chunk=1)
    assert (info.status, info.nr_nodes) == (1, 1)
    ended = guest.ok("capture_end", stream=STREAM)
    assert (ended.error, ended.is_over, ended.graph) == (0, 1, info.graph)
    after = host.control.vgpu(0)
    assert before is not None
    assert after is not None
    assert after.used_ns == before.used_ns
    assert word(guest, out) == 0, "nothing has run"
    nodes = listed(guest, NODES, ended.graph)
    assert len(nodes) == len(set(nodes)) == 3
    assert listed(guest, ROOTS, ended.graph) == nodes[:1]
    assert listed(guest, DEPENDENCIES, nodes[2]) == [nodes[1]]
    assert guest.ok("graph_instantiate", exec=EXEC, graph=ended.graph).error == 0
    for _ in range(2):
        guest.cast_off("cuGraphLaunch", hGraphExec=EXEC, hStream=STREAM)
    guest.ok("cuStreamSynchronize", hStream=STREAM)
    assert word(guest, out) == 2 * 3 * 5
    charged = host.control.vgpu(0)
    assert charged is not None
    assert charged.used_ns > after.used_ns


def test_bytes_that_will_be_gone_are_not_captured(guest: Guest) -> None:
    out = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    guest.ok("capture_begin", stream=STREAM)
    fields: dict[str, Any] = {"destination": out, "stream": STREAM, "bytes": 16}
    assert guest.call("cuMemcpyHtoDAsync_v2", bytes(16), chunk=NO_CHUNK, **fields).result == UNSUPPORTED
    guest.lend_chunk(2)
    assert guest.call("cuMemcpyHtoDAsync_v2", place=Place.ARENA, chunk=2, **fields).result == UNSUPPORTED
    assert guest.await_chunk(2) == UNSUPPORTED, "the chunk comes back"
    guest.lend_chunk(2)
    fields = {"source": out, "stream": STREAM, "bytes": 16}
    assert guest.call("cuMemcpyDtoHAsync_v2", place=Place.ARENA, chunk=2, **fields).result == UNSUPPORTED
    assert guest.await_chunk(2) == UNSUPPORTED
    heap = guest.address + guest.allocate(4096)
    assert (
        guest.call(
            "cuMemcpyHtoDAsync_v2",
            place=Place.HEAP,
            chunk=NO_CHUNK,
            destination=out,
            source=heap,
            stream=STREAM,
            bytes=16,
        ).result
        == 0
    )
    guest.ok("capture_invalidate", stream=STREAM)
    assert guest.ok("capture_info", stream=STREAM, chunk=NO_CHUNK).status == 2
    ended = guest.ok("capture_end", stream=STREAM)
    assert (ended.error, ended.is_over) == (INVALIDATED, 1)
    assert guest.call("cuGraphDestroy", hGraph=ended.graph).result == INVALID_VALUE, "its number is gone"


def test_work_of_another_stream_is_waited_for_while_one_is_captured(guest: Guest) -> None:
    out = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    guest.cast_off("cuStreamCreate", phStream=STREAM + 1, Flags=1)
    guest.cast_off("cuStreamCreate", phStream=STREAM + 2, Flags=1)
    guest.cast_off("cuEventCreate", phEvent=EVENT, Flags=2)
    guest.to_device(out, bytes(4), stream=STREAM + 1)
    guest.ok("capture_begin", stream=STREAM + 2)
    for _ in range(5):
        guest.launch(FUNCTION, struct.pack("<QI", out, 1), stream=STREAM + 1)
    guest.ok("cuEventRecord", hEvent=EVENT, hStream=STREAM + 2)
    guest.ok("cuStreamWaitEvent", hStream=STREAM + 1, hEvent=EVENT)  # with work in flight, it joins
    assert guest.ok("capture_info", stream=STREAM + 1, chunk=NO_CHUNK).status == 1
    assert guest.ok("capture_end", stream=STREAM + 2).error == 0
    guest.ok("cuStreamSynchronize", hStream=STREAM + 1)
    assert word(guest, out) == 5
    assert guest.take_error() == 0


def test_numbers_that_are_none(guest: Guest) -> None:
    graph = guest.ok("graph_create").graph
    other = guest.ok("graph_create").graph
    node = add_node(guest, graph, node_params(EMPTY)).node
    assert node != 0
    for lie in (0, 1, node + 100, graph, STREAM, PRIMARY, (1 << 64) - 1):
        assert add_node(guest, graph, node_params(EMPTY), after=(lie,)).result == INVALID_VALUE
        assert guest.call("cuGraphNodeGetType", hNode=lie).result == INVALID_VALUE
        assert guest.call("cuGraphDestroyNode", node=lie).result == INVALID_VALUE
        changed: dict[str, Any] = {"node": lie, "nr_parameter_bytes": 0}
        assert guest.call("graph_set_node", node_params(EMPTY), **changed).result == INVALID_VALUE
        assert guest.call("cuGraphNodeSetEnabled", exec=lie, node=lie).result == INVALID_VALUE
        assert guest.call("graph_get_node", node=lie, chunk=0).result == INVALID_VALUE
    for lie in (0, 1, node, graph + 100, EXEC):
        assert guest.call("cuGraphDestroy", hGraph=lie).result == INVALID_VALUE
        assert guest.call("graph_clone", graph=lie).result == INVALID_VALUE
        assert guest.call("graph_list", handle=lie, what=NODES, chunk=0, capacity=1).result == INVALID_VALUE
        assert guest.call("graph_instantiate", exec=EXEC, graph=lie).result == INVALID_VALUE
    for lie in (0, 1, EXEC, graph):
        assert guest.call("cuGraphLaunch", hGraphExec=lie, hStream=STREAM).result == INVALID_VALUE
        assert guest.call("graph_update", exec=lie, graph=graph).result == INVALID_VALUE
    assert add_node(guest, other, node_params(EMPTY), after=(node,)).result == INVALID_VALUE, "a node of another graph"
    guest.ok("cuGraphDestroy", hGraph=graph)
    assert guest.call("cuGraphNodeGetType", hNode=node).result == INVALID_VALUE, "nodes go with their graph"
    assert guest.call("graph_list", handle=node, what=DEPENDENCIES, chunk=0, capacity=1).result == INVALID_VALUE
    assert guest.ok("graph_create").graph not in (graph, other, node), "numbers do not come back"


def test_a_child_graph_goes_with_its_node(guest: Guest) -> None:
    graph, child = guest.ok("graph_create").graph, guest.ok("graph_create").graph
    add_node(guest, child, node_params(EMPTY))
    node = add_node(guest, graph, node_params(4, child.to_bytes(8, "little"))).node
    guest.ok("graph_get_node", node=node, chunk=0, type=4)
    owned = int.from_bytes(guest.read(guest.chunk_offset(0) + 16, 8), "little")
    assert owned not in (0, child)
    [inner] = listed(guest, NODES, owned)
    assert guest.call("cuGraphDestroy", hGraph=owned).result == INVALID_VALUE, "it is the node's"
    guest.ok("cuGraphDestroyNode", node=node)
    assert guest.call("cuGraphNodeGetType", hNode=inner).result == INVALID_VALUE
    assert guest.call("graph_list", handle=owned, what=NODES, chunk=0, capacity=1).result == INVALID_VALUE


@pytest.mark.parametrize("nr_nodes", [1, 2, 1 << 20, (1 << 32) - 1])
@pytest.mark.parametrize("has_edges", [0, 1])
def test_counts_that_no_payload_holds(guest: Guest, nr_nodes: int, has_edges: int) -> None:
    graph = guest.ok("graph_create").graph
    counts: dict[str, Any] = {"nr_nodes": nr_nodes, "has_edges": has_edges}
    assert guest.call("graph_add_node", node_params(EMPTY)[:8], graph=graph, **counts).result == INVALID_VALUE
    assert guest.call("graph_edit", b"", graph=graph, **counts).result == INVALID_VALUE
    assert guest.call("capture_update", b"", stream=STREAM, **counts).result == INVALID_VALUE
    assert guest.call("capture_begin", b"", stream=STREAM, graph=graph, **counts).result == INVALID_VALUE
    assert guest.ok("capture_info", stream=STREAM, chunk=NO_CHUNK).status == 0


def test_parameters_must_be_the_kernels(guest: Guest) -> None:
    graph = guest.ok("graph_create").graph
    out = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    right = struct.pack("<QI", out, 7)
    for lie in (b"", right[:-1], right + b"\0", right * 100):
        assert add_node(guest, graph, kernel_node(FUNCTION), lie).result == INVALID_VALUE
    for function in (0, FUNCTION + 1, MODULE, 1 << 47):
        assert add_node(guest, graph, kernel_node(function), right).result == INVALID_HANDLE
    long = (1 << 32) - 1
    assert guest.call("graph_add_node", kernel_node(FUNCTION), graph=graph, nr_parameter_bytes=long).result == 1
    node = add_node(guest, graph, kernel_node(FUNCTION), right)
    assert node.result == 0
    assert guest.call("graph_set_node", kernel_node(FUNCTION) + right[:4], node=node.node, nr_parameter_bytes=4).result
    answer = guest.ok("graph_get_node", node=node.node, chunk=1, type=KERNEL)
    assert (answer.nr_parameter_bytes, answer.root) == (12, graph)
    assert guest.read(guest.chunk_offset(1) + 256, 12) == right
    assert int.from_bytes(guest.read(guest.chunk_offset(1) + 16, 8), "little") == FUNCTION


def test_copies_reach_the_heap_alone(guest: Guest) -> None:
    graph = guest.ok("graph_create").graph
    device = guest.ok("cuMemAlloc_v2", bytesize=1 << 20).dptr
    heap = guest.address + guest.allocate(8192)
    assert add_node(guest, graph, copy_node(heap, device, 8192)).result == 0
    for address, nbytes in (
        (heap, 1 << 30),
        (heap, (1 << 64) - 1),
        (heap, 0),
        (guest.address, 4096),
        (guest.address - 4096, 8192),
        (0x400000, 4096),
        (0x7FFF_FFFF_0000, 4096),
        ((1 << 64) - 4096, 8192),
    ):
        assert add_node(guest, graph, copy_node(address, device, nbytes)).result == INVALID_VALUE, hex(address)
    unified = bytearray(copy_node(0x400000, device, 4096))
    unified[16 + 16 + 32 : 16 + 16 + 36] = (4).to_bytes(4, "little")
    assert add_node(guest, graph, bytes(unified)).result == NOT_SUPPORTED
    for number in (0, 1, STREAM, 0x400000, (1 << 64) - 1):
        array = bytearray(copy_node(0x400000, device, 4096))
        array[64:68] = (3).to_bytes(4, "little")
        array[88:96] = number.to_bytes(8, "little")
        assert add_node(guest, graph, bytes(array)).result == INVALID_HANDLE, hex(number)


def test_nodes_that_stage_a_copy_are_the_workers(guest: Guest) -> None:
    """No number names them, and edges of the copy lead around them."""
    graph = guest.ok("graph_create").graph
    device = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    copy = copy_node(guest.address + guest.allocate(4096), device, 4096)
    first = add_node(guest, graph, copy, fill=5, drain=6).node
    second = add_node(guest, graph, copy, after=(first,), fill=7).node
    assert sorted(listed(guest, NODES, graph)) == sorted([first, second])
    assert guest.ok("graph_list", handle=graph, what=NODES, chunk=0, capacity=0).nr_all == 2
    assert listed(guest, ROOTS, graph) == [first]
    assert listed(guest, EDGES, graph) == [first]
    assert listed(guest, DEPENDENCIES, second) == [first]
    told = guest.ok("graph_get_node", node=first, chunk=0, type=MEMCPY)
    assert (told.fill, told.drain) == (5, 6)
    changed: dict[str, Any] = {"node": second, "nr_parameter_bytes": 0}
    guest.ok("graph_set_node", copy, **changed, fill=8, drain=9)
    told = guest.ok("graph_get_node", node=second, chunk=0, type=MEMCPY)
    assert (told.fill, told.drain) == (8, 9), "it had no node behind it"
    assert listed(guest, DEPENDENCIES, second) == [first]
    guest.ok("cuGraphDestroyNode", node=first)
    assert listed(guest, NODES, graph) == listed(guest, ROOTS, graph) == [second]


def test_what_cannot_be_staged(guest: Guest) -> None:
    graph = guest.ok("graph_create").graph
    device = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    copy = copy_node(guest.address + guest.allocate(4096), device, 4096)
    assert add_node(guest, graph, node_params(EMPTY), fill=5).result == INVALID_VALUE
    assert add_node(guest, graph, node_params(HOST_NODE, struct.pack("<QQ", 0, 7)), drain=5).result == INVALID_VALUE
    assert add_node(guest, graph, copy_node(0x400000, device, 4096), fill=5).result == INVALID_VALUE
    assert listed(guest, NODES, graph) == [], "nothing is left of what was tried"
    node = add_node(guest, graph, copy).node
    assert guest.ok("graph_instantiate", exec=EXEC, graph=graph).error == 0
    changed: dict[str, Any] = {"exec": EXEC, "node": node, "nr_parameter_bytes": 0}
    assert guest.call("graph_set_node", copy, **changed, fill=5).result == NOT_SUPPORTED
    guest.ok("graph_set_node", copy, **changed)
    guest.ok("capture_begin", stream=STREAM)
    fields: dict[str, Any] = {"stream": STREAM, "function": 5}
    for kind in (3, 1 << 31):
        assert guest.call("capture_host_function", kind=kind, **fields).result == INVALID_VALUE
    guest.ok("capture_host_function", kind=1, **fields)
    assert listed(guest, NODES, guest.ok("capture_end", stream=STREAM).graph) == [], "it has no copy"


def test_kinds_that_are_not_carried(guest: Guest) -> None:
    graph = guest.ok("graph_create").graph
    for kind in (8, 9, 14, 1 << 31):
        assert add_node(guest, graph, node_params(kind, struct.pack("<QQ", 0x400000, 0))).result == NOT_SUPPORTED, kind
    made_up = struct.pack("<QII", 0x1234, 0, 1)
    assert add_node(guest, graph, node_params(CONDITIONAL, made_up)).result == INVALID_VALUE
    assert listed(guest, NODES, graph) == []


def operations_node(nr: int) -> bytes:
    return node_params(12, struct.pack("<QI4xQI4x", 0, nr, 0x400000, 0))


def test_memory_operations_in_nodes_are_known_ones(guest: Guest) -> None:
    graph = guest.ok("graph_create").graph
    device = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    write, wait = (struct.pack("<I4xQQI4xQ8x", kind, device, 7, 0, 0) for kind in (2, 1))
    made = add_node(guest, graph, operations_node(2), write + wait)
    assert made.result == 0
    told = guest.ok("graph_get_node", node=made.node, chunk=0, type=12)
    assert told.nr_parameter_bytes == 96
    empty = add_node(guest, guest.ok("graph_create").graph, operations_node(0), b"")
    assert empty.result == 0, "whether there may be none is the driver's to say"
    assert guest.ok("graph_get_node", node=empty.node, chunk=0, type=12).nr_parameter_bytes == 0
    for nr, operations in (
        (0, write),
        (1, b""),
        (2, write),
        (1, write + write),
        (1 << 31, write),
        (257, write * 257),
        (1, struct.pack("<I4xQQI4xQ8x", 9, device, 7, 0, 0)),
        (1, struct.pack("<I4xQQI4xQ8x", 2, device, 7, 2, 0)),
        (1, struct.pack("<I4xQQI4xQ8x", 2, 0x400000, 7, 0, 0)),
    ):
        assert add_node(guest, graph, operations_node(nr), operations).result == INVALID_VALUE, (nr, operations[:8])
    assert listed(guest, NODES, graph) == [made.node]


def test_a_graph_that_kernels_may_launch_has_the_drivers_number(guest: Guest) -> None:
    """It is looked up as any number is: what kernels would be given is nothing that the worker believes."""
    graph = guest.ok("graph_create").graph
    assert guest.ok("graph_instantiate", exec=EXEC, graph=graph).number == EXEC
    other = EXEC + 1
    number = guest.ok("graph_instantiate", exec=other, graph=graph, flags=4).number
    assert number not in (EXEC, other)
    for wrong in (other, number + 8, 0x400000):
        assert guest.call("cuGraphExecGetFlags", hGraphExec=wrong).result == INVALID_VALUE
        guest.call("cuGraphLaunch", hGraphExec=wrong)
    assert guest.ok("cuGraphExecGetFlags", hGraphExec=number).flags == 4
    guest.ok("cuGraphUpload", hGraphExec=number)
    guest.ok("cuGraphLaunch", hGraphExec=number)
    guest.ok("cuGraphExecDestroy", hGraphExec=number)
    assert guest.call("cuGraphExecGetFlags", hGraphExec=number).result == INVALID_VALUE
    assert guest.ok("cuGraphExecGetFlags", hGraphExec=EXEC).flags == 0


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_default_streams_are_not_captured(guest: Guest, stream: int) -> None:
    assert guest.call("capture_begin", stream=stream).result == UNSUPPORTED
    assert guest.ok("capture_info", stream=stream, chunk=NO_CHUNK).status == 0


def test_a_capture_whose_stream_is_destroyed(guest: Guest) -> None:
    out = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    guest.ok("capture_begin", stream=STREAM)
    guest.launch(FUNCTION, struct.pack("<QI", out, 1), stream=STREAM)
    graph = guest.ok("capture_info", stream=STREAM, chunk=NO_CHUNK).graph
    guest.ok("cuStreamDestroy_v2", hStream=STREAM)
    assert guest.call("graph_list", handle=graph, what=NODES, chunk=0, capacity=1).result == INVALID_VALUE
    assert guest.call("capture_end", stream=STREAM).result == INVALID_HANDLE
    guest.to_device(out, struct.pack("<I", 9))
    assert word(guest, out) == 9


def test_handles_that_graphs_number_alike(region: Region, tmp_path: Path) -> None:
    """Each graph of NVIDIA's driver has its own."""
    tmp_path.chmod(0o755)  # what the worker's user opens the library in
    with contextlib.closing(Host(build_between("numbered_conditions", tmp_path))) as host:
        guest = Served(host, region).primary()
        graphs = [guest.ok("graph_create").graph for _ in range(2)]
        for graph in graphs:
            assert guest.ok("graph_condition", graph=graph, context=PRIMARY).condition == 1
        third = guest.ok("graph_create").graph
        while_loop = node_params(CONDITIONAL, struct.pack("<QIIQQ", 1, 1, 1, 0, PRIMARY))
        assert add_node(guest, third, while_loop).result == INVALID_VALUE, "it has no handle"
        assert [add_node(guest, graph, while_loop).result for graph in graphs] == [0, 0]
        guest.ok("cuGraphDestroy", hGraph=graphs[0])
        assert guest.ok("graph_condition", graph=third, context=PRIMARY).condition == 1
        assert add_node(guest, third, while_loop).result == 0
