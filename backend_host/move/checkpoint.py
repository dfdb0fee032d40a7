"""The process that takes workers off their device and puts them on another: `python -m backend_host.move.checkpoint --library PATH`.

It is a process of its own as the daemon opens no device library, and of the daemon's user outside of all walls, since the driver lets nobody
else do this to a worker. To open the library takes as long as a pause should: so it is started ahead, says that it is ready, and waits for one
line on its standard input, as JSON: {"pids": [...], "from": UUID, "to": UUID}.

What it does comes on its standard output, as lines of JSON: {"pid", "step"} as a call begins, {"pid", "step", "result", "ms"} as it ends, and
{"done": true}. Each step is taken with all processes, at the same time, before the next one:

    lock, checkpoint, restore with the two devices exchanged, unlock

Where a lock or a checkpoint fails those that are checkpointed are restored where they were, and all that are locked are unlocked; and so they
are where none can be restored on the other device (return). A process whose restore fails for good stays as it is, for ever: it is for the
daemon to end it. The end of the standard input ends this process at once, whatever it is at: the next daemon ends workers that are on their
way.

Wrong when: a call of the driver never returns. The daemon ends this process then, and the workers that it had locked.
"""

import argparse
import contextlib
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TextIO, cast

from cffi import FFI

LOCK_MS = 1000
"""Workers stand, so nothing is on the device that a lock would wait for."""
LOCK, CHECKPOINT, RESTORE, RETURN, UNLOCK = "lock", "checkpoint", "restore", "return", "unlock"

DECLARATIONS = """
typedef int CUresult;
typedef uint64_t cuuint64_t;
typedef struct { char bytes[16]; } CUuuid;
typedef struct { unsigned int timeoutMs; unsigned int reserved0; cuuint64_t reserved1[7]; } CUcheckpointLockArgs;
typedef struct { cuuint64_t reserved[8]; } CUcheckpointCheckpointArgs;
typedef struct { CUuuid oldUuid; CUuuid newUuid; } CUcheckpointGpuPair;
typedef struct {
    CUcheckpointGpuPair *gpuPairs;
    unsigned int gpuPairsCount;
    char reserved[44]; /* 64 bytes in all */
    cuuint64_t reserved1;
} CUcheckpointRestoreArgs;
typedef struct { cuuint64_t reserved[8]; } CUcheckpointUnlockArgs;
CUresult cuInit(unsigned int flags);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, int device);
CUresult cuDevicePrimaryCtxRetain(void **context, int device);
CUresult cuDevicePrimaryCtxRelease_v2(int device);
CUresult cuCtxSetCurrent(void *context);
CUresult cuMemGetInfo_v2(size_t *free, size_t *total);
CUresult cuCheckpointProcessGetState(int pid, int *state);
CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args);
CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args);
CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args);
CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args);
"""
"""As in cuda.h of CUDA 13.0."""

Pairs = Sequence[tuple[bytes, bytes]]
Step = Callable[[int], int]


class DriverError(Exception):
    """A call of the library gave an error, or is not there; the text says which."""


class Driver:
    """A device library, opened. All calls give a CUresult."""

    def __init__(self, path: str) -> None:
        """Raises OSError, DriverError."""
        self._ffi = FFI()
        self._ffi.cdef(DECLARATIONS)
        self._lib = cast(Any, self._ffi.dlopen(path))
        try:
            self._check("cuInit", self._lib.cuInit(0))
            self.devices = self._devices()
            """UUIDs of all devices of the machine that this process sees."""
            assert self._lib.cuCheckpointProcessLock
        except AttributeError as error:
            raise DriverError(f"the device library has no checkpoints: {error}") from None

    def _devices(self) -> list[bytes]:
        count, found = self._ffi.new("int *"), cast(Any, self._ffi.new("CUuuid *"))
        self._check("cuDeviceGetCount", self._lib.cuDeviceGetCount(count))
        devices = []
        for device in range(count[0]):
            self._check("cuDeviceGetUuid", self._lib.cuDeviceGetUuid_v2(found, device))
            devices.append(bytes(self._ffi.buffer(found.bytes)))
        return devices

    @staticmethod
    def _check(call: str, result: int) -> None:
        if result:
            raise DriverError(f"{call} gives CUDA error {result}")

    def lock(self, pid: int) -> int:
        return int(self._lib.cuCheckpointProcessLock(pid, self._ffi.new("CUcheckpointLockArgs *", (LOCK_MS,))))

    def checkpoint(self, pid: int) -> int:
        return int(self._lib.cuCheckpointProcessCheckpoint(pid, self._ffi.new("CUcheckpointCheckpointArgs *")))

    def restore(self, pid: int, pairs: Pairs = ()) -> int:
        """On the devices that the pairs name, or where it was."""
        given = self._ffi.new("CUcheckpointGpuPair[]", [((old,), (new,)) for old, new in pairs])
        args = self._ffi.new("CUcheckpointRestoreArgs *", (given, len(pairs)))
        return int(self._lib.cuCheckpointProcessRestore(pid, args if pairs else self._ffi.NULL))

    def unlock(self, pid: int) -> int:
        return int(self._lib.cuCheckpointProcessUnlock(pid, self._ffi.new("CUcheckpointUnlockArgs *")))

    def state(self, pid: int) -> tuple[int, int]:
        """The result, and a CUprocessState."""
        state = self._ffi.new("int *")
        return int(self._lib.cuCheckpointProcessGetState(pid, state)), int(state[0])

    def left(self, device: bytes) -> tuple[int, int]:
        """The result, and how many bytes a device has left beside a context that is made for the question."""
        number, left = self.devices.index(device), self._ffi.new("size_t[2]")
        context = self._ffi.new("void **")
        result = int(self._lib.cuDevicePrimaryCtxRetain(context, number))
        if result:
            return result, 0
        result = int(self._lib.cuCtxSetCurrent(context[0]) or self._lib.cuMemGetInfo_v2(left, left + 1))
        self._lib.cuCtxSetCurrent(self._ffi.NULL)
        self._lib.cuDevicePrimaryCtxRelease_v2(number)
        return result, int(left[0])


def exchanged(devices: Sequence[bytes], one: bytes, other: bytes) -> Pairs:
    """Each device with what takes its place: these two each other's. The driver wants all devices of the machine to be named."""
    places = {one: other, other: one}
    return [(device, places.get(device, device)) for device in devices]


class Change:
    """Of some processes, whose steps are told as they are done."""

    def __init__(self, driver: Driver, say: Callable[[Mapping[str, Any]], None]) -> None:
        self._driver = driver
        self._say = say

    def run(self, pids: Sequence[int], pairs: Pairs) -> None:
        """Puts them on other devices, or leaves them where they were."""
        locked = self._all(LOCK, pids, self._driver.lock)
        checkpointed = self._all(CHECKPOINT, locked, self._driver.checkpoint) if len(locked) == len(pids) else []
        if len(checkpointed) < len(pids):
            kept = self._all(RESTORE, checkpointed, self._driver.restore)
            self._all(UNLOCK, [pid for pid in locked if pid in kept or pid not in checkpointed], self._driver.unlock)
            return
        restored = self._all(RESTORE, pids, lambda pid: self._driver.restore(pid, pairs))
        if not restored:
            restored = self._all(RETURN, pids, self._driver.restore)
        self._all(UNLOCK, restored, self._driver.unlock)

    def _all(self, name: str, pids: Iterable[int], step: Step) -> list[int]:
        """Those with which it went well."""
        wanted = list(pids)
        if not wanted:
            return []
        with ThreadPoolExecutor(len(wanted)) as threads:
            return [
                pid
                for pid, is_good in zip(
                    wanted, threads.map(lambda pid: self._one(name, pid, step), wanted), strict=True
                )
                if is_good
            ]

    def _one(self, name: str, pid: int, step: Step) -> bool:
        self._say({"pid": pid, "step": name})
        began = time.monotonic()
        result = step(pid)
        self._say({"pid": pid, "step": name, "result": result, "ms": round((time.monotonic() - began) * 1e3, 2)})
        return result == 0


def uuid_bytes(device: str) -> bytes:
    return uuid.UUID(device.removeprefix("GPU-")).bytes


def _end_with_daemon() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(1)


def own_output() -> TextIO:
    """Where the daemon hears this process. From now on what a device library prints goes to the log: between two lines that say how far
    a change is, nobody would know any more which processes are where."""
    said = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return said


def begin(say: Callable[[Mapping[str, Any]], None], listen: Callable[[], None]) -> tuple[Driver, dict[str, Any]]:
    """Opens the library of the command line, says that it is ready, and gives what it is told. From then on `listen` has the input, on a
    thread. Ends the process where there is no such library, or nothing is to be done."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--library", required=True)
    try:
        driver = Driver(parser.parse_args().library)
    except (OSError, DriverError) as error:
        say({"failed": str(error)})
        sys.exit(1)
    say({"ready": True})
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)
    threading.Thread(target=listen, daemon=True).start()
    return driver, json.loads(line)


def main() -> NoReturn:
    """The process."""
    said, speaking = own_output(), threading.Lock()

    def say(message: Mapping[str, Any]) -> None:
        with speaking, contextlib.suppress(OSError):  # the daemon has died, and this process ends
            print(json.dumps(message), file=said, flush=True)

    driver, asked = begin(say, _end_with_daemon)
    pairs = exchanged(driver.devices, uuid_bytes(asked["from"]), uuid_bytes(asked["to"]))
    Change(driver, say).run(asked["pids"], pairs)
    say({"done": True})
    os._exit(0)  # the thread that reads would keep the interpreter from ending


if __name__ == "__main__":
    main()
