"""A process that plays a worker's handlers for test_objects.py: it makes objects, saves them, makes them again. Not the tests' own process,
since a worker takes standard output for what kernels print, and texture objects have values that count up in a process.

Arguments: the library of object_table.c, a command of COMMANDS, a folder for what it leaves: COMMAND.json, and `saved`.
"""

import ctypes
import json
import os
import random
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.backend_host.worker_guest import CALLS, NO_CHUNK, kernel_image, request_bytes
from tests.backend_host.worker_harness import SOFTGPU

CODE = """
.version 7.0
.target sm_80
.address_size 64
.visible .global .align 8 .b8 table[48];
.visible .entry add(.param .u64 out, .param .u32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [value];
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry none()
{
    ret;
}
"""
KEPT_BYTES = 1 << 20
COPY, CHANGE = 3, 4
"""Of enum fgw_motion."""
CANARY_BYTES = 54321
NR_LIES = 150
WORDS = (0, 1, 8, 64, 1 << 31, 1 << 32, 1 << 63, (1 << 64) - 1, (1 << 64) - 8)
"""What lies are made of."""
PRIMARY, SECOND = 0x41_00000001_000000, 0x41_00000001_000001
MAPPED, MAPPED_AT, MAPPED_BYTES = 0x4C_00000001_000001, 0x2000_0000_0000, 2 << 20
FLOAT, BYTE, SURFACE_LDST = 0x20, 0x01, 2
ARRAY, MIPMAPPED, LINEAR = 0, 1, 2
POOL_THRESHOLD, MAX_DYNAMIC_SHARED, STACK_LIMIT, SYNC_POLICY, EVENT_WITHOUT_TIMES = 4, 8, 0, 3, 2
SHAPE: dict[str, Any] = {"width": 64, "height": 32, "format": BYTE, "nr_channels": 4}


class ServeError(Exception):
    """A handler said no: the call and the CUresult."""


class Table:
    """The library, and requests to it. Numbers of handles count up, as a guest's do."""

    def __init__(self, path: str) -> None:
        self.c = ctypes.CDLL(path)
        self.c.begin.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
        self.c.save.restype = ctypes.POINTER(ctypes.c_uint8)
        self.c.serve.argtypes = [
            ctypes.c_uint64,
            ctypes.c_uint16,
            *[ctypes.c_char_p] * 2,
            ctypes.c_uint32,
            ctypes.c_char_p,
        ]
        self.c.restore.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
        self.c.will_map.argtypes = [ctypes.c_uint64] * 3
        self.c.say_all.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
        for name in ("begin", "restore", "kind_is_whole"):
            getattr(self.c, name).restype = ctypes.c_bool
        for name in ("tell_trouble", "kind_name", "kind_cannot"):
            getattr(self.c, name).restype = ctypes.c_char_p
        for name in ("quota_used", "kept_bytes", "end"):
            getattr(self.c, name).restype = ctypes.c_uint64

    def begin(self, kept_bytes: int = KEPT_BYTES) -> None:
        assert self.c.begin(str(SOFTGPU).encode(), kept_bytes)
        self.c.will_map(MAPPED, MAPPED_AT, MAPPED_BYTES)
        self.last, self.context = 1 << 48, 0

    def end(self) -> None:
        """Nothing is left then, of images or of the quota."""
        assert self.c.end() == 0
        assert self.c.quota_used() == 0

    def fresh(self) -> int:
        self.last += 1
        return self.last

    def serve(self, call: str, payload: bytes = b"", **fields: Any) -> bytes:
        """The reply's bytes."""
        reply = ctypes.create_string_buffer(512)
        fixed = request_bytes(call, fields)
        result = self.c.serve(self.context, CALLS[call], fixed, payload, len(payload), reply)
        if result != 0:
            raise ServeError(call, result)
        return reply.raw

    def make(self, call: str, key: str, payload: bytes = b"", **fields: Any) -> int:
        """The number of what the call made, which goes into its member `key`."""
        number = self.fresh()
        self.serve(call, payload, **{key: number, **fields})
        return number

    def made(self, call: str, payload: bytes = b"", **fields: Any) -> int:
        """The number, or value, that the worker gave, which the reply begins with."""
        return int.from_bytes(self.serve(call, payload, **fields)[:8], "little")

    def send_image(self, image: bytes) -> int:
        self.serve("blob_begin", blob=1, bytes=len(image))
        self.serve("blob_append", image, blob=1, bytes=len(image), chunk=NO_CHUNK)
        return 1

    def load(self, call: str, image: bytes, options: bytes = b"") -> int:
        blob = self.send_image(image)
        return self.make(call, "handle", options, blob=blob, nr_options=len(options) // 16, chunk=NO_CHUNK)

    def named(self, call: str, owner: str, number: int, name: bytes) -> int:
        return self.make(call, "handle", name, **{owner: number}, name_bytes=len(name), chunk=NO_CHUNK)

    def save(self) -> bytes | None:
        nr = ctypes.c_uint64()
        found = self.c.save(ctypes.byref(nr))
        return bytes(found[: nr.value]) if found else None

    def trouble(self) -> tuple[str, str]:
        """Of what kind, and why."""
        kind, number, result = ctypes.c_uint32(), ctypes.c_uint64(), ctypes.c_int()
        why = self.c.tell_trouble(ctypes.byref(kind), ctypes.byref(number), ctypes.byref(result))
        name = self.c.kind_name(kind)
        return (name or b"").decode(), (why or b"").decode()

    def told(self) -> list[str]:
        text = ctypes.create_string_buffer(1 << 20)
        self.c.say_all(text, len(text))
        return text.value.decode().splitlines()


def texture(table: Table, kind: int, address: int, **fields: Any) -> int:
    said: dict[str, Any] = {"type": kind, "address": address, "address_mode": [1, 2, 1], "border_color": [0, 0.5, 0, 0]}
    return table.made("cuTexObjectCreate", **said, max_mipmap_level_clamp=3.0, **fields)


def make_context(table: Table, number: int, *, is_primary: bool) -> None:
    table.serve("context_create", handle=number, is_primary=int(is_primary), flags=8)
    table.context = number
    table.serve("cuCtxSetLimit", limit=STACK_LIMIT, value=8192 if is_primary else 4096)
    table.serve("cuCtxSetCacheConfig", config=2)


def make_code(table: Table) -> None:
    """In the context, and of the client."""
    image, option = kernel_image(CODE), struct.pack("<QQ", 7, 3)  # optimization level
    module = table.load("cuModuleLoadDataEx", image, option)
    function = table.named("cuModuleGetFunction", "module", module, b"add")
    table.serve("cuFuncSetAttribute", hfunc=function, attrib=MAX_DYNAMIC_SHARED, value=2048)
    table.named("cuModuleGetFunction", "module", module, b"none")
    library = table.load("cuLibraryLoadData", image)
    kernel = table.named("cuLibraryGetKernel", "library", library, b"add")
    table.serve("cuKernelSetAttribute", kernel=kernel, attrib=MAX_DYNAMIC_SHARED, val=1024, dev=0)
    table.named("cuModuleGetFunction", "module", table.make("cuLibraryGetModule", "pMod", library=library), b"none")
    table.make("cuKernelGetFunction", "pFunc", kernel=kernel)


def make_arrays(table: Table) -> tuple[int, int, int]:
    """An array, a mipmapped one, and a level of that."""
    array = table.make("cuArray3DCreate_v2", "handle", **SHAPE, flags=SURFACE_LDST)
    mipmap = table.make("cuMipmappedArrayCreate", "handle", **SHAPE, nr_levels=3)
    return array, mipmap, table.make("cuMipmappedArrayGetLevel", "handle", mipmap=mipmap, level=2)


def make_textures(table: Table, array: int, mipmap: int, level: int) -> None:
    """The first one goes, and the others keep their values."""
    first = texture(table, ARRAY, array)
    texture(table, ARRAY, level)
    texture(table, MIPMAPPED, mipmap, mipmap_filter_mode=1)
    texture(table, LINEAR, MAPPED_AT, width=4096, format=FLOAT, nr_channels=1)
    table.made("cuSurfObjectCreate", array=array)
    table.serve("cuTexObjectDestroy", object=first)


def make_memory(table: Table) -> None:
    """An allocation that is mapped, and one that is not."""
    table.serve("cuMemCreate", handle=MAPPED, bytes=MAPPED_BYTES)
    reserved = table.made("cuMemAddressReserve", bytes=MAPPED_BYTES, address=MAPPED_AT)
    assert reserved == MAPPED_AT
    table.serve("cuMemMap", address=MAPPED_AT, bytes=MAPPED_BYTES, handle=MAPPED)
    table.serve("cuMemSetAccess", address=MAPPED_AT, bytes=MAPPED_BYTES, access=3)
    table.make("cuMemCreate", "handle", bytes=2 << 20)
    pool = table.make("cuMemPoolCreate", "handle", max_bytes=64 << 20, is_shareable=1)
    table.serve("cuMemPoolSetAttribute", pool=pool, attribute=POOL_THRESHOLD, value=12345)


def make_one_of_every_kind(table: Table, *, has_textures: bool = True) -> None:
    make_context(table, PRIMARY, is_primary=True)
    make_code(table)
    arrays = make_arrays(table)
    make_memory(table)
    if has_textures:
        make_textures(table, *arrays)
    make_context(table, SECOND, is_primary=False)
    for priority in (0, -1):
        stream = table.make("cuStreamCreateWithPriority", "phStream", flags=1, priority=priority)
        table.serve("cuStreamSetAttribute", hStream=stream, attr=SYNC_POLICY, value=[2 + priority, *[0] * 7])
    for flags in (0, EVENT_WITHOUT_TIMES):
        table.make("cuEventCreate", "phEvent", Flags=flags)


def play_save(table: Table, folder: Path) -> Any:
    """Saved twice: saving changes nothing."""
    table.begin()
    make_one_of_every_kind(table)
    saved = table.save()
    assert saved is not None, table.trouble()
    assert saved == table.save()
    (folder / "saved").write_bytes(saved)
    used = {"quota": table.c.quota_used(), "kept": table.c.kept_bytes()}
    told = table.told()
    table.end()
    return {"told": told, "used": used}


def play_restore(table: Table, folder: Path) -> Any:
    """What is made again is saved again."""
    saved = (folder / "saved").read_bytes()
    table.begin()
    assert table.c.restore(saved, len(saved)), table.trouble()
    again = table.save()
    used = {"quota": table.c.quota_used(), "kept": table.c.kept_bytes()}
    told = table.told()
    table.end()
    return {"told": told, "used": used, "is_saved_alike": again == saved}


def play_again(table: Table, folder: Path) -> Any:
    """In new contexts of the same process, without textures: softgpu gives none the value of one that is gone."""
    table.begin()
    make_one_of_every_kind(table, has_textures=False)
    saved, told = table.save(), table.told()
    assert saved is not None, table.trouble()
    table.end()
    table.begin()
    assert table.c.restore(saved, len(saved)), table.trouble()
    again = table.told()
    table.end()
    return {"told": told, "again": again}


def make_kind_that_cannot(table: Table, name: str) -> None:
    if name == "link":
        table.make("cuLinkCreate_v2", "link")
        return
    graph = table.made("graph_create")
    empty = struct.pack("<I12x", 5) + bytes(240)
    if name in ("graph node", "graph exec"):
        table.serve("graph_add_node", empty, graph=graph)
    if name == "graph exec":
        table.make("graph_instantiate", "exec", graph=graph)
        table.serve("cuGraphDestroy", hGraph=graph)


def play_kinds(table: Table, folder: Path) -> Any:
    """All rows; what saving says of a client that has a handle of one that cannot."""
    rows, said = [], {}
    for kind in range(1, table.c.nr_kinds()):
        cannot = table.c.kind_cannot(kind)
        assert table.c.kind_is_whole(kind)
        name = table.c.kind_name(kind).decode()
        rows.append([name, cannot.decode() if cannot else None])
        if cannot and name != "graph condition":  # softgpu makes none
            table.begin()
            make_context(table, PRIMARY, is_primary=True)
            make_kind_that_cannot(table, name)
            assert table.save() is None
            said[name] = table.trouble()
            table.end()
    return {"rows": rows, "said": said}


def capture(table: Table) -> None:
    table.serve("capture_begin", stream=table.make("cuStreamCreate", "phStream"))


def pooled(table: Table) -> None:
    pool = table.make("cuMemPoolCreate", "handle")
    table.serve("cuMemAllocFromPoolAsync", pool=pool, bytes=4096)


def orphan(table: Table) -> None:
    array = table.make("cuArray3DCreate_v2", "handle", **SHAPE)
    texture(table, ARRAY, array)
    table.serve("cuArrayDestroy", handle=array)


def unkept(table: Table) -> None:
    table.load("cuModuleLoadDataEx", kernel_image(CODE + " " * KEPT_BYTES))


OBJECTS_THAT_CANNOT: dict[str, Callable[[Table], None]] = {
    "a captured stream": capture,
    "a pool with memory": pooled,
    "a texture of an array that is gone": orphan,
    "a module whose image was not kept": unkept,
}


def play_refusals(table: Table, folder: Path) -> Any:
    """What saving says of single objects of kinds that can."""
    said = {}
    for name, make in OBJECTS_THAT_CANNOT.items():
        table.begin()
        make_context(table, PRIMARY, is_primary=True)
        make(table)
        assert table.save() is None, name
        said[name] = table.trouble()
        table.end()
    return said


def lies(saved: bytes, choice: random.Random) -> Iterator[bytes]:
    """Saved bytes that nobody wrote: shorter, longer, with other words in them."""
    yield from (saved[:nr] for nr in range(0, len(saved), 8))
    yield from (saved + bytes(8), saved[:-1], saved * 2)
    for _ in range(NR_LIES):
        lie = bytearray(saved)
        for _ in range(choice.choice((1, 1, 1, 4))):
            at = choice.randrange(len(lie) // 8) * 8
            lie[at : at + 8] = choice.choice((*WORDS, choice.getrandbits(64))).to_bytes(8, "little")
        yield bytes(lie)


def play_lies(table: Table, folder: Path) -> Any:
    """Whatever comes, the worker lives, and what is not what was saved is refused or is saved again as it came. Once with textures, whose
    values softgpu never gives again, and once without, so that what is behind them has its turn."""
    choice = random.Random(1)
    told: Counter[str] = Counter()
    for has_textures in (True, False):
        table.begin()
        make_one_of_every_kind(table, has_textures=has_textures)
        saved = table.save()
        assert saved is not None
        table.end()
        for lie in lies(saved, choice):
            table.begin()
            if table.c.restore(lie, len(lie)):
                assert table.save() == lie
                told["made"] += 1
            else:
                told[table.trouble()[1]] += 1
            table.end()
    return told


def make_streams(table: Table) -> list[int]:
    table.make("cuStreamCreateWithPriority", "phStream", flags=1, priority=-1)
    return [table.make("cuEventCreate", "phEvent", Flags=flags) for flags in (0, EVENT_WITHOUT_TIMES)]


def play_replay(table: Table, folder: Path) -> Any:
    """To another device of the same process, with objects that come and go after all were made there; then back, and undone."""
    table.begin()
    make_context(table, PRIMARY, is_primary=True)
    make_code(table)
    make_arrays(table)
    events = make_streams(table)
    used = table.c.quota_used()
    bound = [table.c.replay(COPY, 1)]
    table.serve("cuEventDestroy_v2", hEvent=events[0])
    make_streams(table)
    make_context(table, SECOND, is_primary=False)
    make_streams(table)
    table.load("cuModuleLoadDataEx", kernel_image(CODE + "// another image"))
    told, used_then = table.told(), table.c.quota_used()
    bound.append(table.c.replay(CHANGE, 1))
    there = table.told()
    devices = [table.c.replay_end(1)]
    settled = table.told()
    bound += [table.c.replay(COPY, 0), table.c.replay(CHANGE, 0)]
    devices.append(table.c.replay_end(0))
    undone = table.told()
    bound.append(table.c.replay(COPY, 0))
    devices.append(table.c.replay_end(0))
    after = table.c.quota_used()
    table.end()
    return {
        "bound": bound,
        "devices": devices,
        "told": [told, there, settled, undone],
        "used": [used, used_then, after],
    }


def play_bound(table: Table, folder: Path) -> Any:
    """What the worker says of a device that is not there, of its own, and of a texture, which softgpu gives another value; then it stays."""
    table.begin()
    make_context(table, PRIMARY, is_primary=True)
    stream = table.make("cuStreamCreate", "phStream")
    bound = []
    for device in (7, 0):
        bound.append(table.c.replay(COPY, device))
        table.c.replay_end(0)
    texture(table, ARRAY, make_arrays(table)[0])
    told = table.told()
    bound.append(table.c.replay(COPY, 1))
    device = table.c.replay_end(0)
    told_then = table.told()
    table.serve("cuStreamDestroy_v2", hStream=stream)
    table.end()
    return {"bound": bound, "device": device, "is_as_before": told == told_then}


COMMANDS = {
    "replay": play_replay,
    "bound": play_bound,
    "save": play_save,
    "restore": play_restore,
    "again": play_again,
    "kinds": play_kinds,
    "refusals": play_refusals,
    "lies": play_lies,
}


def main(commands: Mapping[str, Callable[[Table, Path], Any]]) -> None:
    """Of a player: does what its arguments say."""
    _, library, command, folder = sys.argv
    answer = commands[command](Table(library), Path(folder))
    (Path(folder) / f"{command}.json").write_text(json.dumps(answer))
    ctypes.CDLL(None).malloc(CANARY_BYTES)  # lost on purpose: shows that leaks are found
    ctypes.CDLL(None).__lsan_do_recoverable_leak_check()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(COMMANDS)
