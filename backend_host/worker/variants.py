"""Variants of kernels for parts of a grid, made from the PTX that was kept of an image: text, which the driver compiles.

Everything here comes from a guest: what cannot be understood means that its kernels run whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backend_host.worker.kept_images import CONTAINER
from cuda_api.fatbin import EntryFlags, EntryKind, FatbinError, NoPtxError, parse, select_ptx
from cuda_api.generated.values import MAX_VARIANT_CONSTANTS
from cuda_api.ptx import PtxSyntaxError, format_module
from cuda_api.ptx import parse as parse_ptx
from cuda_api.ptx.syntax import Module
from cuda_api.ptx.variants import RunsWholeError, Used, Whole, persist_kernel, slice_kernel, used_by

MAX_TEXT_BYTES = 4 << 20
"""Parsing more would take many seconds."""


@dataclass(frozen=True)
class Source:
    """A kernel in its module, and what it uses of that."""

    module: Module
    kernel: str
    used: Used


@dataclass(frozen=True)
class Variant:
    """PTX of a module with the one variant, and the names of the constants that it takes over."""

    text: str
    constants: tuple[str, ...]


class Reader:
    """Reads images; the last one is remembered, as several kernels of one module are often needed one after another."""

    def __init__(self) -> None:
        self._last: tuple[bytes, Module] | None = None

    def read(self, image: bytes | Whole, kernel: str, capability: int) -> Source:
        """Of an image that was kept, for a device of this capability (90 for 9.0). Raises RunsWholeError."""
        module = self._module(image, capability)
        used = used_by(module, kernel)
        if len(used.constants) > MAX_VARIANT_CONSTANTS:
            raise RunsWholeError(Whole.TOO_LARGE, f"{len(used.constants)} constants")
        return Source(module, kernel, used)

    def _module(self, image: bytes | Whole, capability: int) -> Module:
        if isinstance(image, Whole):
            raise RunsWholeError(image, "the image")
        if self._last is not None and self._last[0] is image:
            return self._last[1]
        try:
            module = parse_ptx(text_of(image, capability))
        except NoPtxError as error:
            raise RunsWholeError(Whole.NO_PTX, str(error)) from error
        except (FatbinError, PtxSyntaxError, RecursionError) as error:
            raise RunsWholeError(Whole.NOT_UNDERSTOOD, str(error)) from error
        self._last = (image, module)
        return module


def make(source: Source, *, is_persistent: bool, addresses: Mapping[str, int]) -> Variant:
    """`addresses` are those of variables of the original in global memory, but for what the driver does not find. Raises RunsWholeError."""
    hidden = [name for name in source.used.globals if name not in addresses and name not in source.used.literals]
    if hidden:
        raise RunsWholeError(Whole.HIDDEN_VARIABLE, hidden[0])
    made = (persist_kernel if is_persistent else slice_kernel)(source.module, source.kernel, dict(addresses))
    return Variant(format_module(made), source.used.constants)


def text_of(image: bytes, capability: int) -> str:
    """The PTX from which a kernel of this image may get a variant. Raises RunsWholeError, FatbinError."""
    text = select_ptx(image, capability)
    if len(text) > MAX_TEXT_BYTES:
        raise RunsWholeError(Whole.TOO_LARGE, f"{len(text)} bytes of PTX")
    if image.startswith(CONTAINER):
        _check_machine_code(image, capability)
    return text


def _check_machine_code(image: bytes, capability: int) -> None:
    """What the driver runs is machine code where the device can; PTX of an older architecture may be another program."""
    entries = parse(image).entries
    newest = max(entry.sm for entry in entries if entry.kind == EntryKind.PTX and entry.runs_on(capability))
    specific = EntryFlags.ARCHITECTURE_SPECIFIC | EntryFlags.FAMILY_SPECIFIC
    is_specific = any(entry.flags & specific for entry in entries if entry.kind == EntryKind.PTX and entry.sm == newest)
    for entry in entries:
        runs = entry.kind == EntryKind.ELF and entry.sm // 10 == capability // 10 and entry.runs_on(capability)
        if runs and (entry.sm > newest or (entry.flags & specific and not is_specific)):
            raise RunsWholeError(Whole.NEWER_MACHINE_CODE, f"sm_{entry.sm} beside compute_{newest}")
