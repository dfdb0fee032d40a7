"""What of the host's Python reads a guest's bytes, or a stranger's: each is a target of `make fuzz`."""

from __future__ import annotations

import json
import os
import socket
import struct
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import cuda_api.fatbin
import cuda_api.ptx.expressions
import cuda_api.ptx.instructions
import cuda_api.ptx.lexer
import cuda_api.ptx.parser
import cuda_api.ptx.reader
import ivshmem.region
import ivshmem.server
from backend_host import entitlement, ipc
from backend_host.errors import RefusedError
from backend_host.worker import images, kept_images, variants
from cuda_api.fatbin import FatbinError
from cuda_api.ptx.variants import RunsWholeError
from ivshmem.bells import ASK, END
from ivshmem.region import NR_CLIENTS, REGION_MIN_BYTES, ClientState, Region, RegionError, Wake
from tests.fuzz.by_lines import Target

SAMPLES = Path(__file__).parents[1] / "cuda_api" / "ptx_samples"
CAPABILITY = 90
KERNEL = b"""
.version 8.0
.target sm_75
.address_size 64
.const .align 4 .f32 c[4];
.visible .entry k(.param .u64 p, .param .u32 n)
{
    .reg .pred %q;
    .reg .b32 %r<4>;
    .reg .b64 %d<3>;
    ld.param.u64 %d1, [p];
    mov.u32 %r1, %ctaid.x;
    mad.lo.s32 %r2, %r1, 4, 1;
    setp.ge.u32 %q, %r2, %nctaid.x;
@%q bra done;
    st.global.u32 [%d1], %r2;
done:
    ret;
}
"""


def _files(*modules: ModuleType) -> frozenset[str]:
    return frozenset(str(module.__file__) for module in modules)


def container(text: bytes) -> bytes:
    """A fat binary with this PTX."""
    entry = struct.pack("<HHIQIIIIIIQQQ", 1, 0x101, 64, len(text), 0, 0, 75, 0, 0, 0, 0, 0, 0)
    entry = entry.ljust(64, b"\0") + text
    return struct.pack("<IHHQ", cuda_api.fatbin.HEADER_MAGIC, 1, 16, len(entry)) + entry


def fat_binary(data: bytes) -> None:
    images.may_print(data, CAPABILITY)
    for read in (lambda: cuda_api.fatbin.without_machine_code(data), lambda: variants.text_of(data, CAPABILITY)):
        with suppress(FatbinError, RunsWholeError):
            read()


def ptx(data: bytes) -> None:
    """As a program that launches a large grid of `k`."""
    kept, reader = kept_images.Images(), variants.Reader()
    kept.keep((1, 1), data)
    for is_persistent in (False, True):
        with suppress(RunsWholeError):
            source = reader.read(kept.of((1, 1)), "k", CAPABILITY)
            addresses = {name: len(name) for name in source.used.globals}
            variants.make(source, is_persistent=is_persistent, addresses=addresses)
    kept.forget((1, 1))


def _entitlement_of(session: ipc.Session, request: ipc.Message) -> ipc.Message:
    """What the daemon reads of a request for a vGPU."""
    try:
        changes = entitlement.read_changes(request, as_options=True, is_new=True)
        return {"is": repr(asdict(entitlement.Entitlement().changed(changes)))}
    except entitlement.EntitlementError as error:
        raise RefusedError(str(error)) from error


def _control_socket(folder: Path) -> Callable[[bytes], None]:
    server = ipc.Server(folder / "control", _entitlement_of)
    server.start()

    def run(data: bytes) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            client.connect(str(folder / "control"))
            try:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                answers = b"".join(iter(lambda: client.recv(65536), b""))
            except (BrokenPipeError, ConnectionResetError):
                return  # a line that is too long: it hung up
        for line in answers.splitlines():
            if "could not do it" in str(json.loads(line).get("error", "")):
                raise AssertionError(line)

    return run


def ivshmem_server(data: bytes) -> None:
    """A byte for each step of a QEMU or of a daemon; all have gone at the end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        listeners = []
        for name, kind in (("guest", socket.SOCK_STREAM), ("control", socket.SOCK_SEQPACKET)):
            listeners.append(socket.socket(socket.AF_UNIX, kind))
            listeners[-1].bind(str(folder / name))
            listeners[-1].listen(8)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server = ivshmem.server.Server(os.memfd_create("memory"), *listeners)
        stack.callback(server.close)
        others = [ours]
        for step in data[:32]:
            if step == 0 and len(others) < 6:
                others.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                others[-1].connect(str(folder / "control"))
            elif step == 1 and not any(one.type == socket.SOCK_STREAM for one in others):
                others.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                others[-1].connect(str(folder / "guest"))
            else:
                with suppress(OSError):  # it hung up
                    others[step % len(others)].send((ASK, END, bytes([step]), data)[step % 4])
        for one in others:
            one.close()
        server.run(theirs)


def _region(stack: ExitStack) -> Callable[[bytes], None]:
    region = stack.enter_context(
        Region.create(f"fairgv-fuzz-{os.getpid()}", REGION_MIN_BYTES, table_hash=1, wake=Wake.POLL)
    )
    stack.callback(region.unlink)

    def run(data: bytes) -> None:
        """The guest writes its part, and the caretaker looks at it, takes steps, and takes back what clients held."""
        region.format(table_hash=1)
        where, guests = int.from_bytes(data[:2].ljust(2, b"\0"), "little") * 8, data[2:]
        os.pwrite(region.fileno(), guests, where)
        with suppress(RegionError):
            region.clients()
        for index in range(NR_CLIENTS):
            with suppress(RegionError):
                seen = region.client(index).state
                region.step(index, seen, ClientState.READY)
                region.fail(index, 1)
                region.declare_dead(index)
                region.refuse(index, 1)
                region.free(index, seen)
                region.reclaim(index)
        with suppress(RegionError):
            region.statistics()
        region.check(table_hash=1)

    return run


def targets(stack: ExitStack) -> list[Target]:
    """All of them; what they hold ends with `stack`."""
    samples = [KERNEL, *(path.read_bytes() for path in sorted(SAMPLES.glob("*.ptx")) if path.stat().st_size < 8000)]
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    requests = [
        {"op": "open", "name": "a", "weight": 2, "memory": "4G"},
        {"op": "set", "weight": 1e308, "memory": -1, "gpu": "0"},
        {"op": "status"},
    ]
    parsers = _files(
        variants,
        cuda_api.ptx.lexer,
        cuda_api.ptx.parser,
        cuda_api.ptx.reader,
        cuda_api.ptx.expressions,
        cuda_api.ptx.instructions,
    )
    return [
        Target("fat binary", fat_binary, [container(KERNEL), KERNEL, b"\x7fELF"], _files(cuda_api.fatbin, images)),
        Target("PTX", ptx, [*samples, container(KERNEL)], parsers),
        Target(
            "control socket",
            _control_socket(folder),
            [json.dumps(request).encode() + b"\n" for request in requests],
            _files(ipc, entitlement),
        ),
        Target(
            "ivshmem server", ivshmem_server, [bytes([0, 1, 2, 3, 4, 5, 6]), b"\x01\x05\x00"], _files(ivshmem.server)
        ),
        Target(
            "region",
            _region(stack),
            [bytes([index, 0]) + bytes(range(1, 64)) for index in range(0, 64, 4)],
            _files(ivshmem.region),
        ),
    ]
