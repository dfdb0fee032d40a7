"""The checker: step.c and search.c, built where they are first asked for, behind plain Python data.

They are C because three workers have millions of states; what they do is data from programs.py.
"""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from backend_host.worker.build_ffi import WARNINGS
from tests.model.assemble import OUTCOMES, Program, assemble
from tests.model.programs import FUNCTIONS, Function

MAX_WORKERS = 3
MAX_TARGETS = 5
MAX_SUCCESSORS = 64
MAX_RENAMINGS = 6
MAX_TRACE = 1000
NO_CHOICE = 255
OPS = {op: number for number, op in enumerate(OUTCOMES)}
SETS = {"users": 0, "waiting": 1, "members": 2}
WHO = {"own": 0, "slot": 1, "holder": 2}
KINDS = {"fair": 0, "timed": 1, "free": 2}
FLAGS = {"passes over": 1, "evicts": 2, "ignores sequence": 4, "keeps sequence": 8, "trusts no death": 16}
REGISTERS = {"word": 1, "kept": 2, "next": 4, "number": 8, "bell": 16}
FAULTS = (
    "",
    "workers of two vGPUs are inside",
    "a living worker's bit is gone",
    "the grant goes to a vGPU of which nobody waits",
    "the grant goes on under the same sequence number",
    "a worker waits for ever",
)
PHASES = ("out", "waiting", "in", "leaving")


class CInstruction(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint8) for name in ("op", "set", "who", "word", "flags", "live", "nr_to", "reserved")),
        ("to", ctypes.c_uint16 * MAX_TARGETS),
        ("kinds", ctypes.c_uint8 * MAX_TARGETS),
    ]


class CWord(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint8) for name in ("holder", "is_closed", "is_stale")]


class CProcess(ctypes.Structure):
    _fields_ = [
        ("pc", ctypes.c_uint16),
        *((name, ctypes.c_uint8) for name in ("next", "slot", "is_user", "is_waiting", "is_rung", "is_evicted")),
        ("words", CWord * 2),
    ]


class CState(ctypes.Structure):
    _fields_ = [
        ("holder", ctypes.c_uint8),
        ("is_closed", ctypes.c_uint8),
        ("sets", ctypes.c_uint8 * 3),
        *((name, ctypes.c_uint8) for name in ("unknown", "nr_deaths", "reserved")),
        ("processes", CProcess * (MAX_WORKERS + 1)),
    ]


class CNames(ctypes.Structure):
    _fields_ = [("numbers", ctypes.c_uint8 * (MAX_WORKERS + 1)), ("sets", ctypes.c_uint8 * (1 << MAX_WORKERS))]


class CRenaming(ctypes.Structure):
    _fields_ = [("workers", CNames), ("vgpus", CNames)]


class CSetting(ctypes.Structure):
    _fields_ = [
        ("nr_workers", ctypes.c_uint8),
        ("nr_vgpus", ctypes.c_uint8),
        ("vgpu_of", ctypes.c_uint8 * MAX_WORKERS),
        ("rank", ctypes.c_uint8 * MAX_WORKERS),
        *(
            (name, ctypes.c_uint8)
            for name in ("nr_deaths", "can_daemon_die", "can_daemon_return", "can_return", "is_giving_checked")
        ),
        *((name, ctypes.c_uint16) for name in ("worker", "daemon", "gone", "nr_renamings")),
        ("renamings", CRenaming * MAX_RENAMINGS),
        ("program", ctypes.POINTER(CInstruction)),
    ]


class CSuccessor(ctypes.Structure):
    _fields_ = [
        ("state", CState),
        ("pc", ctypes.c_uint16),
        *((name, ctypes.c_uint8) for name in ("process", "choice", "kind", "is_death", "fault")),
    ]


class CFound(ctypes.Structure):
    _fields_ = [
        ("nr_states", ctypes.c_uint64),
        ("nr_steps", ctypes.c_uint64),
        *((name, ctypes.c_uint8) for name in ("fault", "is_whole")),
        ("phases", ctypes.c_uint8 * 4 * 4),
        ("at", ctypes.c_uint32),
        ("nr_trace", ctypes.c_uint32),
    ]


class NoMemoryError(Exception):
    """The states do not fit the memory."""


@cache
def library() -> ctypes.CDLL:
    """Builds the checker for this process."""
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "model.so"
        sources = [str(here / name) for name in ("step.c", "successors.c", "pack.c", "search.c")]
        command = ["gcc", *WARNINGS, "-O3", "-flto", f"-I{here}", "-shared", "-fPIC", "-o", str(built), *sources]
        subprocess.run(command, check=True)
        loaded = ctypes.CDLL(str(built))
    loaded.model_begin.restype = None
    loaded.model_successors.restype = ctypes.c_uint32
    loaded.model_search.restype = ctypes.c_bool
    loaded.model_search.argtypes = [
        ctypes.POINTER(CSetting),
        ctypes.c_uint64,
        ctypes.c_bool,
        ctypes.POINTER(CFound),
        ctypes.POINTER(CSuccessor),
        ctypes.c_uint32,
    ]
    return loaded


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What takes part. `vgpu_of` has the vGPU of each worker; `rank`, where it is given, orders the vGPUs, and else any may be chosen.

    `may` has what else may happen: "cancels" (who waits gives up), "ends" (a worker detaches), "evictions", "daemon dies", "daemon returns"
    (to the same page), "workers return" (a slot is given out again). With `is_timed`, who sleeps wakes at last by itself, and a turn grows
    old; without, only a bell wakes.
    """

    vgpu_of: tuple[int, ...] = (0, 1, 2)
    rank: tuple[int, ...] = ()
    nr_deaths: int = 0
    may: Collection[str] = ()
    is_timed: bool = True
    is_giving_checked: bool = False
    functions: Mapping[str, Function] = field(default_factory=lambda: FUNCTIONS)


@dataclass(frozen=True)
class Found:
    """`fault` is empty when there is none; `changes` are the changes of phase that were seen."""

    nr_states: int
    nr_steps: int
    is_whole: bool
    fault: str
    trace: Sequence[CSuccessor]
    changes: frozenset[tuple[str, str]]


def renamings(setting: Setting) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """How workers and vGPUs may be renamed so that nothing else changes: new names by old ones. The first changes none."""
    workers = range(len(setting.vgpu_of))
    found = []
    for names in itertools.permutations(workers):
        pairs = {(setting.vgpu_of[worker], setting.vgpu_of[names[worker]]) for worker in workers}
        vgpus = dict(pairs)
        is_one_to_one = len(pairs) == len(vgpus) == len(set(vgpus.values()))
        if is_one_to_one and (not setting.rank or names == tuple(workers)):
            rest = range(MAX_WORKERS)
            found.append((names + tuple(rest[len(names) :]), tuple(vgpus.get(vgpu, vgpu) for vgpu in rest)))
    return found


class Model:
    """One setting, ready to be searched or to be stepped through."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        nr_vgpus = max(setting.vgpu_of) + 1
        names = renamings(setting)
        self.program: Program = assemble(setting.functions, setting.may)
        instructions = self.program.instructions
        if len(instructions) >= 512:
            raise ValueError(f"{len(instructions)} instructions are too many for 9 bits")
        self._table = (CInstruction * len(instructions))()
        for one, row in zip(instructions, self._table, strict=True):
            doing = one.doing
            row.op, row.set, row.who = OPS[doing.op], SETS[doing.set], WHO[doing.who]
            row.word, row.nr_to = doing.word, len(one.to)
            row.flags = sum(FLAGS[flag] for flag in doing.flags)
            row.live = sum(REGISTERS[name] for name in one.live)
            row.to[: len(one.to)] = one.to
            row.kinds[: len(doing.kinds)] = [KINDS[kind] for kind in doing.kinds]
        self._setting = CSetting(
            nr_workers=len(setting.vgpu_of),
            nr_vgpus=nr_vgpus,
            vgpu_of=_bytes(setting.vgpu_of),
            rank=_bytes(setting.rank),
            nr_deaths=setting.nr_deaths,
            can_daemon_die="daemon dies" in setting.may,
            can_daemon_return="daemon returns" in setting.may,
            can_return="workers return" in setting.may,
            is_giving_checked=setting.is_giving_checked,
            nr_renamings=len(names),
            renamings=(CRenaming * MAX_RENAMINGS)(*(CRenaming(_names(one), _names(other)) for one, other in names)),
            program=ctypes.cast(self._table, ctypes.POINTER(CInstruction)),
            **self.program.entries,
        )

    def first(self) -> CState:
        state = CState()
        library().model_begin(ctypes.byref(self._setting), ctypes.byref(state))
        return state

    def successors(self, state: CState) -> list[CSuccessor]:
        """All steps that are possible now, deaths among them."""
        found = (CSuccessor * MAX_SUCCESSORS)()
        nr = library().model_successors(ctypes.byref(self._setting), ctypes.byref(state), found)
        return list(found[:nr])

    def search(self, max_states: int = 50_000_000) -> Found:
        """Goes through all states, up to the first fault."""
        found, trace = CFound(), (CSuccessor * MAX_TRACE)()
        if not library().model_search(
            ctypes.byref(self._setting), max_states, self.setting.is_timed, ctypes.byref(found), trace, MAX_TRACE
        ):
            raise NoMemoryError
        changes = {
            (PHASES[before], PHASES[after])
            for before, row in enumerate(found.phases)
            for after, is_seen in enumerate(row)
            if is_seen and before != after
        }
        return Found(
            nr_states=found.nr_states,
            nr_steps=found.nr_steps,
            is_whole=bool(found.is_whole),
            fault=FAULTS[found.fault],
            trace=list(trace[: found.nr_trace]),
            changes=frozenset(changes),
        )


def _bytes(values: Sequence[int]) -> ctypes.Array[ctypes.c_uint8]:
    return (ctypes.c_uint8 * MAX_WORKERS)(*values)


def _names(new: Sequence[int]) -> CNames:
    """From new indices by old ones."""
    sets = (sum(1 << name for old, name in enumerate(new) if bits >> old & 1) for bits in range(1 << MAX_WORKERS))
    return CNames(tuple([0, *(name + 1 for name in new)]), tuple(sets))
