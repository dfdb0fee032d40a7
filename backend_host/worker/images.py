"""Whether a module image has kernels that print.

What kernels print comes out when the driver is asked to synchronise, which takes it about 2 us more than the worker needs to know that the
work is done. A program none of whose images prints is spared that. The answer may be wrong in one direction only: yes, it may print.
"""

from cuda_api.fatbin import FatbinError, parse

MAX_IMAGE_BYTES = 8 << 20
MAX_UNPACKED_BYTES = 64 << 20
"""Larger images are not looked into: unpacking a library of hundreds of megabytes would take longer than it can save."""

_PRINTS = b"vprintf"
"""What printf on the device becomes in PTX and in machine code, by the name of the driver's function."""


def may_print(image: bytes) -> bool:
    """False when no kernel in the image can print; True when one can, or when that cannot be told."""
    if len(image) > MAX_IMAGE_BYTES or _PRINTS in image:
        return True
    try:
        entries = parse(image).entries if image[:4] == b"\x50\xed\x55\xba" else ()
        if sum(entry.uncompressed_bytes for entry in entries) > MAX_UNPACKED_BYTES:
            return True
        return any(_PRINTS in entry.payload() for entry in entries)
    except FatbinError:
        return True
