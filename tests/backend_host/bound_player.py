"""A process that plays a worker's handlers for test_bound.py: what of what a program has binds it. As object_player.py."""

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend_host.device.readings import Bound
from backend_host.worker.binds import UNKNOWN, binds
from tests.backend_host.object_player import (
    ARRAY,
    CODE,
    COPY,
    KEPT_BYTES,
    MAPPED,
    MAPPED_AT,
    MAPPED_BYTES,
    PRIMARY,
    SECOND,
    SHAPE,
    SURFACE_LDST,
    ServeError,
    Table,
    main,
    make_context,
    texture,
)
from tests.backend_host.worker_guest import kernel_image

PLAIN = CODE.replace(".visible .global .align 8 .b8 table[48];", "")
FREES = PLAIN.replace(".visible .entry none", ".extern .func free(.param .b64 p);\n.visible .entry none")
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64)
OTHER_THAN_ANY = 7
"""A device."""
OTHER_AT = 0x3000_0000_0000


class Program:
    """One whose images are kept. `tickets` are of images that somebody looks into; `is_slow`: of all that come."""

    def __init__(self, table: Table, kept_bytes: int = KEPT_BYTES) -> None:
        self.table = table
        self.tickets: list[tuple[int, Bound]] = []
        self.is_slow = False
        table.c.fgw_image_binds.argtypes = [ctypes.c_uint64, ctypes.c_uint32]
        table.begin(kept_bytes)
        table.c.want_span()
        self._function = FUNCTION(self._look)
        table.c.set_binds(self._function)
        make_context(table, PRIMARY, is_primary=True)

    def _look(self, image: int, image_bytes: int, capability: int, ticket: int) -> int:
        bits = Bound(binds(ctypes.string_at(image, image_bytes), capability))
        if not self.is_slow:
            return bits
        self.tickets.append((ticket, bits))
        return UNKNOWN

    def bound(self) -> str:
        bits = Bound(self.table.c.bound())
        return "|".join(str(bit.name) for bit in Bound if bit in bits)

    def find(self, number: int) -> None:
        """Somebody has found out what is in the image that came so many after the first."""
        self.table.c.fgw_image_binds(*self.tickets[number])

    def module(self, text: str) -> int:
        return self.table.load("cuModuleLoadDataEx", kernel_image(text))

    def library(self, text: str) -> int:
        return self.table.load("cuLibraryLoadData", kernel_image(text))

    def unload(self, module: int) -> None:
        self.table.serve("cuModuleUnload", hmod=module)


def with_link(table: Table) -> Callable[[], Any]:
    link = table.make("cuLinkCreate_v2", "link")
    return lambda: table.serve("cuLinkDestroy", state=link)


def with_graph(table: Table) -> Callable[[], Any]:
    graph = table.made("graph_create")
    table.serve("graph_add_node", struct.pack("<I12x", 5) + bytes(240), graph=graph)
    return lambda: table.serve("cuGraphDestroy", hGraph=graph)


def with_exec(table: Table) -> Callable[[], Any]:
    graph = table.made("graph_create")
    made = table.make("graph_instantiate", "exec", graph=graph)
    table.serve("cuGraphDestroy", hGraph=graph)
    return lambda: table.serve("cuGraphExecDestroy", hGraphExec=made)


def with_capture(table: Table) -> Callable[[], Any]:
    stream = table.make("cuStreamCreate", "phStream")
    table.serve("capture_begin", stream=stream)
    return lambda: table.serve("cuStreamDestroy_v2", hStream=stream)


def with_array(table: Table) -> Callable[[], Any]:
    array = table.make("cuArray3DCreate_v2", "handle", **SHAPE)
    return lambda: table.serve("cuArrayDestroy", handle=array)


def with_mipmapped(table: Table) -> Callable[[], Any]:
    array = table.make("cuMipmappedArrayCreate", "handle", **SHAPE, nr_levels=3)
    table.make("cuMipmappedArrayGetLevel", "handle", mipmap=array, level=2)
    return lambda: table.serve("cuMipmappedArrayDestroy", handle=array)


def with_texture(table: Table) -> Callable[[], Any]:
    """Of an array that is gone."""
    array = table.make("cuArray3DCreate_v2", "handle", **SHAPE)
    made = texture(table, ARRAY, array)
    table.serve("cuArrayDestroy", handle=array)
    return lambda: table.serve("cuTexObjectDestroy", object=made)


def with_surface(table: Table) -> Callable[[], Any]:
    array = table.make("cuArray3DCreate_v2", "handle", **SHAPE, flags=SURFACE_LDST)
    made = table.made("cuSurfObjectCreate", array=array)
    table.serve("cuArrayDestroy", handle=array)
    return lambda: table.serve("cuSurfObjectDestroy", object=made)


def with_allocation(table: Table) -> Callable[[], Any]:
    made = table.make("cuMemCreate", "handle", bytes=MAPPED_BYTES)
    return lambda: table.serve("cuMemRelease", handle=made)


def with_addresses(table: Table) -> Callable[[], Any]:
    table.made("cuMemAddressReserve", bytes=MAPPED_BYTES, address=OTHER_AT)
    return lambda: table.serve("cuMemAddressFree", address=OTHER_AT, bytes=MAPPED_BYTES)


def with_mapping(table: Table) -> Callable[[], Any]:
    """Which alone holds its memory."""
    table.serve("cuMemCreate", handle=MAPPED, bytes=MAPPED_BYTES)
    table.made("cuMemAddressReserve", bytes=MAPPED_BYTES, address=MAPPED_AT)
    table.serve("cuMemMap", address=MAPPED_AT, bytes=MAPPED_BYTES, handle=MAPPED)
    table.serve("cuMemRelease", handle=MAPPED)

    def end() -> None:
        table.serve("cuMemUnmap", address=MAPPED_AT, bytes=MAPPED_BYTES)
        table.serve("cuMemAddressFree", address=MAPPED_AT, bytes=MAPPED_BYTES)

    return end


def with_exports(table: Table) -> Callable[[], Any]:
    table.c.share(1, 0)
    return lambda: table.c.share(0, 0)


def with_imports(table: Table) -> Callable[[], Any]:
    table.c.share(0, 1)
    return lambda: table.c.share(0, 0)


OBJECTS: dict[str, Callable[[Table], Callable[[], Any]]] = {
    "a link": with_link,
    "a graph": with_graph,
    "an instantiated graph": with_exec,
    "a capture": with_capture,
    "an array": with_array,
    "a mipmapped array": with_mipmapped,
    "a texture": with_texture,
    "a surface": with_surface,
    "an allocation": with_allocation,
    "addresses": with_addresses,
    "a mapping": with_mapping,
    "exports": with_exports,
    "imports": with_imports,
}


def play_objects(table: Table, folder: Path) -> Any:
    """What each binds, and what does when it is gone."""
    program = Program(table)
    bound: dict[str, Any] = {"nothing": program.bound()}
    for name, make in OBJECTS.items():
        end = make(table)
        there = program.bound()
        end()
        bound[name] = [there, program.bound()]
    table.end()
    return bound


def play_images(table: Table, folder: Path) -> Any:
    """Of images as they come and go, in one after another."""
    program = Program(table)
    seen = []
    plain, first, second = program.module(PLAIN), program.module(CODE), program.module(CODE)
    seen.append(program.bound())
    program.unload(first)
    seen.append(program.bound())
    library = program.library(FREES)
    table.make("cuLibraryGetModule", "pMod", library=library)
    seen.append(program.bound())
    program.unload(second)
    seen.append(program.bound())
    table.serve("cuLibraryUnload", library=library)
    seen.append(program.bound())
    unkept = program.module(PLAIN + " " * KEPT_BYTES)
    seen.append(program.bound())
    program.unload(unkept)
    seen.append(program.bound())
    make_context(table, SECOND, is_primary=False)
    program.module(CODE)
    program.module(PLAIN + " " * KEPT_BYTES)
    seen.append(program.bound())
    table.serve("context_destroy", handle=SECOND)
    seen.append(program.bound())
    table.context = PRIMARY
    program.unload(plain)
    table.end()
    return seen


def play_slow(table: Table, folder: Path) -> Any:
    """Of images that somebody looks into: found, gone before, gone before it was heard of, and never found."""
    program = Program(table)
    program.is_slow = True
    seen = []
    modules = [program.module(text) for text in (CODE, FREES, CODE, PLAIN, CODE)]
    seen.append(program.bound())
    program.find(0)
    seen.append(program.bound())
    program.unload(modules[1])
    program.find(1)
    program.find(2)
    program.unload(modules[2])
    seen.append(program.bound())
    program.unload(modules[0])
    program.unload(modules[4])
    seen.append(program.bound())
    program.find(3)
    seen.append(program.bound())
    table.end()
    program.find(4)
    return seen


def play_told(table: Table, folder: Path) -> Any:
    """A constant whose address the program asks for, fills by, goes beyond, and gives to a kernel, in halves first."""
    program = Program(table)
    seen = []
    module = program.module(
        PLAIN.replace(".visible .entry none", ".visible .const .align 8 .b8 told[64];\n.visible .entry none")
    )
    function = table.named("cuModuleGetFunction", "module", module, b"add")
    seen.append(program.bound())
    address = table.made("cuModuleGetGlobal_v2", b"told", module=module, name_bytes=4)
    table.serve("cuMemsetD8_v2", dstDevice=address, uc=1, N=64)
    for begin, nr_bytes in ((address + 32, 1 << 30), (address - (1 << 30), (1 << 30) + 8)):
        try:
            table.serve("cuMemsetD8_v2", dstDevice=begin, uc=1, N=nr_bytes)
        except ServeError as error:
            seen.append(error.args[1])
    seen.append(program.bound())
    launch = {"function": function, "grid": [1, 1, 1], "block": [1, 1, 1], "nr_parameter_bytes": 12}
    table.serve("cuLaunchKernel", struct.pack("<QI", address + 8, 3), **launch)
    seen.append(program.bound())
    program.unload(module)
    seen.append(program.bound())
    table.end()
    return seen


def play_shown(table: Table, folder: Path) -> Any:
    """What the daemon is shown, where images are kept and where not."""
    shown = []
    for kept_bytes in (KEPT_BYTES, 0):
        program = Program(table, kept_bytes)
        program.module(CODE)
        shown.append(table.c.shown())
        table.c.replay(COPY, OTHER_THAN_ANY)
        shown.append(table.c.shown())
        table.c.replay_end(0)
        table.end()
    return shown


def play_memory(table: Table, folder: Path) -> Any:
    """Of a program that allocates without a span."""
    program = Program(table)
    seen = [program.bound()]
    address = table.made("cuMemAlloc_v2", bytesize=4096)
    seen.append(program.bound())
    table.serve("cuMemFree_v2", dptr=address)
    seen.append(program.bound())
    table.end()
    return seen


COMMANDS = {
    "memory": play_memory,
    "objects": play_objects,
    "images": play_images,
    "slow": play_slow,
    "told": play_told,
    "shown": play_shown,
}

if __name__ == "__main__":
    main(COMMANDS)
