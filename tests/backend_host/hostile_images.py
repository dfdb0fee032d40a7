"""Images that were written to hurt the worker that looks into them: `python -m tests.backend_host.hostile_images NAME` looks as a worker does.

Where a reader's time grew with the square of the text, or with how deep or wide it is, these take hours and more memory than there is.
"""

import contextlib
import itertools
import struct
import sys
from collections.abc import Callable

import zstandard

from backend_host.worker.binds import Bound, binds
from backend_host.worker.declarations import UNKNOWABLE_BYTES
from backend_host.worker.images import may_print
from backend_host.worker.kept_images import Images
from backend_host.worker.needs import needs_bytes
from backend_host.worker.variants import Reader, make
from cuda_api.fatbin import EntryFlags
from cuda_api.ptx.variants import RunsWholeError

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
MANY = 2_000_000
LESS = 1_000_000
"""In a text that is looked at in one go, where a larger one is left."""
KERNEL = ".visible .entry k() { ret; }\n"
CAPABILITY = 90
OWNER = (4, 1)


def body(*lines: str) -> str:
    """A kernel."""
    registers = ".reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %d<9>;"
    return HEAD + ".visible .entry k()\n{\n" + registers + "\n".join(lines) + "\nret;\n}\n"


def container(*entries: bytes) -> bytes:
    """A fat binary."""
    content = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def entry(payload: bytes, kind: int = 1, sm: int = 80, *, says_bytes: int = 0, flags: int = 0) -> bytes:
    """Of a container, packed where it says how large it is."""
    stored = payload + bytes(-len(payload) % 8 or 8)
    packed_bytes = len(payload) if flags else 0
    return (
        struct.pack(
            "<HHIQIIIIIIQQQ", kind, 0x101, 0x40, len(stored), packed_bytes, 0, 0, sm, 0, 0, flags, 0, says_bytes
        )
        + stored
    )


def bomb(nr_entries: int) -> bytes:
    """Each unpacks to a quarter of a gigabyte."""
    nr_bytes = 256 << 20
    packed = zstandard.ZstdCompressor(level=1).compress(bytes(nr_bytes))
    one = entry(packed, 2, CAPABILITY, says_bytes=nr_bytes, flags=EntryFlags.ZSTD)
    return container(*[one] * nr_entries)


def loops(nr: int) -> str:
    """Each within the one before, and each reads what others write."""
    heads = (f"L{i}: ld.volatile.global.u32 %r1, [%d1];" for i in range(nr))
    return body(*heads, *(f"@%p1 bra L{i};" for i in reversed(range(nr))))


def chain(nr: int) -> str:
    """Functions, each of which calls the next, the last one meets others."""
    calls = "".join(f".func f{i}() {{ call f{i + 1}, (); ret; }}\n" for i in range(nr))
    return f"{HEAD}.func f{nr}() {{ bar.sync 0; ret; }}\n{calls}.visible .entry k() {{ call f0, (); ret; }}\n"


def backwards(nr: int) -> str:
    """What each register is computed from stands behind it."""
    moves = (f"mov.u32 %q{i}, %q{i + 1};" for i in range(nr))
    return body(f".reg .b32 %q<{nr + 2}>;", "L:", *moves, f"ld.volatile.global.u32 %q{nr}, [%d1];", "@%p1 bra L;")


def swaps(nr: int) -> str:
    """In one loop."""
    return body(
        "L:", *itertools.repeat("mov.u32 %r1, %r2; atom.global.cas.b32 %r3, [%d1], %r4, %r5;", nr), "@%p1 bra L;"
    )


def forks(nr: int) -> str:
    """Each decided by what is set in the one behind it, so that one round finds one."""
    lines = (f"setp.eq.u32 %q{i}, %w{i + 1}, 0; @%q{i} bra E{i}; mov.u32 %w{i}, 1; E{i}:" for i in range(nr))
    return body(f".reg .pred %q<{nr}>; .reg .b32 %w<{nr + 1}>;", f"mov.u32 %w{nr}, %tid.x;", *lines, "bar.sync 0;")


def tables(nr: int) -> str:
    """Each branch may go to each label."""
    names = [f"L{i}" for i in range(nr)]
    return body(f"T: .branchtargets {', '.join(names)};", *(f"{name}: @%p1 brx.idx %r1, T;" for name in names))


def texts_in(nr: int) -> str:
    """A register that may have the address of any of so many texts, and as many that are made from it."""
    texts = "".join(f".global .b8 t{i}[4] = {{1, 2, 3, 0}};\n" for i in range(nr))
    taken = (f"mov.u64 %rd1, t{i};" for i in range(nr))
    return HEAD + texts + body(*taken, *(f"cvta.global.u64 %rd{i}, %rd1;" for i in range(2, nr))).removeprefix(HEAD)


TEXTS: dict[str, Callable[[], str]] = {
    "strings without an end": lambda: HEAD + '"' + '\\"' * MANY,
    "lines": lambda: ".version 8.0\n" + "\n" * MANY + "//\n" + HEAD + KERNEL,
    "comments without an end": lambda: HEAD + "/*" * MANY,
    "spaces": lambda: HEAD + ".global .align" + " " * MANY + ".b8 x; .global .align" + " " * MANY + "x",
    "names and spaces": lambda: HEAD + ".global .b8 " + ("x" + " " * 99) * (MANY // 100) + ";",
    "brackets": lambda: HEAD + ".global .b8 x" + "[" * MANY + ";",
    "braces": lambda: HEAD + ".global .b8 x[] = " + "{" * MANY + ";",
    "declarations": lambda: HEAD + ".global " * (MANY // 10),
    "functions": lambda: HEAD + ".func " * MANY,
    "less functions": lambda: HEAD + ".func " * LESS,
    "an array without an end": lambda: HEAD + ".global .b8 x[" + " " * LESS + ";",
    "texts in a register": lambda: texts_in(60_000),
    "results of functions": lambda: HEAD + ".func (" * MANY,
    "names of functions": lambda: HEAD + "".join(f".func f{i}();" for i in range(MANY // 8)),
    "names in lines": lambda: HEAD + "".join(f"mov.u64 %d1, f{i};\n" for i in range(MANY // 4)),
    "moves": lambda: HEAD + "mov.u64 " * MANY,
    "moves of nothing": lambda: HEAD + "mov.u64" + " " * MANY,
    "beginnings": lambda: HEAD + "=" * MANY,
    "names at the beginning": lambda: HEAD + ".global .b64 x[] = {" + ",".join(f"f{i}" for i in range(MANY)) + "};",
    "pointers": lambda: HEAD + ".ptr " * MANY + ".ptr" + " " * MANY,
    "digits of a type": lambda: HEAD + f".global .b{'9' * 5000} x[9];" + KERNEL,
    "digits of an alignment": lambda: HEAD + f".global .align {'9' * 5000} .b8 x[9];" + KERNEL,
    "digits of a target": lambda: HEAD.replace("80", "8" * 5000) + KERNEL,
    "digits of a version": lambda: f".version {'8' * 5000}.0\n.target sm_80\n" + KERNEL,
    "digits of a float": lambda: body(f"mov.f64 %d1, {'9' * MANY}.0;"),
    "a product": lambda: HEAD + ".global .b8 x[" + "*".join(["0xffffffffffffffff"] * 200_000) + "];" + KERNEL,
    "blocks": lambda: body("{" * 100_000 + "}" * 100_000),
    "loops in loops": lambda: loops(2000),
    "more loops in loops": lambda: loops(50_000),
    "a chain of calls": lambda: chain(20_000),
    "moves backwards": lambda: backwards(30_000),
    "swaps": lambda: swaps(10_000),
    "forks": lambda: forks(4000),
    "more forks": lambda: forks(40_000),
    "tables of labels": lambda: tables(50_000),
    "a branch to nowhere": lambda: body("brx.idx;", "bra;", "call;", "@%p1 brx.idx %r1, %r1;"),
    "instructions without operands": lambda: body("atom.cas.b32;", "st;", "ld;", "mov;", "setp;", "call 1;", "bra 1;"),
}
BEYOND = b"\x7fELF".ljust(0x28, b"\0") + b"\xff" * 8 + bytes(64)
IMAGES: dict[str, Callable[[], bytes]] = {
    "a table of sections beyond any memory": lambda: BEYOND,
    "sections of no file": lambda: b"\x7fELF" + b"\xff" * 4096,
    "what unpacks": lambda: bomb(400),
    "a lie about what unpacks": lambda: container(entry(b"\xff" * 64, says_bytes=1 << 62, flags=EntryFlags.ZSTD)),
    "packed in no way": lambda: container(entry(b"\xff" * 64, says_bytes=64, flags=EntryFlags.LZ4)),
    "digits beside a good one": lambda: container(
        entry(TEXTS["digits of a type"]().encode(), sm=70), entry((HEAD + KERNEL).encode())
    ),
    "a table of sections beside a good one": lambda: container(entry(BEYOND, 2, 90), entry((HEAD + KERNEL).encode())),
    "entries": lambda: container(entry(b"x", sm=10) * 20_000),
}


def same_bytes(kind: int, name: bytes) -> bytes:
    """Machine code of many sections, all of them the whole file."""
    nr, names = 60_000, 64
    table = names + 64
    file_bytes = table + nr * 64
    head = struct.pack("<16sHHI", b"\x7fELF\x02\x01", 2, 190, 1).ljust(0x28, b"\0")
    head += struct.pack("<QIHHHHHH", table, 0, 64, 0, 0, 64, nr, 0)
    first = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, names, 64, 0, 0, 0, 0)
    rest = struct.pack("<IIQQQQIIQQ", 0, kind, 2, 0, 0, file_bytes // 24 * 24, 0, 0, 1, 0)
    return head + name.ljust(64, b"\0") + first + rest * (nr - 1)


IMAGES |= {
    "tables of symbols": lambda: same_bytes(2, b".symtab"),
    "call graphs": lambda: same_bytes(1, b".nv.callgraph"),
    "constants of kernels": lambda: same_bytes(1, b".nv.constant2.k"),
    "names without an end": lambda: same_bytes(1, b"x" * 64),
    "packed machine code": lambda: container(
        *[
            entry(
                zstandard.compress(same_bytes(2, b".symtab")),
                2,
                CAPABILITY,
                says_bytes=3_840_128,
                flags=EntryFlags.ZSTD,
            )
        ]
        * 8
    ),
}
NAMES = [*TEXTS, *IMAGES]


def image_of(name: str) -> bytes:
    """The image of this name."""
    return TEXTS[name]().encode() + b"\0" if name in TEXTS else IMAGES[name]()


def look(image: bytes) -> None:
    """As a worker does when it is loaded, and when a kernel of it is launched with many blocks. An exception is a fault of ours."""
    assert may_print(image, CAPABILITY) in (False, True)
    for is_exact in (False, True):
        assert 0 <= needs_bytes(image, CAPABILITY, is_exact=is_exact) <= UNKNOWABLE_BYTES
    assert binds(image, CAPABILITY) in Bound(31)
    images, reader = Images(), Reader()
    images.keep(OWNER, image)
    for is_persistent in (False, True):
        with contextlib.suppress(RunsWholeError):
            source = reader.read(images.of(OWNER), "k", CAPABILITY)
            make(source, is_persistent=is_persistent, addresses=dict.fromkeys(source.used.globals, 4096))


if __name__ == "__main__":
    look(image_of(sys.argv[1]))
