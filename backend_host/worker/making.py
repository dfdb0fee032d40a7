"""The thread of a worker that makes variants of kernels while the loop goes on (parts/making.h).

It reads a kernel's PTX and says which variables it uses; the loop finds their addresses; it writes the variant's text, and the driver compiles
it, in this thread. The parser is imported by the thread, when it first has something to do.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

from backend_host.worker._worker import ffi, lib
from backend_host.worker.kept_images import Images
from cuda_api.generated.values import Whole

if TYPE_CHECKING:
    from backend_host.worker.variants import Reader, Source

SWITCH_S = 0.0005
"""The loop, which wants the interpreter for each image, waits so long for the thread at most; it computes for up to a second."""


class Maker:
    """Of one worker. All but `_work` is called by the loop, which holds no reference to what it hands over here."""

    def __init__(self) -> None:
        self.images = Images()
        self._steps: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._reader: Reader | None = None
        self._sources: dict[int, Source] = {}
        self._thread: threading.Thread | None = None

    def read(self, making: ffi.CData) -> None:
        """The first step of a variant."""
        if not self._is_at_work():
            lib.fgw_making_fail(making, Whole.NOT_COMPILED)
            return
        wish = lib.fgw_making_wish(making)
        image = self.images.of((wish.owner_kind, wish.owner))
        self._steps.put(lambda: self._read(making, image))

    def go_on(self, making: ffi.CData) -> None:
        """The addresses are there, or nobody wants it any more."""
        self._steps.put(lambda: self._compile(making))

    def _is_at_work(self) -> bool:
        """False where the vGPU has as many processes as it may."""
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="variants", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            sys.setswitchinterval(SWITCH_S)
            self._thread = thread
        return True

    def _work(self) -> None:
        while True:
            self._steps.get()()

    def _read(self, making: ffi.CData, image: bytes | Whole) -> None:
        wish = lib.fgw_making_wish(making)
        try:
            from backend_host.worker.variants import Reader  # noqa: PLC0415

            self._reader = self._reader or Reader()
            source = self._reader.read(image, ffi.string(wish.kernel).decode("latin-1"), wish.capability)
            names = _joined(source.used.globals)
        except Exception as error:
            lib.fgw_making_fail(making, _reason_of(error))
            return
        self._sources[_key(making)] = source
        if not lib.fgw_making_ask(making, names, len(source.used.globals)):
            del self._sources[_key(making)]
            lib.fgw_making_fail(making, Whole.NOT_COMPILED)

    def _compile(self, making: ffi.CData) -> None:
        from backend_host.worker.variants import make  # noqa: PLC0415
        from cuda_api.ptx.variants import RunsWholeError  # noqa: PLC0415

        source = self._sources.pop(_key(making))
        found = {name: int(lib.fgw_making_address(making, number)) for number, name in enumerate(source.used.globals)}
        addresses = {name: address for name, address in found.items() if address}
        mode = lib.fgw_making_wish(making).mode
        try:
            try:
                variant = make(source, is_persistent=mode == lib.FGW_SLICING_PERSISTENT, addresses=addresses)
            except RunsWholeError:
                if mode == lib.FGW_SLICING_BOXES:
                    raise
                mode = lib.FGW_SLICING_BOXES  # what cannot persist may run in boxes
                variant = make(source, is_persistent=False, addresses=addresses)
            text, constants = variant.text.encode("latin-1"), _joined(variant.constants)
        except Exception as error:
            lib.fgw_making_fail(making, _reason_of(error))
            return
        lib.fgw_making_compile(making, mode, text, constants, len(variant.constants))


def _key(making: ffi.CData) -> int:
    return int(ffi.cast("uintptr_t", making))


def _joined(names: tuple[str, ...]) -> bytes:
    return b"".join(name.encode("latin-1") + b"\0" for name in names)


def _reason_of(error: Exception) -> int:
    return int(getattr(error, "reason", Whole.NOT_COMPILED))
