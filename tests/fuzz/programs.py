"""Short programs of records: together they come to most of what a handler does. The fuzzer begins with them, and each call that the driver
gets in one of them fails once in test_worker.py."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from tests.fuzz.inputs import (
    ARENA,
    ARRAY,
    CONDITION,
    DEVICE,
    FIRST,
    GRAPH,
    HEAP,
    MEMORY,
    MOVE,
    NO_CHUNK,
    NODE,
    PINNED,
    RESERVED,
    TEXTURE,
    Record,
)

PARAMETERS = bytes(32)
"""Of any function of the stand-in's: four words."""
SET = Record("cuMemsetD8Async", {"dstDevice": MEMORY, "N": 64, "hStream": FIRST})
BEGIN = Record("capture_begin", {"stream": FIRST})
END = Record("capture_end", {"stream": FIRST})
WAIT = Record("cuCtxSynchronize", rounds=3)
SAVE = Record("cuCtxSynchronize", response=MOVE)
NO_GRAPH = Record("cuGraphDestroy", {"hGraph": GRAPH | 1})
"""A client that has one cannot be saved."""
BOX = {
    "to_place": DEVICE,
    "to_address": MEMORY,
    "to_pitch_bytes": 64,
    "to_plane_rows": 1,
    "from_place": ARENA,
    "from_pitch_bytes": 64,
    "from_plane_rows": 1,
    "width_bytes": 64,
    "height": 1,
    "depth": 1,
    "chunk": 0,
}
LINEAR, PITCHED, OF_ARRAY, OF_MIPMAP = 2, 3, 0, 1
"""Of CUresourcetype, by what a texture reads."""


def launch(
    grid: int = 1,
    *,
    function: int = FIRST,
    stream: int = FIRST,
    is_kernel: bool = False,
    attributes: bytes = b"",
    rounds: int = 0,
) -> Record:
    fields = {
        "function": function,
        "stream": stream,
        "grid": [grid, 1, 1],
        "block": [1, 1, 1],
        "nr_parameter_bytes": len(PARAMETERS),
        "flags": 2 if is_kernel else 0,
        "nr_attributes": len(attributes) // 72,
    }
    return Record("cuLaunchKernel", fields, PARAMETERS + attributes, rounds=rounds)


def attribute(number: int, value: int = 0) -> bytes:
    """One CUlaunchAttribute."""
    return struct.pack("<II8Q", number, 0, value, *[0] * 7)


def named(call: str, name: bytes, **owner: int) -> Record:
    return Record(call, {**owner, "name_bytes": len(name)}, name)


def node(kind: int, *words: int) -> bytes:
    """CUgraphNodeParams of this type, of 64-bit words."""
    return struct.pack(f"<4I{len(words)}Q", kind, 0, 0, 0, *words).ljust(256, b"\0")


def two(low: int, high: int) -> int:
    return low | high << 32


TO_DEVICE = (0, 0, 0, 0, 2, 0, MEMORY, 0, 0, 64, 1)
"""One side of a CUDA_MEMCPY3D, and the other: where it begins, what it is, how it lies."""
TO_HEAP = (0, 0, 0, 0, 1, PINNED, 0, 0, 0, 64, 1)
NODES = {
    0: node(0, FIRST, two(1, 1), two(1, 1), two(1, 1)),
    1: node(1, 0, 0, *TO_DEVICE, *TO_HEAP, 64, 1, 1),
    2: node(2, MEMORY, 0, two(0, 1), 64, 1),
    3: node(3, 0, 5),
    4: node(4, GRAPH | 3),
    5: node(5),
    6: node(6, FIRST),
    7: node(7, FIRST),
    10: node(10, two(1, 0), two(1, 0), *[0] * 11, 4096),
    11: node(11, MEMORY),
    13: node(13, CONDITION, two(0, 1)),
}
"""CUgraphNodeParams, by the type of the node."""


def parameters_of(kind: int) -> bytes:
    return PARAMETERS if kind == 0 else b""


def add(kind: int, behind: bytes = b"", **fields: int) -> Record:
    fixed = {"graph": GRAPH | 2, "nr_parameter_bytes": len(parameters_of(kind)), **fields}
    return Record("graph_add_node", fixed, behind + NODES[kind] + parameters_of(kind))


def change(kind: int, number: int, exec_: int = 0, **fields: int) -> Record:
    fixed = {"exec": exec_, "node": NODE | number, "nr_parameter_bytes": len(parameters_of(kind)), **fields}
    return Record("graph_set_node", fixed, NODES[kind] + parameters_of(kind))


def lists(graph: int, of_node: int) -> list[Record]:
    """All five, asked for their length, in whole and from the second on."""
    return [
        Record(
            "graph_list",
            {"handle": graph if what < 3 else of_node, "what": what, "first": first, "capacity": capacity, "chunk": 1},
        )
        for what in range(5)
        for first, capacity in ((0, 0), (0, 8), (1, 8))
    ]


def texture(kind: int, address: int, **fields: int) -> Record:
    fixed = {"type": kind, "address": address, "width": 64, "format": 1, "nr_channels": 1, **fields}
    return Record("cuTexObjectCreate", fixed)


def module(call: str, handle: int, text: bytes = b".version 8.0\n.target sm_90\n.address_size 64\n") -> list[Record]:
    return [
        Record("blob_begin", {"blob": 9, "bytes": len(text)}),
        Record("blob_append", {"blob": 9, "bytes": len(text), "chunk": NO_CHUNK}, text),
        Record(call, {"blob": 9, "handle": handle, "chunk": NO_CHUNK}),
    ]


PLACE = Record("host_place", {"address": RESERVED, "bytes": 8192, "heap": PINNED}, rounds=2)
ALLOCATE = Record("cuMemAlloc_v2", {"bytesize": 64})
VARIABLE = RESERVED
"""Any variable lies where the stand-in gives memory next."""
ONE_BLOCK = {
    "function": FIRST,
    "stream": FIRST,
    "grid": [1, 1, 1],
    "block": [1, 1, 1],
    "nr_parameter_bytes": len(PARAMETERS),
}
ALL_ATTRIBUTES = [attribute(number, FIRST) for number in range(18)]
NUMBERS = {kind: 4 + place for place, kind in enumerate(NODES)}
"""Of the nodes that "nodes" makes, less NODE."""

PROGRAMS: Mapping[str, Sequence[Record]] = {
    "streams": [
        Record("cuStreamCreate", {"phStream": 4}),
        Record("cuEventCreate", {"phEvent": 4}),
        SET,
        Record("cuEventRecord", {"hEvent": 4, "hStream": FIRST}),
        Record("cuStreamWaitEvent", {"hStream": 4, "hEvent": 4}),
        Record("cuMemcpyHtoDAsync_v2", {"destination": MEMORY, "bytes": 64, "place": ARENA, "chunk": 1, "stream": 4}),
        Record(
            "cuMemcpyDtoHAsync_v2", {"source": MEMORY, "bytes": 64, "place": ARENA, "chunk": 2, "stream": 4}, rounds=2
        ),
        Record("cuStreamSynchronize", {"hStream": 4}, rounds=2),
        Record("cuMemcpy3DAsync_v2", {**BOX, "stream": 4}, rounds=1),
        Record("cuStreamWriteValue32_v2", {"stream": 4, "addr": MEMORY, "value": 1}),
        Record("cuStreamWaitValue64_v2", {"stream": 4, "addr": MEMORY, "value": 1}),
        Record(
            "cuStreamBatchMemOp_v2", {"stream": 4, "count": 1}, struct.pack("<IIQQIIQQ", 1, 0, MEMORY, 1, 0, 0, 0, 0)
        ),
        Record("cuStreamDestroy_v2", {"hStream": 4}),
        Record("cuEventDestroy_v2", {"hEvent": 4}),
        WAIT,
    ],
    "code": [
        launch(),
        launch(is_kernel=True),
        *(launch(attributes=one) for one in ALL_ATTRIBUTES),
        Record(
            "cuOccupancyMaxActiveClusters",
            {"function": FIRST, "grid": [1, 1, 1], "block": [1, 1, 1], "nr_attributes": 1},
            ALL_ATTRIBUTES[4],
        ),
        Record("cuOccupancyMaxPotentialClusterSize", {"function": FIRST, "grid": [1, 1, 1], "block": [1, 1, 1]}),
        Record("cuLibraryGetModule", {"library": FIRST, "pMod": 4}),
        Record("cuKernelGetFunction", {"kernel": FIRST, "pFunc": 5}),
        Record("cuModuleUnload", {"hmod": FIRST}),
        Record("cuLibraryUnload", {"library": FIRST}),
    ],
    "parts": [
        launch(9, rounds=3),
        launch(9, rounds=3),
        SET,
        launch(64, stream=1, rounds=3),
        launch(64, is_kernel=True, rounds=3),
        launch(64, attributes=ALL_ATTRIBUTES[4]),
        launch(64, attributes=ALL_ATTRIBUTES[2]),
        launch(64, attributes=ALL_ATTRIBUTES[8]),
        Record("cuStreamQuery", {"hStream": FIRST}, rounds=3),
        Record("cuStreamSynchronize", {"hStream": FIRST}, rounds=3),
        launch(64, rounds=2),
        Record("cuModuleUnload", {"hmod": FIRST}),
        Record("context_create", {"handle": 4}, context=0),
        *module("cuModuleLoadDataEx", 5),
        WAIT,
    ],
    "parts in turn": [
        Record("context_create", {"handle": 4}, context=0),
        launch(9),
        Record("cuStreamSynchronize", {"hStream": FIRST}, rounds=3),
        launch(64),
        *[Record("cuMemAlloc_v2", {"bytesize": 64}, context=4, rounds=1)] * 3,
        launch(1),
        WAIT,
    ],
    "host functions": [
        Record("cuLaunchHostFunc", {"stream": FIRST, "function": 7}),
        Record("host_mailbox", {"slot": 1}),
        SET,
        Record("cuLaunchHostFunc", {"stream": FIRST, "function": 7}),
        SET,
        Record("cuEventRecord", {"hEvent": FIRST, "hStream": FIRST}),
        Record("cuStreamCreate", {"phStream": 4}),
        Record("cuStreamWaitEvent", {"hStream": 4, "hEvent": FIRST}),
        Record("cuStreamAddCallback", {"stream": 4, "function": 8}, rounds=3),
        Record("cuStreamSynchronize", {"hStream": 4}, rounds=3),
        Record("cuLaunchHostFunc", {"stream": 1, "function": 7}),
        Record("context_destroy", {"handle": FIRST}, rounds=3),
    ],
    "memory": [
        Record("span_open", {"address": 0x2000_0000_0000, "bytes": 1 << 34}),
        Record("cuMemAddressReserve", {"bytes": 1 << 21}),
        Record("cuMemCreate", {"handle": 4, "bytes": 1 << 21, "is_shareable": 1}),
        Record("physical_export", {"handle": 4}),
        Record("physical_import", {"handle": 5}),
        Record("ipc_export", {"address": MEMORY}),
        Record("ipc_open"),
        Record("ipc_close", {"address": MEMORY}),
        Record("cuMemMap", {"address": RESERVED, "bytes": 1 << 21, "handle": 4}),
        Record("cuMemSetAccess", {"address": RESERVED, "bytes": 1 << 21, "access": 3}),
        Record("cuMemRetainAllocationHandle", {"address": RESERVED}),
        Record("cuMemGetAllocationGranularity"),
        Record("cuMemAddressFree", {"address": RESERVED, "bytes": 1 << 21}),
        Record("cuMemRelease", {"handle": 4}),
        Record("cuMemRelease", {"handle": 4}),
        Record("cuMemUnmap", {"address": RESERVED, "bytes": 1 << 21}),
        Record("cuMemAddressFree", {"address": RESERVED, "bytes": 1 << 21}),
        Record("host_register", {"address": PINNED, "bytes": 4096}),
        Record("host_register", {"address": PINNED, "bytes": 8192}),
        Record(
            "cuMemcpyHtoDAsync_v2",
            {"destination": MEMORY, "source": PINNED, "bytes": 64, "place": HEAP, "stream": FIRST},
        ),
        Record("host_unregister", {"address": PINNED}),
        Record("cuMemGetInfo_v2"),
        Record("cuMemFree_v2", {"dptr": MEMORY}),
    ],
    "placed memory": [
        Record("cuMemAddressReserve", {"bytes": 1 << 21}),
        Record("cuMemCreate", {"handle": 4, "bytes": 8192}),
        Record("cuMemMap", {"address": RESERVED, "bytes": 8192, "handle": 4}),
        PLACE,
        PLACE,
        Record("cuMemsetD8Async", {"dstDevice": RESERVED, "N": 64, "hStream": FIRST}),
        Record("host_unplace", {"address": RESERVED, "allocation": 5}, rounds=2),
        Record("host_unplace", {"address": RESERVED, "allocation": 4}, rounds=2),
        PLACE,
        Record("host_unplace", {"address": RESERVED}, rounds=2),
        Record("host_unplace", {"address": RESERVED}, rounds=2),
        Record("cuMemMap", {"address": RESERVED, "bytes": 8192, "handle": 4}),
        PLACE,
        Record("cuMemRelease", {"handle": 4}),
        WAIT,
    ],
    "variables": [
        NO_GRAPH,
        *(named("cuModuleGetGlobal_v2", name, module=FIRST) for name in (b"a", b"a", b"b")),
        ALLOCATE,
        named("cuLibraryGetGlobal", b"a", library=FIRST),
        named("cuModuleGetGlobal_v2", b"", module=FIRST),
        named("cuModuleGetGlobal_v2", b"a", module=9),
        Record("cuMemcpyDtoDAsync_v2", {"dstDevice": MEMORY, "srcDevice": VARIABLE, "ByteCount": 4, "hStream": FIRST}),
        Record("cuLaunchKernel", ONE_BLOCK, struct.pack("<4Q", VARIABLE, VARIABLE + 1, MEMORY, 0)),
        WAIT,
        SAVE,
        *module("cuModuleLoadDataEx", 5),
        named("cuModuleGetGlobal_v2", b"a", module=5),
        Record("cuModuleUnload", {"hmod": FIRST}),
        Record("cuLibraryUnload", {"library": FIRST}),
        named("cuModuleGetGlobal_v2", b"a", module=5),
        Record("context_destroy", {"handle": FIRST}),
    ],
    "pools": [
        Record("cuMemPoolCreate", {"handle": 4, "max_bytes": 1 << 20}),
        *(Record("cuMemPoolSetAttribute", {"pool": 4, "attribute": number, "value": 1}) for number in range(1, 9)),
        *(Record("cuMemPoolGetAttribute", {"pool": 4, "attribute": number}) for number in range(1, 9)),
        Record("cuMemAllocFromPoolAsync", {"pool": 4, "stream": FIRST, "bytes": 4096}),
        Record("pool_allocate_in_order", {"stream": FIRST, "bytes": 4096}, rounds=1),
        Record("cuMemPoolCreate", {"handle": 5, "is_shareable": 1}),
        Record("cuMemAllocFromPoolAsync", {"pool": 5, "stream": FIRST, "bytes": 4096}),
        Record("ipc_export", {"address": MEMORY}),
        Record("ipc_open", {"may_be_own": 1}),
        Record("cuMemFreeAsync", {"address": MEMORY + 0x3000, "stream": FIRST}),
        Record("cuMemPoolTrimTo", {"pool": 4}),
        BEGIN,
        Record("cuMemAllocFromPoolAsync", {"stream": FIRST, "bytes": 4096}),
        Record("cuMemFreeAsync", {"address": MEMORY + 0x3000, "stream": FIRST}),
        END,
        Record("graph_memory"),
        Record("cuMemPoolDestroy", {"pool": 4}),
        WAIT,
    ],
    "arrays": [
        Record("cuArray3DCreate_v2", {"handle": 4, "width": 8, "height": 8, "format": 1, "nr_channels": 1}),
        Record(
            "cuMipmappedArrayCreate",
            {"handle": 4, "width": 8, "height": 8, "format": 1, "nr_channels": 1, "nr_levels": 3},
        ),
        Record("cuMipmappedArrayGetLevel", {"mipmap": 4, "handle": 5, "level": 1}),
        Record("cuMemcpy3DAsync_v2", {**BOX, "to_place": ARRAY, "to_address": 4, "width_bytes": 4, "stream": FIRST}),
        texture(OF_ARRAY, 4),
        texture(OF_MIPMAP, 4, has_view=1),
        texture(LINEAR, MEMORY),
        texture(PITCHED, MEMORY, height=2, pitch_bytes=64),
        texture(PITCHED, MEMORY, height=2, pitch_bytes=1),
        Record("cuSurfObjectCreate", {"array": 4}),
        Record("cuTexObjectDestroy", {"object": TEXTURE}),
        Record("cuSurfObjectDestroy", {"object": TEXTURE + 4}),
        Record("cuArrayDestroy", {"handle": 5}),
        Record("cuArrayDestroy", {"handle": 4}),
        Record("cuMipmappedArrayDestroy", {"handle": 4}),
    ],
    "graphs": [
        Record("graph_create"),
        BEGIN,
        SET,
        Record("capture_info", {"stream": FIRST, "chunk": 1}),
        Record("capture_host_function", {"stream": FIRST, "function": 7}),
        Record("capture_update", {"stream": FIRST, "nr_nodes": 1}, struct.pack("<Q", NODE | 4)),
        Record("capture_update", {"stream": FIRST, "nr_nodes": 1, "has_edges": 1}, struct.pack("<QQ", NODE | 4, 0)),
        END,
        Record("graph_clone", {"graph": GRAPH | 3}),
        *lists(GRAPH | 3, NODE | 4),
        Record("graph_find_clone", {"node": NODE | 4, "graph": GRAPH | 5}),
        Record("cuGraphDestroyNode", {"node": NODE | 4}),
        Record("cuGraphDestroy", {"hGraph": GRAPH | 3}),
        BEGIN,
        Record("capture_invalidate", {"stream": FIRST}),
        Record("cuStreamDestroy_v2", {"hStream": FIRST}),
        Record("cuGraphDestroy", {"hGraph": GRAPH | 1}),
    ],
    "nodes": [
        Record("graph_create"),
        Record("graph_create"),
        Record("graph_condition", {"graph": GRAPH | 2, "context": FIRST}),
        *(add(kind) for kind in NODES),
        *(
            Record("graph_get_node", {"node": NODE | number, "chunk": 1, "type": kind})
            for kind, number in NUMBERS.items()
        ),
        *(change(kind, number) for kind, number in NUMBERS.items()),
        add(0, struct.pack("<QQ", NODE | 4, 0), nr_nodes=1, has_edges=1),
        Record("graph_edit", {"graph": GRAPH | 2, "nr_nodes": 1}, struct.pack("<QQ", NODE | 4, NODE | 5)),
        Record(
            "graph_edit",
            {"graph": GRAPH | 2, "nr_nodes": 1, "has_edges": 1, "is_removal": 1},
            struct.pack("<QQQ", NODE | 4, NODE | 5, 0),
        ),
        Record("graph_instantiate", {"graph": GRAPH | 2, "exec": 4}),
        *(change(kind, number, 4) for kind, number in NUMBERS.items()),
        Record("cuGraphUpload", {"hGraphExec": 4, "hStream": FIRST}),
        Record("cuGraphLaunch", {"hGraphExec": 4, "hStream": FIRST}, rounds=2),
        Record("graph_update", {"graph": GRAPH | 2, "exec": 4}),
        Record("graph_memory"),
        Record("cuDeviceGraphMemTrim"),
        Record("cuGraphExecDestroy", {"hGraphExec": 4}),
        Record("cuGraphDestroy", {"hGraph": GRAPH | 2}),
    ],
    "staging": [
        Record("graph_create"),
        Record("graph_create"),
        add(1, fill=5, drain=6),
        add(1),
        add(5, fill=5),
        *lists(GRAPH | 2, NODE | 4),
        Record("graph_get_node", {"node": NODE | 4, "chunk": 1, "type": 1}),
        change(1, 4, fill=7),
        change(1, 5, fill=7, drain=8),
        Record("graph_edit", {"graph": GRAPH | 2, "nr_nodes": 1}, struct.pack("<QQ", NODE | 4, NODE | 5)),
        Record("graph_instantiate", {"graph": GRAPH | 2, "exec": 4}),
        change(1, 4, 4, fill=9, drain=10),
        change(1, 4, 4),
        Record("cuGraphNodeSetEnabled", {"exec": 4, "node": NODE | 4}),
        Record("cuGraphNodeSetEnabled", {"exec": 4, "node": NODE | 4, "is_enabled": 1}),
        Record("cuGraphLaunch", {"hGraphExec": 4, "hStream": FIRST}, rounds=2),
        BEGIN,
        Record("capture_host_function", {"stream": FIRST, "function": 7, "kind": 1}),
        Record("capture_host_function", {"stream": FIRST, "function": 7, "kind": 3}),
        Record("capture_info", {"stream": FIRST, "chunk": 1}),
        END,
        Record("cuGraphDestroyNode", {"node": NODE | 4}),
        *lists(GRAPH | 2, NODE | 5),
    ],
    "moves": [
        NO_GRAPH,
        Record("cuMemPoolCreate", {"handle": 4, "max_bytes": 1 << 20}),
        Record("cuMemCreate", {"handle": 4, "bytes": 1 << 21}),
        Record("cuCtxSetCacheConfig", {"config": 1}),
        Record("cuArray3DCreate_v2", {"handle": 4, "width": 8, "height": 8, "format": 1, "nr_channels": 1}),
        Record(
            "cuMipmappedArrayCreate",
            {"handle": 4, "width": 8, "height": 8, "format": 1, "nr_channels": 1, "nr_levels": 3},
        ),
        Record("cuMipmappedArrayGetLevel", {"mipmap": 4, "handle": 5, "level": 1}),
        texture(OF_ARRAY, 4),
        texture(OF_MIPMAP, 4),
        Record("cuSurfObjectCreate", {"array": 4}),
        Record("cuLibraryGetModule", {"library": FIRST, "pMod": 4}),
        Record("cuKernelGetFunction", {"kernel": FIRST, "pFunc": 5}),
        Record("cuFuncSetAttribute", {"hfunc": FIRST, "attrib": 8, "value": 100}),
        SAVE,
        launch(),
        WAIT,
        SAVE,
        Record("cuModuleUnload", {"hmod": FIRST}),
    ],
    "saves": [
        NO_GRAPH,
        SET,
        SAVE,
        WAIT,
        Record("cuModuleUnload", {"hmod": FIRST}),
        SAVE,
        Record("cuLibraryUnload", {"library": FIRST}),
        SAVE,
    ],
    "links": [
        Record("cuLinkCreate_v2", {"link": 4}),
        Record("blob_begin", {"blob": 9, "bytes": 12}),
        Record("blob_append", {"blob": 9, "bytes": 12, "chunk": NO_CHUNK}, b".version 8.0"),
        Record("cuLinkAddData_v2", {"link": 4, "blob": 9, "type": 1, "name_bytes": 1, "chunk": NO_CHUNK}, b"a"),
        Record("blob_begin", {"blob": 9, "bytes": 12}),
        Record("blob_append", {"blob": 9, "bytes": 12, "chunk": NO_CHUNK}, b".version 8.0"),
        Record("cuLinkAddData_v2", {"link": 4, "blob": 9, "type": 6, "chunk": NO_CHUNK}),
        Record("cuLinkComplete", {"link": 4, "chunk": NO_CHUNK}),
        Record("link_read", {"link": 4, "bytes": 8, "chunk": 0}),
        Record("cuLinkDestroy", {"state": 4}),
        Record("output_fetch", {"chunk": 0, "capacity": 64, "stream": 1}),
        Record("window_map", {"needed_bytes": 1 << 21}),
    ],
    "words": [
        Record("yield_attach", {"word": MEMORY}),
        SET,
        Record("yield_attach", {"word": MEMORY + 4}, rounds=3),
        SET,
        Record("yield_detach", {"address": MEMORY, "bytes": 4}),
        Record("yield_detach", {"bytes": 2**64 - 1}),
        Record("yield_attach", {"word": MEMORY}),
        SET,
        Record("cuMemFree_v2", {"dptr": MEMORY}),
        SET,
        WAIT,
    ],
    "contexts": [
        SET,
        Record("context_create", {"handle": 4}, context=0),
        Record("cuStreamCreate", {"phStream": 4}, context=4),
        Record("context_destroy", {"handle": 4}),
        SAVE,
        Record("context_destroy", {"handle": FIRST}),
        Record("context_create", {"handle": FIRST, "is_primary": 1}, context=0),
    ],
}
