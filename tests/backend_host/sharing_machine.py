"""A virtual machine whose programs share memory: a daemon's part by hand, workers, guests, and what the tests of sharing ask of them."""

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from typing import Any

from backend_host.shelf import Shelves
from ivshmem.region import ClientState, Region
from tests.backend_host.worker_guest import PRIMARY, Guest, make_region, wait_for_state
from tests.backend_host.worker_harness import SOFTGPU, Host, Worker

SPAN, OTHER_SPAN = 0x3000_0000_0000, 0x3100_0000_0000
STEP = 2 << 20
BYTES = 256 * STEP
EXTENT_MOST = 1 << 30
PHYSICAL = 0x4C_00000001_000001
POOL = 0x50_00000001_000001
PIECE = 32 << 20
MOST_LIVE = 12
INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT, OPERATING_SYSTEM, NOT_READY, NOT_SUPPORTED = 1, 2, 201, 304, 600, 801
NR_TRIES = 20_000


class Daemon:
    """A thread that listens to workers, as the daemon's does."""

    def __init__(self) -> None:
        self.shelves = Shelves()
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._wake, theirs = socket.socketpair()
        self._selector.register(theirs, selectors.EVENT_READ)
        self._theirs = theirs
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def listen(self, worker: Worker) -> None:
        self._selector.register(worker.socket, selectors.EVENT_READ, worker)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                worker: Worker | None = key.data
                if worker is None:
                    return
                if not self.shelves.read(id(worker), worker.vgpu, worker.socket):
                    self._selector.unregister(worker.socket)
                    self.shelves.leave(id(worker))
            self.shelves.answer()

    def stop(self) -> None:
        self._wake.send(b"!")
        self._thread.join()
        self._selector.close()
        self._wake.close()
        self._theirs.close()
        self.shelves.close()


class Machine:
    """Guests of softgpu, each with a worker: two of one vGPU, and one of another with a region of its own."""

    def __init__(self, host: Host, regions: tuple[Region, Region], quota_bytes: int = 0) -> None:
        self.host, self.daemon = host, Daemon()
        self.vgpus = [host.control.vgpu_take(quota_bytes), host.control.vgpu_take(0)]
        self.workers: list[Worker] = []
        self.first = self.start(regions[0], 0, 0, SPAN)
        self.second = self.start(regions[0], 1, 0, OTHER_SPAN)
        self.foreign = self.start(regions[1], 0, 1, OTHER_SPAN)

    def start(self, region: Region, client: int, vgpu: int, span: int, nbytes: int = BYTES) -> Guest:
        guest = Guest(region, client)
        self.workers.append(self.host.start(region, client, self.vgpus[vgpu], memory="span"))
        assert wait_for_state(region, client, {ClientState.READY, ClientState.REFUSED}) is ClientState.READY
        self.daemon.listen(self.workers[-1])
        guest.ok("context_create", context=0, handle=PRIMARY, is_primary=1)
        guest.ok("span_open", address=span, bytes=nbytes)
        return guest

    def nr_shared(self) -> int:
        """Descriptors on the shelves, once the daemon has read all that was said to it before."""
        assert result_of_open(self.foreign, (0, 1)) == INVALID_VALUE
        return self.daemon.shelves.nr_files

    def memory_bytes(self, vgpu: int = 0) -> int:
        reading = self.host.control.vgpu(self.vgpus[vgpu])
        assert reading is not None
        return reading.memory_bytes


@contextlib.contextmanager
def running(quota_bytes: int = 0) -> Iterator[Machine]:
    host = Host(SOFTGPU)
    try:
        with make_region() as region, make_region() as another:
            machine = Machine(host, (region, another), quota_bytes)
            try:
                yield machine
            finally:
                machine.daemon.stop()
    finally:
        host.close()


def allocate(guest: Guest, nbytes: int) -> int:
    return int(guest.ok("cuMemAlloc_v2", bytesize=nbytes).dptr)


def settled(guest: Guest, call: str, **fields: Any) -> Any:
    """Asks until the worker has an answer."""
    for _ in range(NR_TRIES):
        answer = guest.call(call, **fields)
        if answer.result != NOT_READY:
            return answer
        threading.Event().wait(0.0005)
    raise AssertionError(f"{call} is never ready")


def exported(guest: Guest, address: int) -> tuple[int, int]:
    answer = settled(guest, "ipc_export", address=address)
    assert answer.result == 0
    return int(answer.key[0]), int(answer.key[1])


def result_of_open(guest: Guest, key: tuple[int, int]) -> int:
    return int(settled(guest, "ipc_open", key=list(key)).result)


def opened(guest: Guest, key: tuple[int, int]) -> int:
    answer = settled(guest, "ipc_open", key=list(key))
    assert answer.result == 0
    return int(answer.address)


def fill(guest: Guest, address: int, value: int, nbytes: int) -> None:
    guest.ok("cuMemsetD8Async", dstDevice=address, uc=value, N=nbytes, hStream=0)
    guest.ok("cuCtxSynchronize")
