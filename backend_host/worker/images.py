"""Whether a module image has kernels that print.

What kernels print comes out when the driver is asked to synchronise, which takes it about 2 us more than the worker needs to know that the
work is done. A program none of whose images prints is spared that. The answer may be wrong in one direction only: yes, it may print.
"""

from cuda_api.fatbin import EntryKind, FatbinEntry, FatbinError, parse

MAX_IMAGE_BYTES = 8 << 20
MAX_UNPACKED_BYTES = 64 << 20
"""Larger images are not looked into: unpacking a library of hundreds of megabytes would take longer than it can save."""

_CONTAINER = b"\x50\xed\x55\xba"
_PRINTS = b"vprintf"
"""What printf on the device becomes in PTX and in machine code, by the name of the driver's function."""


def may_print(image: bytes, capability: int) -> bool:
    """False when no kernel of the image can print on a device of this capability (90 for 9.0); True when one can, or nobody can tell."""
    if len(image) > MAX_IMAGE_BYTES:
        return True
    if image[:4] != _CONTAINER:
        return _PRINTS in image
    try:
        entries = [entry for entry in parse(image).entries if _may_run(entry, capability)]
        if sum(entry.uncompressed_bytes for entry in entries) > MAX_UNPACKED_BYTES:
            return True
        return any(_PRINTS in entry.payload() for entry in entries)
    except FatbinError:
        return True


def _may_run(entry: FatbinEntry, capability: int) -> bool:
    """Libraries bring machine code for five GPUs and more; what is for others is not unpacked."""
    return entry.runs_on(capability) and (entry.kind != EntryKind.ELF or entry.sm // 10 == capability // 10)
