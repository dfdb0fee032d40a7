"""Short programs of what the daemon does beside records: it hands over clients whose region makes no sense, has memory leave the device and
come back, and sends pieces of the window, shared memory and other pages."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from tests.fuzz.inputs import (
    BELLS,
    FIRST,
    MEMORY,
    OF_ASSIGNMENT,
    OF_ENTRY,
    OWN_PAGE,
    SPAN,
    Record,
    Taking,
    Told,
)

ROOM, SUSPEND, QUOTA, PAGE, TIME, MESSAGE = range(6)
"""As enum fuzz_word."""
CLIENT, VGPU, SLOT, DEVICE, REGION_BYTES, TABLE, NR_BELLS, REGION_FILE = range(8)
"""As enum fuzz_assigned."""
MIB = 1 << 20
ALL = (1 << 64) - 1
STEP = 2 * MIB
KEY = 0x5A5A5A5A5A5A5A5A
"""Each word that the worker draws by chance."""
WORK = Record("cuMemsetD8Async", {"dstDevice": MEMORY, "N": 64, "hStream": FIRST}, rounds=3)
WAIT = Record("cuCtxSynchronize", rounds=3)
LOOK = Record("cuMemGetInfo_v2", rounds=3)
LATER = Told(TIME, (20_000_000,), rounds=3)
NOTHING_IN = Told(ROOM, (4 * MIB, 1 << 30, 0), rounds=3)
ALL_IN = Told(ROOM, (4 * MIB, 1 << 30, ALL), rounds=3)
LOOKS: list[Record | Told] = [LOOK, LATER] * 6
FOUND, OTHER_PAGE = 4, 5
"""Words of the shelf's messages."""


def entry(offset: int, nr_bytes: int, value: int) -> list[Taking]:
    return [Taking([(OF_ENTRY + offset, nr_bytes, value)])]


def assigned(*values: tuple[int, int]) -> list[Taking]:
    return [Taking([(OF_ASSIGNMENT + which, 8, value) for which, value in values])]


def message(word: int, key: tuple[int, int], nr_bytes: int, nr_files: int) -> Told:
    return Told(MESSAGE, (nr_files, 4096), struct.pack("<4Q", word, *key, nr_bytes))


def piece(window: int, offset: int, nr_bytes: int, nr_files: int = 1) -> Told:
    return Told(MESSAGE, (nr_files, nr_bytes), struct.pack("<3Q", window, offset, nr_bytes))


def allocations(*sizes_mib: int) -> list[Record]:
    return [Record("cuMemAlloc_v2", {"bytesize": size * MIB}) for size in sizes_mib]


def asked(call: str, fields: Mapping[str, object]) -> list[Record | Told]:
    """What the worker asks the shelf for, and again once that has answered."""
    return [Record(call, fields, rounds=3), Record(call, fields, rounds=3), LATER]


def shared(step: int) -> list[Record | Told]:
    return [Record("ipc_export", {"address": MEMORY + step * STEP}, rounds=3), LATER]


BUFFER = {"bytes": 2 * STEP, "is_shareable": 1}
DAEMON_PROGRAMS: Mapping[str, tuple[int, Sequence[Record | Taking | Told]]] = {
    "entry: address": (0, entry(24, 8, 0x1000)),
    "entry: taken address": (0, entry(24, 8, 0x10007FFF8000)),
    "entry: ring": (0, entry(40, 8, ALL)),
    "entry: ring's size": (0, entry(72, 4, 3)),
    "entry: overlap": (0, entry(56, 8, 0)),
    "entry: chunks": (0, entry(80, 4, 0)),
    "header: version": (0, [Taking([(8, 4, 1)])]),
    "header: magic": (0, [Taking([(0, 8, 1)])]),
    "header: heap": (0, [Taking([(56, 8, ALL)])]),
    "given: short region": (0, assigned((REGION_BYTES, 1 << 40))),
    "given: no region": (0, assigned((REGION_FILE, 1))),
    "given: another file": (0, assigned((REGION_FILE, 0), (REGION_BYTES, 4096))),
    "given: client": (0, assigned((CLIENT, 1 << 20))),
    "given: free client": (0, assigned((CLIENT, 5))),
    "given: vgpu": (0, assigned((VGPU, 9))),
    "given: slot": (0, assigned((SLOT, 1))),
    "given: table": (0, assigned((TABLE, 7))),
    "given: device": (0, [*assigned((DEVICE, 1)), WORK, WAIT]),
    "bells": (BELLS, [WORK, WAIT]),
    "bells: of none": (BELLS, [*entry(152, 4, 0), WORK, WAIT]),
    "bells: too many": (BELLS, [*assigned((NR_BELLS, 99)), WORK, WAIT]),
    "bells: no vector": (BELLS, [*entry(156, 4, 77), WORK, WAIT]),
    "pages": (
        OWN_PAGE,
        [WORK, WAIT, Told(PAGE, (1, 1)), WORK, WAIT, Told(PAGE, (1, 0)), Told(PAGE, (99, 0)), Told(PAGE, (0, 0)), WORK],
    ),
    "span": (
        SPAN,
        [
            *allocations(1, 4, 3),
            Record("cuMemAlloc_v2", {"bytesize": 1 << 40}),
            WORK,
            Record("cuMemFree_v2", {"dptr": MEMORY + STEP}),
            Record("cuMemFree_v2", {"dptr": MEMORY + STEP}),
            Record("cuMemFree_v2", {"dptr": MEMORY + 4096}),
            *allocations(2),
            Record("span_open", {"address": MEMORY, "bytes": 1 << 34}),
            LOOK,
        ],
    ),
    "room": (
        SPAN,
        [
            *allocations(4, 2, 16),
            WORK,
            WAIT,
            *[NOTHING_IN, LATER] * 6,
            WORK,
            *[ALL_IN, LATER] * 6,
            WAIT,
            *[NOTHING_IN, LATER] * 6,
            Record("cuMemFree_v2", {"dptr": MEMORY + STEP}),
            *allocations(2),
            *[ALL_IN, LATER] * 6,
            Told(ROOM, (0, 0, 0), rounds=3),
            WORK,
            LOOK,
            WAIT,
        ],
    ),
    "suspension": (
        SPAN,
        [
            *allocations(4, 2),
            WORK,
            WAIT,
            *[Told(SUSPEND, (1,), rounds=3), LATER] * 4,
            WORK,
            *LOOKS,
            WAIT,
            Told(SUSPEND, (1,), rounds=3),
            Told(SUSPEND, (0,), rounds=3),
            LOOK,
            Record("context_destroy", {"handle": FIRST}, rounds=3),
        ],
    ),
    "quota": (SPAN, [Told(QUOTA, (STEP,)), *allocations(4), Told(QUOTA, (0,)), *allocations(4), LOOK]),
    "sharing": (
        SPAN,
        [
            *allocations(4),
            LATER,
            Record("ipc_export", {"address": MEMORY + STEP}, rounds=3),
            Record("ipc_export", {"address": MEMORY + STEP + 64}, rounds=3),
            LATER,
            *asked("ipc_open", {"key": [KEY, KEY], "may_be_own": 1}),
            *asked("ipc_open", {"key": [1, 2]}),
            Record("ipc_open", {"key": [1, 2]}),
            message(FOUND, (1, 2), STEP, 1),
            Record("ipc_open", {"key": [1, 2]}),
            Record("ipc_close", {"address": MEMORY + 3 * STEP}, rounds=3),
            Record("cuMemFree_v2", {"dptr": MEMORY + STEP}, rounds=3),
            WORK,
            WAIT,
        ],
    ),
    "shared pools": (
        SPAN,
        [
            LATER,
            Record("cuMemPoolCreate", {"handle": 5, "is_shareable": 1}),
            Record("cuMemAllocFromPoolAsync", {"pool": 5, "stream": FIRST, "bytes": 4096}),
            Record("cuMemAllocFromPoolAsync", {"pool": 5, "stream": FIRST, "bytes": 3 * MIB}),
            *shared(1),
            *shared(2),
            *shared(3),
            *asked("ipc_open", {"key": [KEY, KEY], "may_be_own": 1}),
            *(Record("cuMemFreeAsync", {"address": MEMORY + n * STEP, "stream": FIRST}) for n in (1, 2, 3)),
            Record("cuMemPoolTrimTo", {"pool": 5}),
            Record("cuMemPoolDestroy", {"pool": 5}),
            WAIT,
        ],
    ),
    "shared physical memory": (
        SPAN,
        [
            LATER,
            Record("cuMemCreate", {"handle": 4, **BUFFER}),
            Record("physical_export", {"handle": 4}, rounds=3),
            LATER,
            *asked("physical_import", {"handle": 5, "key": [KEY, KEY]}),
            Record("physical_import", {"handle": 6, "key": [1, 2]}),
            message(FOUND, (1, 2), 2 * STEP, 1),
            Record("physical_import", {"handle": 6, "key": [1, 2]}),
            *(Record("cuMemRelease", {"handle": number}) for number in (4, 5, 6)),
        ],
    ),
    "window": (
        0,
        [
            piece(64 * MIB, 0, 16 * MIB),
            Record("window_map", {"needed_bytes": 16 * MIB}),
            piece(64 * MIB, 16 * MIB, 16 * MIB),
            piece(32 * MIB, 32 * MIB, 16 * MIB),
            piece(64 * MIB, 32 * MIB, 16 * MIB, 0),
            piece(64 * MIB, 8 * MIB, 16 * MIB),
            piece(64 * MIB, 32 * MIB, 16 * MIB, 4),
            Record("window_map", {"needed_bytes": 64 * MIB}),
            Told(MESSAGE, (0,), b"what no worker understands"),
            message(OTHER_PAGE, (0, 0), 0, 2),
            message(FOUND, (0, 0), 0, 0),
            Record("window_map", {"needed_bytes": 64 * MIB}),
            WAIT,
        ],
    ),
}
"""With the flags that each needs."""
