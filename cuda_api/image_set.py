"""
Images that are linked with each other, one behind the other as cuda_api/fatbin.h lays them out.

Each begins at a multiple of 8 bytes, and says itself where it ends: a container (`fatbin.py`) by its header, PTX by its terminating zero. An
image alone is a set of one.
"""

import struct

ALIGNMENT_BYTES = 8
_CONTAINER_MAGIC = 0xBA55ED50
_ELF_MAGIC = b"\x7fELF"
_HEADER = struct.Struct("<IHHQ")


def split(data: bytes) -> tuple[bytes, ...]:
    """The images of a set, as many as are in it. Whatever is no container and no text takes all that is left."""
    images: list[bytes] = []
    offset = 0
    end_of_last = len(data.rstrip(b"\0"))
    while offset < (end_of_last if images else len(data)):
        end = _end(data, offset)
        images.append(data[offset:end])
        offset = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return tuple(images)


def _end(data: bytes, offset: int) -> int:
    if data.startswith(_ELF_MAGIC, offset):
        return len(data)
    if len(data) - offset >= _HEADER.size:
        magic, _, header_bytes, entries_bytes = _HEADER.unpack_from(data, offset)
        size = int(max(header_bytes + entries_bytes, _HEADER.size))
        if magic == _CONTAINER_MAGIC:
            return min(offset + size, len(data))
    terminator = data.find(b"\0", offset)
    return len(data) if terminator < 0 else terminator + 1
