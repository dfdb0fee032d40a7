"""A worker process: `python -m backend_host.worker.main --socket FD [--library PATH] [--slot N]`, started warm by the daemon.

It opens the device library, retains a primary context, and only then waits on the inherited socket for one message that says whom to serve.
From then on the client's ring is served in C, without the GIL. The daemon's death is no reason to end: the client is served on, and ended with.

`--probe` instead prints what the device library says of its devices, as JSON, and exits; `--check` says by its exit status whether a device
gives a context.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

from backend_host.worker._worker import ffi, lib
from backend_host.worker.binds import Binder, Bound, nests
from backend_host.worker.declarations import UNKNOWABLE_BYTES
from backend_host.worker.images import Aside, Inspector, Printing
from backend_host.worker.making import Maker
from backend_host.worker.needs import needs_bytes
from backend_host.worker.weigh import other_process, weigh
from ivshmem.passing import receive_with

DEFAULT_LIBRARY = "libcuda.so.1"
MESSAGE_BYTES = 65536
MOST_DESCRIPTORS = 1 + lib.FGW_CONTROL_OBJECTS + 1 + 16 + 1
"""Region, control page, where the virtual machine has bells, the worker's own and those of the guest, and in a space its page."""
_ERROR_BYTES = 512

EXIT_OK = 0
EXIT_NO_LIBRARY = 3
"""The device library cannot be opened or has no device; the reason is on standard error."""
EXIT_REFUSED = 4
"""The client could not be served; the reason was sent on the socket."""


class WorkerError(Exception):
    """The worker cannot begin; the text is one line for a person."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a worker, or a probe, to its end; returns the exit status."""
    parser = argparse.ArgumentParser(prog="fairgv-worker", description=__doc__.partition("\n")[0])
    parser.add_argument("--library", default=DEFAULT_LIBRARY, help="the device library (default: %(default)s)")
    parser.add_argument("--device", type=int, default=0, help="ordinal of the device to serve (default: %(default)s)")
    parser.add_argument("--slot", type=int, default=None, help="worker slot in the control page, for people")
    parser.add_argument(
        "--fast-moves",
        type=int,
        default=0,
        metavar="BYTES",
        help="be ready to go to any device that is seen, and keep images of modules of so many bytes for that",
    )
    parser.add_argument(
        "--tenant", metavar="JSON", help="whose worker it is from its start: the fields of struct fgw_walls_tenant"
    )
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--socket", type=int, metavar="FD", help="inherited UNIX seqpacket socket of the daemon")
    mode.add_argument("--check", action="store_true", help="make a context on the device and exit")
    mode.add_argument("--probe", action="store_true", help="print the facts of the devices and exit")
    options = parser.parse_args(arguments)
    try:
        if options.probe:
            print(json.dumps(probe(options.library)))
            return EXIT_OK
        if options.check:
            opened(options.library, options.device)
            return EXIT_OK
        if options.tenant:
            become_tenant(json.loads(options.tenant))
        return serve(options.socket, options.library, options.device, options.fast_moves)
    except WorkerError as error:
        print(f"fairgv worker {os.getpid()}: {error}", file=sys.stderr)
        return EXIT_NO_LIBRARY


def probe(library: str) -> list[dict[str, Any]]:
    """What the library says of each of its devices, by ordinal. Opens it in this process: call it in one that ends soon.

    facts: base64 of struct fgv_facts (cuda_api/facts.h) with this device alone; uuid: in hexadecimal; capability: "9.0", say;
    driver_version: what the library says, capped at what our table of calls covers. costs: see weigh.py. One that gives no context while
    others do says why as failed, and nothing else.
    """
    facts = ffi.new("struct fgw_facts_block *", {"nr_devices": 1})
    error = ffi.new(f"char[{_ERROR_BYTES}]")
    devices: list[dict[str, Any]] = []
    with other_process(library) as other:
        while len(devices) < facts.nr_devices:
            if lib.fgw_worker_probe_block(library.encode(), len(devices), facts, error, _ERROR_BYTES) == 0:
                devices.append(_said(facts) | {"costs": weigh(library, len(devices), other)})
            else:
                devices.append({"failed": ffi.string(error).decode(errors="replace")})
    if all("failed" in device for device in devices):
        raise WorkerError(devices[0]["failed"])
    return devices


def _said(facts: ffi.CData) -> dict[str, Any]:
    return {
        "facts": base64.b64encode(bytes(ffi.buffer(facts.bytes, facts.nr_bytes))).decode(),
        "uuid": bytes(facts.uuid).hex(),
        "pci_bus_id": ffi.string(facts.pci_bus_id).decode(errors="replace"),
        "name": ffi.string(facts.name).decode(errors="replace"),
        "memory_bytes": facts.memory_bytes,
        "capability": f"{facts.capability_major}.{facts.capability_minor}",
        "driver_version": facts.driver_version,
        "preempts": bool(facts.preempts),
        "reaches_host": bool(facts.reaches_host),
    }


def opened(library: str, device: int) -> ffi.CData:
    """A worker with a context on the device. Raises WorkerError."""
    error = ffi.new(f"char[{_ERROR_BYTES}]")
    worker = lib.fgw_worker_open(library.encode(), device, error, _ERROR_BYTES)
    if worker == ffi.NULL:
        raise WorkerError(ffi.string(error).decode(errors="replace"))
    return worker


def serve(socket_fd: int, library: str, device: int, kept_image_bytes: int = 0) -> int:
    """Warm start, one assignment, one client; returns the exit status."""
    worker = opened(library, device)
    lib.fgw_kept_image_limit(worker, kept_image_bytes)
    with socket.socket(fileno=socket_fd) as daemon:
        try:
            message, descriptors = receive_with(daemon, MESSAGE_BYTES, MOST_DESCRIPTORS)
        except OSError:
            message, descriptors = b"", []
        if not message:
            return EXIT_OK  # the daemon went away before there was anybody to serve
        ended = assign(worker, json.loads(message), descriptors, daemon.fileno())
        tell(daemon, ended)
        return EXIT_REFUSED if "refused" in ended else EXIT_OK


def assign(worker: ffi.CData, message: dict[str, Any], descriptors: list[int], daemon_fd: int) -> dict[str, Any]:
    """Attaches to the client that the message names and serves it to its end; returns what the daemon is told. What else comes on the daemon's
    socket is read in C."""
    region_fd, bells = descriptors[0], descriptors[1 + lib.FGW_CONTROL_OBJECTS :]
    space_page = bells.pop() if "space" in message else None
    control = lib.fgw_control_open(descriptors[1 : 1 + lib.FGW_CONTROL_OBJECTS], message["vgpu"])
    if control == ffi.NULL:
        raise WorkerError(f"no control page: {os.strerror(ffi.errno)}")
    own_words = lib.fgw_printing_open_errors(worker)
    if own_words < 0:
        raise WorkerError(f"no file for what kernels say: {os.strerror(ffi.errno)}")
    sys.stderr = os.fdopen(own_words, "w", buffering=1, errors="backslashreplace")
    if bells:
        lib.fgw_client_expect_bell(worker)
    enter_walls(message["walls"])
    assignment = ffi.new(
        "struct fgw_assignment *",
        {
            "region_fd": region_fd,
            "region_bytes": message["region_bytes"],
            "table_hash": message["table_hash"],
            "client": message["client"],
            "vgpu": message["vgpu"],
            "slot": message["slot"],
            "device": message["device"],
            "daemon": daemon_fd,
            "control": control,
            "own_bell": bells[0] if bells else -1,
            "nr_guest_bells": max(0, len(bells) - 1),
            "guest_bells": bells[1:],
        },
    )
    lib.fgw_worker_set_inspector(worker, lib.fgv_image_inspect)
    lib.fgw_worker_set_needs(worker, lib.fgv_image_needs)
    lib.fgw_worker_set_binds(worker, lib.fgv_image_binds)
    if space_page is not None:
        lib.fgw_space_set_nests(worker, lib.fgv_image_nests)
    costs = message.get("costs", {})
    lib.fgw_worker_set_costs(worker, int(costs.get("context_bytes", 0)), int(costs.get("stream_bytes", 0)))
    lib.fgw_worker_set_span(worker, message.get("memory") == "span")
    settings = ffi.new("struct fgw_slicing_settings *", message.get("slicing", {}))
    callbacks = (lib.fgv_variants_keep, lib.fgv_variants_forget, lib.fgv_variants_read, lib.fgv_variants_go_on)
    lib.fgw_worker_set_slicing(worker, settings, ffi.new("struct fgw_variant_maker *", callbacks))
    error = ffi.new(f"char[{_ERROR_BYTES}]")
    refused = lib.fgw_worker_attach(worker, assignment, error, _ERROR_BYTES)
    if not refused and space_page is not None:
        without = lib.fgw_space_attach(worker, space_page)
        if without:
            print(f"fairgv worker {os.getpid()}: no page of its space: CUDA error {without}", file=sys.stderr)
    for descriptor in descriptors:
        os.close(descriptor)
    if refused:
        return {"refused": refused, "ended": ffi.string(error).decode(errors="replace")}
    return {"ended": ffi.string(lib.fgw_worker_run(worker)).decode()}


def enter_walls(told: dict[str, Any]) -> None:
    """Gives up what a worker needs no more once it knows its guest: walls/enter.h has the fields. From here on guest data is looked at."""
    _take_step(lib.fgw_walls_enter, told)


def become_tenant(told: dict[str, Any]) -> None:
    """The first half of it, at the start: before the device library is opened."""
    _take_step(lib.fgw_walls_become, told)


def _take_step(enter: Callable[[ffi.CData, ffi.CData], int], told: dict[str, Any]) -> None:
    name = ffi.NULL if told["cache"] is None else ffi.new("char[]", told["cache"].encode())
    paths = [ffi.new("char[]", node.encode()) for node in told["nodes"]]
    nodes = ffi.new("const char *[]", [*paths, ffi.NULL])
    tenant = ffi.new("struct fgw_walls_tenant *", {**told, "cache": name, "nodes": nodes})
    step = ffi.new("const char **")
    failed = enter(tenant, step)
    if failed:
        raise WorkerError(f"its walls are open at {ffi.string(step[0]).decode()}: {os.strerror(failed)}")


_aside = Aside()
_inspector = Inspector(lib.fgw_image_is_silent, _aside)


@ffi.def_extern(error=int(Printing.MAY))  # type: ignore[untyped-decorator]
def fgv_image_inspect(image: ffi.CData, image_bytes: int, capability: int) -> int:
    """Called by the loop before it hands an image to the driver; what goes wrong in here means that it may print."""
    return _inspector.inspect(memoryview(ffi.buffer(image, image_bytes)), capability)


@ffi.def_extern(error=UNKNOWABLE_BYTES)  # type: ignore[untyped-decorator]
def fgv_image_needs(image: ffi.CData, image_bytes: int, capability: int, is_exact: bool) -> int:
    """Called by the loop before it hands an image to the driver; one at which this fails is not for any quota."""
    return needs_bytes(memoryview(ffi.buffer(image, image_bytes)), capability, is_exact=is_exact)


_binder = Binder(lib.fgw_image_binds, _aside)


@ffi.def_extern(error=int(Bound.IMAGES))  # type: ignore[untyped-decorator]
def fgv_image_binds(image: ffi.CData, image_bytes: int, capability: int, ticket: int) -> int:
    """Called by the loop when it keeps an image; one at which this fails cannot be read."""
    return _binder.look(memoryview(ffi.buffer(image, image_bytes)), capability, ticket)


@ffi.def_extern(error=False)  # type: ignore[untyped-decorator]
def fgv_image_nests(image: ffi.CData, image_bytes: int, capability: int) -> bool:
    """Called by the loop of a worker in a space before it hands an image to the driver."""
    return nests(memoryview(ffi.buffer(image, image_bytes)), capability)


_maker = Maker()


@ffi.def_extern()  # type: ignore[untyped-decorator]
def fgv_variants_keep(owner_kind: int, owner: int, image: ffi.CData, image_bytes: int) -> None:
    """Called by the loop when a module or library was loaded; no bytes: it was linked from several."""
    _maker.images.keep((owner_kind, owner), memoryview(ffi.buffer(image, image_bytes)) if image_bytes else None)


@ffi.def_extern()  # type: ignore[untyped-decorator]
def fgv_variants_forget(owner_kind: int, owner: int) -> None:
    """Called by the loop when one was unloaded."""
    _maker.images.forget((owner_kind, owner))


@ffi.def_extern()  # type: ignore[untyped-decorator]
def fgv_variants_read(making: ffi.CData) -> None:
    """Called by the loop when a large launch needs a variant."""
    _maker.read(making)


@ffi.def_extern()  # type: ignore[untyped-decorator]
def fgv_variants_go_on(making: ffi.CData) -> None:
    """Called by the loop when it has found the addresses of the variables, or wants the variant no more."""
    _maker.go_on(making)


def tell(daemon: socket.socket, ended: dict[str, Any]) -> None:
    """Tells the daemon why, if it is still there."""
    try:
        daemon.send(json.dumps(ended).encode(), socket.MSG_NOSIGNAL)
    except OSError:
        return


if __name__ == "__main__":
    # No interpreter shutdown: exit handlers of a device library have been known to hang.
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
