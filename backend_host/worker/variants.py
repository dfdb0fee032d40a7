"""The worker's part in Python of running large launches in parts: images are kept, and variants of kernels made from their PTX.

The PTX of an image is kept as its program sent it, which is compressed as a rule; it is unpacked and parsed when a kernel of it needs a
variant. What is made is text, which the driver compiles. Everything here comes from a guest: what cannot be kept or understood means that its
kernels run whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from backend_host.worker._worker import ffi, lib
from cuda_api.fatbin import (
    ELF_MAGIC,
    Buffer,
    EntryFlags,
    EntryKind,
    FatbinError,
    NoPtxError,
    parse,
    select_ptx,
    without_machine_code,
)
from cuda_api.generated.values import MAX_VARIANT_CONSTANTS
from cuda_api.ptx import PtxSyntaxError, format_module
from cuda_api.ptx import parse as parse_ptx
from cuda_api.ptx.syntax import Module
from cuda_api.ptx.variants import RunsWholeError, Whole, persist_kernel, slice_kernel, used_by

MAX_IMAGE_BYTES = 64 << 20
MAX_KEPT_BYTES = 512 << 20
"""Of one worker: a guest that loads images for ever must not fill the host's memory with what it sent."""
MAX_TEXT_BYTES = 4 << 20
"""Parsing more would keep a program waiting for many seconds."""

_CONTAINER = b"\x50\xed\x55\xba"

Owner = tuple[int, int]
"""Kind and number of the module or library that an image became."""


@dataclass(frozen=True)
class Variant:
    """PTX of a module with the one variant, and the names of the constants that it takes over."""

    text: str
    constants: tuple[str, ...]


@dataclass
class Images:
    """What is kept of the images of one worker."""

    _kept: dict[Owner, bytes | Whole] = field(default_factory=dict)
    _kept_bytes: int = 0
    _parsed: tuple[Owner, Module] | None = None

    def keep(self, owner: Owner, image: Buffer | None) -> None:
        """Of a new module or library, its PTX; None for one that was linked from several files."""
        self.forget(owner)
        if image is None:
            self._kept[owner] = Whole.SEPARATE_COMPILATION
        elif len(image) > MAX_IMAGE_BYTES:
            self._kept[owner] = Whole.TOO_LARGE
        else:
            self._kept[owner] = kept = self._worth_keeping(image)
            self._kept_bytes += len(kept) if isinstance(kept, bytes) else 0

    def _worth_keeping(self, image: Buffer) -> bytes | Whole:
        if image[:4] == ELF_MAGIC:
            return Whole.NO_PTX
        try:
            kept = without_machine_code(image) if image[:4] == _CONTAINER else bytes(image)
        except FatbinError:
            return Whole.NOT_UNDERSTOOD
        return kept if self._kept_bytes + len(kept) <= MAX_KEPT_BYTES else Whole.TOO_LARGE

    def forget(self, owner: Owner) -> None:
        """It was unloaded, or its number is given again."""
        gone = self._kept.pop(owner, None)
        if isinstance(gone, bytes):
            self._kept_bytes -= len(gone)
        if self._parsed is not None and self._parsed[0] == owner:
            self._parsed = None

    def variant(
        self, owner: Owner, kernel: str, capability: int, is_persistent: bool, find: Callable[[str], int]
    ) -> Variant:
        """For a device of this capability (90 for 9.0); `find` gives the address of a variable of the original, 0 for one that nobody finds.
        Raises RunsWholeError."""
        module = self._module(owner, capability)
        used = used_by(module, kernel)
        addresses = {name: address for name in used.globals if (address := find(name))}
        hidden = [name for name in used.globals if name not in addresses and name not in used.literals]
        if hidden:
            raise RunsWholeError(Whole.HIDDEN_VARIABLE, hidden[0])
        if len(used.constants) > MAX_VARIANT_CONSTANTS:
            raise RunsWholeError(Whole.TOO_LARGE, f"{len(used.constants)} constants")
        made = (persist_kernel if is_persistent else slice_kernel)(module, kernel, addresses)
        return Variant(format_module(made), used.constants)

    def _module(self, owner: Owner, capability: int) -> Module:
        if self._parsed is not None and self._parsed[0] == owner:
            return self._parsed[1]
        kept = self._kept.get(owner, Whole.NO_PTX)
        if isinstance(kept, Whole):
            raise RunsWholeError(kept, "the image")
        try:
            text = text_of(kept, capability)
            module = parse_ptx(text)
        except NoPtxError as error:
            raise RunsWholeError(Whole.NO_PTX, str(error)) from error
        except (FatbinError, PtxSyntaxError, RecursionError) as error:
            raise RunsWholeError(Whole.NOT_UNDERSTOOD, str(error)) from error
        self._parsed = (owner, module)
        return module


def text_of(image: bytes, capability: int) -> str:
    """The PTX from which a kernel of this image may get a variant. Raises RunsWholeError, FatbinError."""
    text = select_ptx(image, capability)
    if len(text) > MAX_TEXT_BYTES:
        raise RunsWholeError(Whole.TOO_LARGE, f"{len(text)} bytes of PTX")
    if image.startswith(_CONTAINER):
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


def make(images: Images | None, wish: ffi.CData) -> list[ffi.CData]:
    """Fills the answers of a `struct fgw_variant_wish`; returns what it points to."""
    try:
        if images is None:
            raise RunsWholeError(Whole.NO_PTX, "no image was kept")
        variant = images.variant(
            (wish.owner_kind, wish.owner),
            ffi.string(wish.kernel).decode("latin-1"),
            wish.capability,
            wish.mode == lib.FGW_SLICING_PERSISTENT,
            lambda name: int(lib.fgw_variant_address(name.encode("latin-1"))),
        )
    except RunsWholeError as error:
        wish.why_whole = int(error.reason)
        return []
    answer = [
        ffi.new("char[]", variant.text.encode("latin-1")),
        ffi.new("char[]", b"".join(name.encode("latin-1") + b"\0" for name in variant.constants)),
    ]
    wish.text, wish.constants = answer
    wish.nr_constants, wish.why_whole = len(variant.constants), int(Whole.NOT)
    return answer
