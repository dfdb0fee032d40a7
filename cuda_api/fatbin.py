"""The fat binary container: the PTX and machine code that nvcc puts into a program, one entry for each architecture.

A program registers a *wrapper* (magic, version, a pointer) whose pointer leads to the container proper: a header, then
entries, each with a header of its own and a payload that may be compressed, LZ4 by CUDA <= 12, Zstandard by CUDA 13.

    header  u32 magic 0xBA55ED50, u16 version 1, u16 header size, u64 bytes of all entries
    entry   +0x00 u16 kind (1 PTX, 2 ELF)                +0x18 u16 minor, u16 major of the language (PTX 9.0)
            +0x02 u16 version 0x101                      +0x1c u32 architecture (90 for sm_90)
            +0x04 u32 header size                        +0x28 u64 flags
            +0x08 u64 stored size, padding included      +0x38 u64 uncompressed size
            +0x10 u32 compressed size

Kind 8 is code for link-time optimisation. Behind the least header, which has 0x40 bytes, an entry may have a name and
options. fatbin_choice.h says in C which entries a device can use.

The layout is not published by NVIDIA. It was checked against what nvcc 13.0 writes and against NVIDIA's libraries of
CUDA 12 and 13; the flags for sm_90a and sm_100f were read off nvcc's output. Wrong when a newer nvcc compresses in another
way: such a payload comes out as it is stored.

Images come from guests and may be hostile: every length is checked before it is used, and what decompression may
allocate is bounded.
"""

import re
import struct
from enum import IntEnum, IntFlag

from cuda_api.record import record

HEADER_MAGIC = 0xBA55ED50
ELF_MAGIC = b"\x7fELF"
ELF_MACHINE_CUDA = 190

MAX_PAYLOAD_BYTES = 256 << 20
"""What one entry may unpack to. The PTX of a whole library is a few tens of MiB; more is an attack on our memory."""

# LZ4 cannot say more than 255 bytes of output with one byte of input.
_LZ4_MAX_RATIO = 255

_HEADER = struct.Struct("<IHHQ")
_ENTRY_HEADER_MIN_BYTES = 0x40
_PTX_TARGET = re.compile(r"^[^\S\n]*\.target\s+sm_(\d{1,4})([af]?)", re.MULTILINE)
# Atomic: a text of many comments must not be matched in many ways.
_PTX_START = re.compile(rb"(?>\s+|//[^\n]*\n|/\*.*?\*/)*+\.version\s", re.DOTALL)


Buffer = bytes | memoryview


class FatbinError(Exception):
    """The image is damaged, or not what it says it is. CUDA: CUDA_ERROR_INVALID_IMAGE."""


class NoPtxError(FatbinError):
    """The image is well-formed, but has no PTX for this device. CUDA: CUDA_ERROR_NO_BINARY_FOR_GPU."""


class EntryKind(IntEnum):
    PTX = 1
    ELF = 2


class EntryFlags(IntFlag):
    BITS_64 = 0x1
    DEBUG = 0x2
    LINUX = 0x10
    LZ4 = 0x2000
    ZSTD = 0x8000
    ARCHITECTURE_SPECIFIC = 0x100000
    """sm_90a: runs on that architecture only."""
    FAMILY_SPECIFIC = 0x200000
    """sm_100f: runs on that architecture and the later ones of the same major version."""


@record
class FatbinEntry:
    kind: int
    """An EntryKind, or a number that we have no name for."""
    sm: int
    """Architecture times ten, as nvcc spells it: 90 is compute capability 9.0."""
    flags: EntryFlags
    stored: Buffer
    """The payload as it lies in the container, without padding when it is compressed: a part of what was parsed."""
    uncompressed_bytes: int
    """What the entry says of itself; 0 when it is not compressed."""

    def payload(self) -> bytes:
        """The entry's content, decompressed. Raises FatbinError when it does not unpack to what the entry says."""
        if not self.flags & (EntryFlags.LZ4 | EntryFlags.ZSTD):
            return bytes(self.stored)
        if self.flags & EntryFlags.LZ4 and self.flags & EntryFlags.ZSTD:
            raise FatbinError("entry says that it is compressed in two ways")
        if not 0 < self.uncompressed_bytes <= MAX_PAYLOAD_BYTES:
            raise FatbinError(f"entry unpacks to {self.uncompressed_bytes} bytes, not within 1..{MAX_PAYLOAD_BYTES}")
        content = self._unpack_zstd() if self.flags & EntryFlags.ZSTD else self._unpack_lz4()
        if len(content) != self.uncompressed_bytes:
            raise FatbinError(f"entry unpacks to {len(content)} bytes and says {self.uncompressed_bytes}")
        return content

    def runs_on(self, capability: int) -> bool:
        """Whether a device of this capability (90 for 9.0) can run this entry, as PTX."""
        if self.flags & EntryFlags.ARCHITECTURE_SPECIFIC:
            return self.sm == capability
        if self.flags & EntryFlags.FAMILY_SPECIFIC:
            return self.sm <= capability and self.sm // 10 == capability // 10
        return self.sm <= capability

    def _unpack_zstd(self) -> bytes:
        import zstandard  # noqa: PLC0415 - most images need neither this nor LZ4, and a first launch waits for imports

        try:
            # The frame's own idea of its size decides what is allocated, whatever max_output_size says.
            frame_bytes = zstandard.frame_content_size(self.stored)
            if frame_bytes > self.uncompressed_bytes:
                raise FatbinError(f"Zstandard frame of {frame_bytes} bytes in an entry of {self.uncompressed_bytes}")
            return zstandard.ZstdDecompressor().decompress(self.stored, max_output_size=self.uncompressed_bytes)
        except zstandard.ZstdError as error:
            raise FatbinError(f"Zstandard: {error}") from error

    def _unpack_lz4(self) -> bytes:
        if self.uncompressed_bytes > _LZ4_MAX_RATIO * len(self.stored):
            raise FatbinError(f"{len(self.stored)} bytes of LZ4 cannot hold {self.uncompressed_bytes}")
        import lz4.block  # noqa: PLC0415

        try:
            content: bytes = lz4.block.decompress(self.stored, uncompressed_size=self.uncompressed_bytes)
        except (lz4.block.LZ4BlockError, ValueError) as error:
            raise FatbinError(f"LZ4: {error}") from error
        return content


@record
class Fatbin:
    entries: tuple[FatbinEntry, ...]


def parse(data: Buffer) -> Fatbin:
    """The container that `data` is, from its header to its last entry and not a byte more. Of a memoryview nothing is copied."""
    if len(data) < _HEADER.size:
        raise FatbinError(f"container of {len(data)} bytes, its header alone has {_HEADER.size}")
    magic, version, header_bytes, entries_bytes = _HEADER.unpack_from(data)
    if magic != HEADER_MAGIC:
        raise FatbinError(f"container's magic is {magic:#x}, not {HEADER_MAGIC:#x}")
    if version != 1:
        raise FatbinError(f"container of version {version}, known is 1")
    if header_bytes < _HEADER.size or header_bytes + entries_bytes != len(data):
        raise FatbinError(f"container says {header_bytes} + {entries_bytes} bytes and has {len(data)}")
    entries = []
    offset = header_bytes
    while offset < len(data):
        entry, offset = _parse_entry(data, offset)
        entries.append(entry)
    return Fatbin(tuple(entries))


def _parse_entry(data: Buffer, offset: int) -> tuple[FatbinEntry, int]:
    """The entry at `offset`, and where the next one begins."""
    left_bytes = len(data) - offset
    if left_bytes < _ENTRY_HEADER_MIN_BYTES:
        raise FatbinError(f"entry at {offset}: {left_bytes} bytes left, its header needs {_ENTRY_HEADER_MIN_BYTES}")
    (kind,) = struct.unpack_from("<H", data, offset)
    header_bytes, stored_bytes, compressed_bytes = struct.unpack_from("<IQI", data, offset + 0x4)
    (sm,) = struct.unpack_from("<I", data, offset + 0x1C)
    (flag_bits,) = struct.unpack_from("<Q", data, offset + 0x28)
    (uncompressed_bytes,) = struct.unpack_from("<Q", data, offset + 0x38)
    if not _ENTRY_HEADER_MIN_BYTES <= header_bytes <= left_bytes:
        raise FatbinError(f"entry at {offset}: header of {header_bytes} bytes, {left_bytes} are left")
    if stored_bytes > left_bytes - header_bytes:
        raise FatbinError(f"entry at {offset}: payload of {stored_bytes} bytes, {left_bytes - header_bytes} are left")
    flags = EntryFlags(flag_bits)
    used_bytes = stored_bytes
    if flags & (EntryFlags.LZ4 | EntryFlags.ZSTD):
        used_bytes = compressed_bytes
        if compressed_bytes > stored_bytes:
            raise FatbinError(f"entry at {offset}: {compressed_bytes} compressed bytes in a payload of {stored_bytes}")
    begin = offset + header_bytes
    entry = FatbinEntry(kind, sm, flags, data[begin : begin + used_bytes], uncompressed_bytes)
    return entry, begin + stored_bytes


def without_machine_code(data: Buffer) -> bytes:
    """The container with all of its PTX and, in place of each other entry, its header alone: what the image can run on, in little room."""
    fatbin = parse(data)
    entries = bytearray()
    for entry in fatbin.entries:
        is_ptx = entry.kind == EntryKind.PTX
        stored = bytes(entry.stored) + bytes(-len(entry.stored) % 8) if is_ptx else b""
        flags = entry.flags if is_ptx else entry.flags & ~(EntryFlags.LZ4 | EntryFlags.ZSTD)
        head = bytearray(_ENTRY_HEADER_MIN_BYTES)
        struct.pack_into("<HHIQI", head, 0, entry.kind, 0, len(head), len(stored), len(entry.stored) if is_ptx else 0)
        struct.pack_into("<I", head, 0x1C, entry.sm)
        struct.pack_into("<Q", head, 0x28, flags)
        struct.pack_into("<Q", head, 0x38, entry.uncompressed_bytes if is_ptx else 0)
        entries += head + stored
    return _HEADER.pack(HEADER_MAGIC, 1, _HEADER.size, len(entries)) + bytes(entries)


def select_ptx(image: bytes, capability: int, *, takes_newer: bool = False) -> str:
    """The PTX that a device of this capability (90 for 9.0) should compile: the newest of those it can run.

    `takes_newer`: where there is none, the oldest of those for newer devices, for a compiler that finds out by itself what it does not know.
    `image` is a container, PTX text (a trailing NUL is fine) or a cubin. Raises NoPtxError when it has no PTX for the
    device, with a sentence for the user who built the program, and FatbinError when it is damaged.
    """
    if image.startswith(ELF_MAGIC):
        raise NoPtxError(
            f"image is machine code ({_describe_elf(image)}) without PTX; build with -gencode code=compute_NN"
        )
    if _PTX_START.match(image):
        return _ptx_text(image) if takes_newer else _select_bare_ptx(image, capability)
    ptx_entries = [entry for entry in parse(image).entries if entry.kind == EntryKind.PTX]
    usable = [entry for entry in ptx_entries if entry.runs_on(capability)]
    # Of two for the same architecture (sm_90 and sm_90a), the specific one was made for this very device, and for no other.
    if usable:
        best = max(usable, key=_architecture)
    elif ptx_entries and takes_newer:
        best = min(ptx_entries, key=_architecture)
    else:
        found = ", ".join(f"compute_{entry.sm}" for entry in ptx_entries) or "machine code only"
        raise NoPtxError(
            f"image has no PTX for sm_{capability} or older, it has {found}; build with -gencode code=compute_NN"
        )
    return _ptx_text(best.payload())


def _architecture(entry: FatbinEntry) -> tuple[int, bool]:
    return entry.sm, bool(entry.flags & (EntryFlags.ARCHITECTURE_SPECIFIC | EntryFlags.FAMILY_SPECIFIC))


def _select_bare_ptx(image: bytes, capability: int) -> str:
    text = _ptx_text(image)
    target = _PTX_TARGET.search(text)
    if target is None:
        raise FatbinError("PTX without a .target directive")
    sm, suffix = int(target[1]), target[2]
    flags = {"a": EntryFlags.ARCHITECTURE_SPECIFIC, "f": EntryFlags.FAMILY_SPECIFIC}.get(suffix, EntryFlags(0))
    if not FatbinEntry(EntryKind.PTX, sm, flags, image, 0).runs_on(capability):
        raise NoPtxError(f"PTX for sm_{sm}{suffix} on a device of sm_{capability}")
    return text


def _ptx_text(content: bytes) -> str:
    """PTX as text. Latin-1 maps each byte to one character: comments may hold anything, and columns stay right."""
    text = content.rstrip(b"\0").decode("latin-1")
    if "\0" in text:
        raise FatbinError(f"PTX with a NUL at byte {text.index(chr(0))} of {len(text)}")
    if not text.strip():
        raise FatbinError("PTX is empty")
    return text


def _describe_elf(image: bytes) -> str:
    if len(image) < 0x40:
        return "an ELF file cut short"
    (machine,) = struct.unpack_from("<H", image, 0x12)
    return "a cubin" if machine == ELF_MACHINE_CUDA else f"an ELF file for machine {machine}, not a GPU"
