"""
What in a module image may make its program depend on addresses that the driver chose for the module. Replay does not move such a program: it
loads the image again, somewhere else, and copies memory as it is.

VARIABLES   global and constant memory of the module whose address a kernel may store, or in which it may leave something. Not those of which
            PTX says that no kernel does (uses.py): of what the program itself is told the worker keeps a table (client/told.h)
FUNCTIONS   a function whose address is taken, a table of such, a call by an address
HEAP        malloc, free and new in kernels
NESTED      kernels that launch kernels
IMAGES      too large, damaged, of a form that we do not know, or with nothing for a device of this capability but code for link-time
            optimisation

The answer may be wrong in one direction only: a bit without a reason. These do not count, as no address of theirs can be in memory, or nobody
uses it: shared and local memory; parameters (bank 0 of constant memory), numbers and jump tables of the compiler's (bank 2), addresses that
kernels load from where the driver wrote them (bank 4); variables of one byte in the namespaces of NVIDIA's headers, which have no value
(cuda::std::ignore); the tables of the math library for sin and its like, which only that reads.

What machine code does with a variable's address is not decoded. Nor do relocations tell: a kernel finds the address of constant memory without
one. So PTX for the same architecture beside it has to stand for it, by the names of the variables: the code is taken to be compiled from that,
as nvcc does. Wrong where a container was put together by hand: replay then moves a program whose kernels keep such an address, and they find
nothing there. Where a compiler spills an address to is local memory, which ends with the kernel.

In machine code that was compiled as a whole, as nvcc does without -rdc, a function's address is a number by which a kernel finds it in its own
bank 2, the same after a move. That is this compiler's way, so such a bank counts all the same.

Images are hostile. Bounds on time and memory are those of images.py, whose thread looks into large ones.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from enum import IntFlag

from backend_host.worker.declarations import variables, without_asides
from backend_host.worker.images import (
    LEAST_BYTES_FOR_THREAD,
    MAX_IMAGE_BYTES,
    MAX_UNPACKED_BYTES,
    Aside,
    entries_for,
    unpacked_bytes,
)
from backend_host.worker.uses import Uses
from cuda_api.cubin import (
    COMMON_SECTION,
    MAX_SECTIONS,
    SYMBOL_TABLE,
    CubinError,
    Section,
    SymbolKind,
    are_apart,
    bytes_of,
    name_at,
    sections,
    symbols,
)
from cuda_api.fatbin import ELF_MAGIC, Buffer, EntryKind, FatbinEntry, FatbinError
from cuda_api.image_set import split
from cuda_api.record import record


class Bound(IntFlag):
    """Those of enum fgw_bound (page/layout.h) that an image has."""

    VARIABLES = 1 << 0
    FUNCTIONS = 1 << 1
    HEAP = 1 << 2
    NESTED = 1 << 3
    IMAGES = 1 << 4


UNKNOWN = 1 << 31
"""FGW_BOUND_UNKNOWN of calls/bound.h."""
NOTHING = Bound(0)
_PLACEHOLDER_BYTES = 1
_STATIC = rb"(?:__nv_static_\w*_)?"
"""Before the name of a variable of one file, in machine code that is to be linked."""
_PLACEHOLDER = re.compile(_STATIC + rb"_ZN.*(?:4cuda|6thrust|3cub|4cute|7cutlass).*", re.DOTALL)
_TABLE = re.compile(rb"__cudart_(?:i2opi_[df]|sin_cos_coeffs)")
_HEAP = r"malloc|free|__nv_aligned_device_malloc|__cuda_syscall_(?:aligned_)?malloc|__cuda_syscall_free|__cudaCDP2?(?:Malloc|Free)"
_NESTED = r"(?:__cudaCDP|__cuda_syscall_cnp|cudaLaunchDevice|cudaGetParameterBuffer)\w*"


@record
class _Found:
    """In an entry."""

    bits: Bound
    variables: frozenset[bytes] = frozenset()
    """Names of those that count."""
    free: frozenset[bytes] = frozenset()
    """Of these the ones of which PTX says that no kernel keeps their address."""


_UNREADABLE = _Found(Bound.IMAGES)


def _counts(name: bytes, nr_bytes: int) -> bool:
    """Whether a variable does."""
    return not (_TABLE.fullmatch(name) or (nr_bytes <= _PLACEHOLDER_BYTES and _PLACEHOLDER.fullmatch(name)))


# ---- machine code ----

_VARIABLES = re.compile(rb"\.nv\.global(?:\..*)?|\.nv\.constant(?!4$)\d+", re.DOTALL)
"""Sections of a module's variables: bank 3 of constant memory as a rule. Bank 4 is the driver's own table."""
_OF_KERNEL = re.compile(rb"\.nv\.constant[1-9]\d*\..+", re.DOTALL)
"""Bank 2 of a kernel: numbers, places to jump to, and the functions that it calls by their addresses."""
_SHARED_TABLES = (b".nv.uft", b".nv.udt")
"""Functions and variables by which modules share them."""
_NAME_BYTES = 64
"""Of a section, enough to know its kind."""
_HEAP_NAME, _NESTED_NAME = re.compile(_HEAP.encode()), re.compile(_NESTED.encode())
_CALL_GRAPH = b".nv.callgraph"
_CALLS = 0xFFFFFFFF
"""A call graph has zones, which begin with -1: who calls whom; -2: whose address is taken; -3: who calls by an address; -4: who takes whose."""
_FIRST_ZONE = 0xFFFFFF00


def _of_machine_code(content: bytes) -> _Found:
    try:
        table = sections(content)
        names = [name_at(content, section.name_at, _NAME_BYTES) for section in table]
        graphs = [section for section, name in zip(table, names, strict=True) if name == _CALL_GRAPH]
        banks = [section for section, name in zip(table, names, strict=True) if _OF_KERNEL.fullmatch(name)]
        tables = [section for section in table if section.kind == SYMBOL_TABLE]
        if len(table) >= MAX_SECTIONS or not are_apart(content, [*graphs, *banks, *tables]):
            return _UNREADABLE
        bits, counted, functions = _of_symbols(content, table, names)
        if (
            not graphs
            or any(_has_indirect_calls(bytes_of(content, graph)) for graph in graphs)
            or any(_has_functions(content, bank, functions) for bank in banks)
        ):
            bits |= Bound.FUNCTIONS
    except CubinError:
        return _UNREADABLE
    if any(name.startswith(_SHARED_TABLES) and section.nr_bytes for section, name in zip(table, names, strict=True)):
        bits |= Bound.FUNCTIONS | Bound.VARIABLES
    return _Found(bits, frozenset(counted))


def _has_indirect_calls(graph: bytes) -> bool:
    zone = _CALLS
    for _, callee in struct.iter_unpack("<II", graph[: len(graph) // 8 * 8]):
        if callee >= _FIRST_ZONE:
            zone = callee
        elif zone != _CALLS:
            return True
    return False


def _of_symbols(
    content: bytes, table: list[Section], names: list[bytes]
) -> tuple[Bound, set[bytes], dict[int, set[int]]]:
    """Bits, the names of variables that count, and for each section where functions begin in it."""
    bits = NOTHING
    counted: set[bytes] = set()
    left = {i: section.nr_bytes for i, section in enumerate(table) if _VARIABLES.fullmatch(names[i])}
    functions: defaultdict[int, set[int]] = defaultdict(set)
    for symbol in symbols(content, table):
        if symbol.kind == SymbolKind.SECTION:
            continue
        name = name_at(content, symbol.name_at)
        if symbol.section in left or symbol.section == COMMON_SECTION:
            if _counts(name, symbol.nr_bytes):
                counted.add(name)
            if symbol.section in left:
                left[symbol.section] -= symbol.nr_bytes + table[symbol.section].alignment
        elif symbol.kind == SymbolKind.FUNCTION and symbol.section:
            functions[symbol.section].add(symbol.value)
        bits |= Bound.HEAP if _HEAP_NAME.fullmatch(name) else NOTHING
        bits |= Bound.NESTED if _NESTED_NAME.fullmatch(name) else NOTHING
    if any(nr_bytes > 0 for nr_bytes in left.values()):
        bits |= Bound.VARIABLES  # memory that no name tells of
    return bits, counted, functions


def _has_functions(content: bytes, section: Section, functions: dict[int, set[int]]) -> bool:
    """Whether constant memory of a kernel has where a function begins that was compiled into it, behind its own code."""
    begins = functions.get(section.info, set()) - {0}
    words = bytes_of(content, section) if begins else b""
    return any(word in begins for (word,) in struct.iter_unpack("<I", words[: len(words) // 4 * 4]))


# ---- PTX ----

_SLICE_BYTES = 1 << 20
"""At one go: regular expressions do not let go of the interpreter, which the worker's loop needs for the next image."""
_MAX_SLICE_BYTES = 8 << 20
_MAX_NAMES = 1 << 18
_PTX_START = b".version"
_PARTS_OF_NAMES = ("alloc", "free", "cudaCDP", "_cnp", "cudaLaunchDevice", "cudaGetParameterBuffer")
_HEAP_CALL = re.compile(rf"(?<![\w$.%])(?:{_HEAP})(?![\w$])")
_NESTED_CALL = re.compile(rf"(?<![\w$.%]){_NESTED}")
_INDIRECT = re.compile(r"\.(?:callprototype|calltargets|unified)\b")
_FUNCTION = re.compile(r"\.(?:func|entry)\b\s*+(?:\.\w++\s*+){0,8}+(?:\([^()]*+\)\s*+)?+([A-Za-z_$%][\w$]*+)")
_MOVED = re.compile(r"mov(?<![\w.$%]mov)\.[a-z]\d++\s++[^,;]{1,200},\s*+([A-Za-z_$][\w$]*+)")
_BEGINNING = re.compile(r"=([^;]*+)")
_NAME = re.compile(r"(?<![\w.$%])[A-Za-z_$][\w$]*+")


def _of_ptx(content: bytes) -> _Found:
    bits = NOTHING if _PTX_START in content[:_SLICE_BYTES] else Bound.IMAGES
    uses = Uses()
    counted: set[str] = set()
    functions: set[str] = set()
    taken: set[str] = set()
    for piece in _slices(content):
        text = without_asides(piece.decode("latin-1"))
        if len(piece) > _MAX_SLICE_BYTES or len(counted) + len(functions) + len(taken) > _MAX_NAMES or "#" in text:
            return _UNREADABLE  # the latter of the preprocessor, whose macros would have to be expanded; no compiler writes any
        counted.update(name for name, nr_bytes in variables(text) if _counts(name.encode("latin-1"), nr_bytes))
        uses.take(text)
        if any(part in text for part in _PARTS_OF_NAMES):  # which is quick, and seldom so
            bits |= Bound.HEAP if _HEAP_CALL.search(text) else NOTHING
            bits |= Bound.NESTED if _NESTED_CALL.search(text) else NOTHING
        bits |= Bound.FUNCTIONS if _INDIRECT.search(text) else NOTHING
        functions.update(match[1] for match in _FUNCTION.finditer(text))
        taken.update(match[1] for match in _MOVED.finditer(text))
        taken.update(name[0] for begin in _BEGINNING.finditer(text) for name in _NAME.finditer(begin[1]))
    uses.end()
    bits |= Bound.FUNCTIONS if functions & taken else NOTHING
    return _Found(bits, _encoded(counted), _encoded(counted & (uses.constants | uses.texts)))


def _encoded(names: set[str]) -> frozenset[bytes]:
    return frozenset(name.encode("latin-1") for name in names)


def _slices(content: bytes) -> Iterator[bytes]:
    """The text, cut between statements."""
    begin = 0
    while begin < len(content):
        end = content.find(b";\n", begin + _SLICE_BYTES) + 2
        end = end if end >= 2 else len(content)
        yield content[begin:end]
        begin = end


# ---- images ----


def binds(image: Buffer, capability: int) -> Bound:
    """Of an image, or of several that are linked with each other, for a device of this capability (90 for 9.0)."""
    if len(image) > MAX_IMAGE_BYTES:
        return Bound.IMAGES
    try:
        parts = _parts(image, capability)
        if unpacked_bytes(entry for part in parts for entry in part) > MAX_UNPACKED_BYTES:
            return Bound.IMAGES
        bits = NOTHING if any(parts) else Bound.IMAGES
        for part in parts:
            bits |= _of_part(part)
    except FatbinError:
        return Bound.IMAGES
    return bits


def _of_part(entries: list[FatbinEntry]) -> Bound:
    """Of entries that were compiled from one text. Raises FatbinError."""
    found = [(entry, _of_entry(entry)) for entry in entries]
    texts = [(entry.sm, each.free) for entry, each in found if entry.kind == EntryKind.PTX]
    bits = NOTHING
    for entry, each in found:
        free = [names for sm, names in texts if sm == entry.sm]
        is_free = not each.variables or (bool(free) and all(each.variables <= names for names in free))
        bits |= each.bits | (NOTHING if is_free else Bound.VARIABLES)
    return bits


def _entries(image: Buffer, capability: int) -> list[FatbinEntry]:
    """Code that a device of this capability may run. Raises FatbinError."""
    return [entry for part in _parts(image, capability) for entry in part]


def _parts(image: Buffer, capability: int) -> list[list[FatbinEntry]]:
    """The same, of each image of several. Raises FatbinError."""
    try:
        parts = [entries_for(image, capability)]
    except FatbinError:
        parts = [entries_for(part, capability) for part in split(bytes(image))]
    return [[entry for entry in part if entry.kind in (EntryKind.PTX, EntryKind.ELF)] for part in parts]


def _of_entry(entry: FatbinEntry) -> _Found:
    content = entry.payload()
    if content[:4] == ELF_MAGIC:
        return _of_machine_code(content)
    return _of_ptx(content) if entry.kind == EntryKind.PTX else _UNREADABLE


_PARTS_OF_NESTED = (b"cudaCDP", b"_cnp", b"cudaLaunchDevice", b"cudaGetParameterBuffer")
"""Of all names that NESTED is found by."""


def nests(image: Buffer, capability: int) -> bool:
    """Whether kernels of an image launch kernels, as far as it can be read. Only one that has a part of such a name is looked into."""
    if len(image) > MAX_IMAGE_BYTES:
        return False
    try:
        entries = _entries(image, capability)
        if unpacked_bytes(entries) > MAX_UNPACKED_BYTES:
            return False
        contents = (bytes(entry.payload()) for entry in entries)
        is_named = any(part in content for content in contents for part in _PARTS_OF_NESTED)
    except FatbinError:
        return False
    return is_named and Bound.NESTED in binds(image, capability)


class Binder:
    """Looks into the images of one program."""

    def __init__(self, tell: Callable[[int, int], None], aside: Aside) -> None:
        """`tell` is called by the thread, once for each image that is UNKNOWN, with its ticket and its bits."""
        self._tell = tell
        self._aside = aside

    def look(self, image: Buffer, capability: int, ticket: int) -> int:
        """Bits, or UNKNOWN. `image` is not kept."""
        try:
            cost_bytes = unpacked_bytes(_entries(image, capability)) if len(image) <= MAX_IMAGE_BYTES else 0
        except FatbinError:
            return Bound.IMAGES
        if cost_bytes <= LEAST_BYTES_FOR_THREAD or cost_bytes > MAX_UNPACKED_BYTES:
            return binds(image, capability)
        kept = bytes(image)
        is_taken = self._aside.take(lambda: self._find_out(kept, capability, ticket), len(kept) + cost_bytes)
        return UNKNOWN if is_taken else Bound.IMAGES

    def _find_out(self, image: bytes, capability: int, ticket: int) -> None:
        try:
            bits = binds(image, capability)
        except Exception:
            bits = Bound.IMAGES  # there was no memory, say
        self._tell(ticket, bits)
