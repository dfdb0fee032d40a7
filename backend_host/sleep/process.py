"""The process that takes contexts of workers off their device, or brings them back: `python -m backend_host.sleep.process --library PATH`.

As the one that changes devices (move/checkpoint.py) it is of the daemon's user, outside of all walls, says that it is ready, and waits for one
line on its standard input, as JSON: {"do": "lay", "pids": [...]}, or {"do": "wake", "bytes": {pid: what it takes of the device}}, both with
"device", its UUID, and "context_bytes", what a context takes there. What it does comes on its standard output, as there; each process is on its
own.

    lay    lock, checkpoint, freed: how many bytes the device has more since then. One that cannot be checkpointed is unlocked, and goes on
    wake   room, restore, unlock: from whichever of these a process is at, as its driver says

A process whose restore finds no memory is lost for ever. So those for which the device has no room stay as they are (room).

Where the daemon ends meanwhile, what was laid is brought back at once: the next daemon sees to it later, or not at all.

Wrong when: somebody takes the device's memory between the look at it and the restore, or while a process is checkpointed, so that it seems to
have had less.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NoReturn

from backend_host.move.checkpoint import CHECKPOINT, LOCK, RESTORE, UNLOCK, Driver, begin, own_output, uuid_bytes

LAY, WAKE = "lay", "wake"
ROOM, STATE, FREED = "room", "state", "freed"
OUT_OF_MEMORY, ILLEGAL_STATE = 2, 401
"""CUresults."""
RUNNING, LOCKED, CHECKPOINTED = range(3)
"""Of CUprocessState."""
MARGIN_DIVISOR = 8
"""So much more than what is counted has to be there: a driver takes memory for what nobody counts (worker/client/taken.c)."""
OTHERS_S = 10.0
"""Another process may be at it still, of a daemon that has ended."""
_AGAIN_S = 0.05


class Contexts:
    """Of some processes. `left`: how many bytes their device has left, None where nobody knows; `has_ended`: whether the daemon has."""

    def __init__(
        self,
        driver: Driver,
        say: Callable[[Mapping[str, Any]], None],
        left: Callable[[], int | None],
        has_ended: Callable[[], bool] = lambda: False,
    ) -> None:
        self._driver = driver
        self._say = say
        self._left = left
        self._has_ended = has_ended

    def lay(self, pids: Iterable[int]) -> None:
        """Takes them off their device: one after the other, so that it is seen what each had there."""
        for pid in pids:
            self._lay(pid)

    def wake(self, wanted: Mapping[int, int]) -> None:
        """Puts those back where they were for which there is room: those first that need least."""
        fitting, left_bytes = [], self._left()
        for pid, due_bytes in sorted(wanted.items(), key=lambda item: item[1]):
            needed_bytes = due_bytes + due_bytes // MARGIN_DIVISOR
            if left_bytes is None or needed_bytes <= left_bytes:
                left_bytes = None if left_bytes is None else left_bytes - needed_bytes
                fitting.append(pid)
            else:
                self._tell(pid, ROOM, OUT_OF_MEMORY)
        if fitting:
            with ThreadPoolExecutor(len(fitting)) as threads:
                list(threads.map(self._bring_back, fitting))

    def _lay(self, pid: int) -> None:
        if self._step(pid, LOCK, self._driver.lock):
            return
        before = self._left()
        if self._step(pid, CHECKPOINT, self._driver.checkpoint):
            self._step(pid, UNLOCK, self._driver.unlock)
            return
        after = self._left()
        freed_bytes = 0 if before is None or after is None else max(0, after - before)
        self._say({"pid": pid, "step": FREED, "result": 0, "ms": 0.0, "bytes": freed_bytes})
        if self._has_ended():
            self._bring_back(pid)

    def _bring_back(self, pid: int) -> None:
        deadline = time.monotonic() + OTHERS_S
        while True:
            result, state = self._driver.state(pid)
            step, call = (UNLOCK, self._driver.unlock) if state in (RUNNING, LOCKED) else (RESTORE, self._restore)
            if result or state == RUNNING:
                self._tell(pid, STATE if result else step, result)
                return
            result = self._step(pid, step, call)
            if result == ILLEGAL_STATE and time.monotonic() < deadline:
                time.sleep(_AGAIN_S)
            elif result or step == UNLOCK:
                return

    def _restore(self, pid: int) -> int:
        return self._driver.restore(pid)

    def _step(self, pid: int, name: str, call: Callable[[int], int]) -> int:
        self._say({"pid": pid, "step": name})
        began = time.monotonic()
        result = call(pid)
        self._tell(pid, name, result, (time.monotonic() - began) * 1e3)
        return result

    def _tell(self, pid: int, name: str, result: int, ms: float = 0.0) -> None:
        self._say({"pid": pid, "step": name, "result": result, "ms": round(ms, 2)})


def left_on(driver: Driver, device: str, context_bytes: int) -> int | None:
    """Bytes that the device has left, by NVML's word, which takes none; else as a context sees it that is made there for a moment. None:
    neither says."""
    told = _left_by_nvml(device)
    if told is not None:
        return told
    result, left_bytes = driver.left(uuid_bytes(device))
    if result:
        return 0 if result == OUT_OF_MEMORY else None
    return left_bytes + context_bytes


def _left_by_nvml(device: str) -> int | None:
    try:
        import pynvml  # noqa: PLC0415 - it may be missing
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(device)).free)
    except (pynvml.NVMLError, OSError):
        return None


def main() -> NoReturn:
    """The process."""
    said, speaking = own_output(), threading.Lock()
    has_ended = threading.Event()

    def say(message: Mapping[str, Any]) -> None:
        with speaking, contextlib.suppress(OSError):  # nobody listens any more
            print(json.dumps(message), file=said, flush=True)

    def listen() -> None:
        while sys.stdin.buffer.read(1):
            pass
        has_ended.set()

    driver, asked = begin(say, listen)
    left = partial(left_on, driver, asked["device"], asked["context_bytes"])
    contexts = Contexts(driver, say, left, has_ended.is_set)
    if asked["do"] == LAY:
        contexts.lay(asked["pids"])
    else:
        contexts.wake({int(pid): int(due_bytes) for pid, due_bytes in asked["bytes"].items()})
    say({"done": True})
    os._exit(0)  # the thread that listens would keep the interpreter from ending


if __name__ == "__main__":
    main()
