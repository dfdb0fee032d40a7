"""
What a driver takes of the device for a module image: room for its code and for its variables.

Of machine code it is what the file says: the sections that are loaded. Of PTX it is computed from the text: the sizes of variables, which stand
in their declarations, and as many bytes for code as the text has, as no driver tells what it compiled. Of a container it is the most that any
of its entries which the device may run takes.

Images come from guests and may be hostile: what cannot be made out counts for more than any device has.

Wrong when: a compiler makes more code than there is text (loops that are unrolled), or a container has code for link-time optimisation, whose
variables nobody but a compiler finds. Machine code that is packed in a way that we do not know counts for its unpacked size alone.
"""

from __future__ import annotations

from backend_host.worker.declarations import UNKNOWABLE_BYTES, variables, without_asides
from backend_host.worker.images import entries_for
from cuda_api.cubin import CubinError, name_at, sections
from cuda_api.fatbin import ELF_MAGIC, Buffer, EntryKind, FatbinEntry, FatbinError

_MOST_UNPACKED_BYTES = 1 << 30
"""Of all entries of an image that a device may run. A few kilobytes can be made to unpack to a quarter of it, again and again."""
_LOADED = 2  # SHF_ALLOC
_NOT_IN_MEMORY = (b".nv.shared", b".nv.local")
"""Memory of blocks and threads, of which a section tells the size."""


def needs_bytes(image: Buffer, capability: int, *, is_exact: bool) -> int:
    """Of an image for a device of this capability (90 for 9.0), in one context.

    Without `is_exact` packed machine code is not unpacked, which takes 2 ms a megabyte: it counts for its size.
    """
    try:
        entries = entries_for(image, capability)
    except FatbinError:
        return len(image)  # which the driver will find, too
    if not is_exact or sum(entry.uncompressed_bytes for entry in entries) <= _MOST_UNPACKED_BYTES:
        most_bytes = max((_of_entry(entry, is_exact) for entry in entries), default=len(image))
        if most_bytes < UNKNOWABLE_BYTES:
            return most_bytes
    return UNKNOWABLE_BYTES if is_exact else len(image)


def _of_entry(entry: FatbinEntry, is_exact: bool) -> int:
    size_bytes = max(entry.uncompressed_bytes, len(entry.stored))
    if entry.uncompressed_bytes and not is_exact:
        return size_bytes
    try:
        content = entry.payload()
    except FatbinError:
        return size_bytes
    if content[:4] == ELF_MAGIC:
        return _of_machine_code(content)
    return _of_ptx(content) if entry.kind == EntryKind.PTX else size_bytes


def _of_machine_code(content: bytes) -> int:
    try:
        table = sections(content)
    except CubinError:
        return len(content)
    loaded = (each for each in table if each.flags & _LOADED)
    return sum(each.nr_bytes for each in loaded if not name_at(content, each.name_at).startswith(_NOT_IN_MEMORY))


def _of_ptx(content: bytes) -> int:
    text = without_asides(content.decode("latin-1"))
    if "#" in text:
        return UNKNOWABLE_BYTES  # of the preprocessor, whose macros would have to be expanded; no compiler writes any
    return len(content) + sum(nr_bytes for _, nr_bytes in variables(text))
