"""
Whether a module image has kernels that print.

What kernels print comes out when the driver is asked to synchronise, which takes it about 2 us more than the worker needs to know that the
work is done. A program none of whose images prints is spared that. The answer may be wrong in one direction only: yes, it may print.

Machine code in libraries is compressed, and unpacking a megabyte takes about two milliseconds. The program does not wait for that: of a large
image a thread finds out, and until it has the image may print.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from enum import IntEnum
from queue import SimpleQueue

from cuda_api.fatbin import Buffer, EntryFlags, EntryKind, FatbinEntry, FatbinError, parse

MAX_IMAGE_BYTES = 8 << 20
MAX_UNPACKED_BYTES = 64 << 20
"""Larger images are not looked into: unpacking a library of hundreds of megabytes would take longer than it can save."""
MAX_WAITING_BYTES = 256 << 20
"""For the thread, of one program, packed and unpacked: bounds what a guest that loads images faster than they are looked into takes of the
host's memory, and how long its thread works after it."""
LEAST_BYTES_FOR_THREAD = 256 << 10
"""Unpacked; less is looked into at once, in less time than it takes to wake a thread and be disturbed by it."""

_CONTAINER = b"\x50\xed\x55\xba"
_PRINTS = b"vprintf"
"""What printf on the device becomes in PTX and in machine code, by the name of the driver's function."""
_SEARCHED_BYTES = 1 << 20
"""At one go: a search does not let go of the interpreter, which the worker's loop needs for the next image."""


class Printing(IntEnum):
    """As enum fgw_printing in face.h."""

    NOT = 0
    MAY = 1
    UNKNOWN = 2


class Aside:
    """A thread that looks into large images, one after another, of one program."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[Callable[[], None], int]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._given_bytes = 0
        self._done_bytes = 0

    def take(self, look: Callable[[], None], cost_bytes: int) -> bool:
        """To be called by the thread, and not to raise. False: so much waits already, or there may be no thread."""
        if self._given_bytes - self._done_bytes + cost_bytes > MAX_WAITING_BYTES:
            return False
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="images", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False  # the vGPU has as many processes as it may
            self._thread = thread
        self._given_bytes += cost_bytes
        self._waiting.put((look, cost_bytes))
        return True

    def _work(self) -> None:
        while True:
            look, cost_bytes = self._waiting.get()
            look()
            self._done_bytes += cost_bytes


class Inspector:
    """Looks into the images of one program."""

    def __init__(self, tell_silent: Callable[[], None], aside: Aside) -> None:
        """`tell_silent` is called by the thread, once for each image of `Printing.UNKNOWN` that does not print."""
        self._tell_silent = tell_silent
        self._aside = aside
        self._has_printing = False

    def inspect(self, image: Buffer, capability: int) -> Printing:
        """Of an image for a device of this capability (90 for 9.0). `image` is not kept."""
        if self._has_printing or len(image) > MAX_IMAGE_BYTES:
            return Printing.MAY
        try:
            nr_bytes = unpacked_bytes(entries_for(image, capability))
        except FatbinError:
            return Printing.MAY
        if nr_bytes <= LEAST_BYTES_FOR_THREAD:
            return Printing.MAY if may_print(image, capability) else Printing.NOT
        kept = bytes(image)
        is_taken = self._aside.take(lambda: self._find_out(kept, capability), len(kept) + nr_bytes)
        return Printing.UNKNOWN if is_taken else Printing.MAY

    def _find_out(self, image: bytes, capability: int) -> None:
        if self._has_printing or may_print(image, capability):
            self._has_printing = True
        else:
            self._tell_silent()


def may_print(image: Buffer, capability: int) -> bool:
    """False when no kernel of the image can print on a device of this capability (90 for 9.0); True when one can, or nobody can tell."""
    if len(image) > MAX_IMAGE_BYTES:
        return True
    try:
        entries = entries_for(image, capability)
        if sum(entry.uncompressed_bytes for entry in entries) > MAX_UNPACKED_BYTES:
            return True
        return any(_has_print(entry.payload()) for entry in entries)
    except FatbinError:
        return True


def entries_for(image: Buffer, capability: int) -> list[FatbinEntry]:
    """Those that a device of this capability may run: where none is for it, PTX for newer ones, which softgpu takes. An image that is no
    container is one. Raises FatbinError."""
    if image[:4] != _CONTAINER:
        return [FatbinEntry(EntryKind.PTX, 0, EntryFlags(0), image, 0)]
    entries = parse(image).entries
    return [entry for entry in entries if _may_run(entry, capability)] or [
        entry for entry in entries if entry.kind == EntryKind.PTX
    ]


def unpacked_bytes(entries: Iterable[FatbinEntry]) -> int:
    """Of all of these, unpacked."""
    return sum(max(entry.uncompressed_bytes, len(entry.stored)) for entry in entries)


def _has_print(content: bytes) -> bool:
    begins = range(0, len(content), _SEARCHED_BYTES)
    return any(content.find(_PRINTS, begin, begin + _SEARCHED_BYTES + len(_PRINTS)) >= 0 for begin in begins)


def _may_run(entry: FatbinEntry, capability: int) -> bool:
    """Libraries bring machine code for five GPUs and more; what is for others is not unpacked."""
    return entry.runs_on(capability) and (entry.kind != EntryKind.ELF or entry.sm // 10 == capability // 10)
