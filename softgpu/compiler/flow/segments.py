"""
How a kernel with barriers becomes a sequence of loops over its threads.

Its code is cut at barriers (`cut`), and where a branch that all threads take alike decides which cut comes next: then no loop holds both ways.
A segment is the code between cuts, with one beginning. What it needs from earlier segments is, register by register, computed again
(`recompute`), handed over once for all threads where it is the same for them (`uniform`), or saved for each thread.

Kernels whose threads wait in any other way, whose code would grow too much, or whose functions end threads keep fibers; with
FAIRGV_SOFTGPU_FIBERS=1 in the environment all do, so that tests can compare both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from cuda_api.ptx.syntax import Instruction, Integer, Label, Name
from cuda_api.record import field, mutable_record, replace
from softgpu.compiler.flow.analysis import WAITING, Traits
from softgpu.compiler.flow.cut import CutCode, cut_at_barriers, cut_at_branches, is_cut
from softgpu.compiler.flow.effects import names_of
from softgpu.compiler.flow.flatten import FlatFunction
from softgpu.compiler.flow.liveness import live_at_cuts
from softgpu.compiler.flow.purity import is_pure
from softgpu.compiler.flow.recompute import Recomputation
from softgpu.compiler.flow.uniform import Definitions, Variation, variation

_MAX_GROWTH = 4
_MAX_SMALL = 2000
"""A kernel keeps fibers when its segments have more instructions than this together, and more than `_MAX_GROWTH` times its own."""
_MAX_LOOPS = 256
"""As well when it would become more loops than this: LLVM takes 10 to 20 ms for each."""

_FLOW = frozenset(("bra", "brx", "ret", "exit"))

RESUME, SUSPEND, END_THREAD = "#resume", "#suspend", "#end"
"""Opcodes at a segment's start, at a cut (its operand is the next segment), and where the thread ends."""


@mutable_record
class Segment:
    """
    `saved` is known for each thread when it begins, `known` for the block; of these it `loads` and `takes` what it uses. Of what it writes, it
    `gives` what a next segment may take. `is_split`: threads may go on in different ways. `is_same`: it does the same for all threads, so
    that one is enough.
    """

    code: list[Instruction | Label]
    next: list[int]
    is_split: bool = False
    is_same: bool = False
    saved: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    gives: list[str] = field(default_factory=list)

    @property
    def loads(self) -> list[str]:
        return [name for name in self.saved if name in self.used]

    @property
    def takes(self) -> list[str]:
        return [name for name in self.known if name in self.used]


@mutable_record
class Fission:
    """`flat` is the kernel with all its cuts, `saved` what each thread keeps across any of them."""

    flat: FlatFunction
    segments: list[Segment]
    saved: list[str]

    @property
    def is_ever_split(self) -> bool:
        return any(segment.is_split for segment in self.segments)


def fission(flat: FlatFunction, flats: Mapping[str, FlatFunction], traits: Traits) -> Fission | None:
    """The segments of a kernel; None: it needs fibers."""
    if not traits.waits or traits.spins or os.environ.get("FAIRGV_SOFTGPU_FIBERS") == "1":
        return None
    others = [flats[name] for name in traits.reachable if flats[name] is not flat]
    if any(item.opcode in WAITING or item.opcode == "exit" for other in others for item in other.instructions):
        return None
    if any(item.opcode == "alloca" for item in flat.instructions):
        return None
    if not _has_plain_locals(flat, [flat, *others]) or _parameters_cross_barriers(flat):
        return None
    cut = cut_at_barriers(flat)
    if cut is None:
        return None
    definitions = Definitions(cut)
    found = variation(cut, definitions)
    if found.is_together:
        cut_at_branches(cut, _choices(cut, found))
        found = variation(cut, definitions)
    return _Planner(cut, found).plan()


def _has_plain_locals(flat: FlatFunction, functions: list[FlatFunction]) -> bool:
    """Whether nobody asks which addresses are local: across cuts, local variables lie outside of the stack."""
    if not any(variable.space == "local" for variable in flat.variables.values()):
        return True
    return not any(item.opcode == "isspacep" for function in functions for item in function.instructions)


def _parameters_cross_barriers(flat: FlatFunction) -> bool:
    """Whether the arguments of some call are written before and read after a barrier, or their address goes anywhere."""
    variables = {name for name, variable in flat.variables.items() if variable.space == "param"}
    nr_barriers = 0
    seen_at: dict[str, int] = {}
    for item in flat.instructions:
        nr_barriers += item.opcode in WAITING
        for name in names_of(item.operands) & variables if variables else ():
            if item.opcode not in ("ld", "st", "call") or seen_at.setdefault(name, nr_barriers) != nr_barriers:
                return True
    return False


def _choices(cut: CutCode, found: Variation) -> list[int]:
    """The blocks whose branch, which all threads take alike, decides which cut comes next."""
    continuations = cut.continuations()
    return [
        number
        for number, block in enumerate(cut.graph.blocks)
        if number not in found.branches
        and number not in found.blocks
        and number not in cut.cut_of
        and len(continuations[number]) > 1
        and len({continuations[other] for other in cut.within(number)}) > 1
        and isinstance(last := cut.flat.code[block.stop - 1], Instruction)
        and last.opcode == "bra"
        and last.guard is not None
        and block.stop < len(cut.flat.code)
    ]


class _Planner:
    def __init__(self, cut: CutCode, found: Variation) -> None:
        self._cut = cut
        self._variation = found
        self._recomputation = Recomputation(cut, found)
        self._needs, self._given = live_at_cuts(cut, self._recomputation.sources)

    def plan(self) -> Fission | None:
        continuations = self._cut.continuations()
        segments = [self._segment(number, continuations) for number in range(self._cut.nr_segments)]
        for segment in segments:
            following = [segments[number] for number in segment.next if number]
            known = {name for other in following for name in other.known}
            segment.gives = sorted(known & segment.written)
            segment.is_same &= not any(segment.written & set(other.saved) for other in following)
        nr_instructions = sum(len(segment.code) for segment in segments)
        is_large = nr_instructions > max(_MAX_SMALL, _MAX_GROWTH * len(self._cut.flat.code))
        if is_large or sum(not segment.is_same for segment in segments) > _MAX_LOOPS:
            return None
        return Fission(self._cut.flat, segments, sorted({name for segment in segments for name in segment.saved}))

    def _segment(self, number: int, continuations: list[frozenset[int]]) -> Segment:
        cut = self._cut
        start = cut.start_of[number]
        blocks = sorted(cut.reached([start]))
        is_split = any(block in self._variation.branches and len(continuations[block]) > 1 for block in blocks)
        code: list[Instruction | Label] = []
        if number:
            code.append(Instruction(RESUME, (), (Integer(number),)))
            again = self._recomputation
            code += again.code_of(sorted(name for name in self._needs[number] if again.is_again(name)))
        if blocks[0] != start:
            code.append(Instruction("bra", (), (Name(f"#{number}"),)))
        for block in blocks:
            code += [_ended(cut.flat.code[index]) for index in cut.graph.blocks[block]]
        code.append(Instruction(END_THREAD, (), ()))
        segment = Segment(code, sorted(continuations[start]), is_split, not is_split and self._is_quiet(blocks))
        for name in sorted(self._given.get(number, ())):
            (segment.saved if name in self._variation.registers else segment.known).append(name)
        for item in code:
            if isinstance(item, Instruction):
                effect = self._cut.effect(item)
                segment.used |= effect.reads | effect.writes
                segment.written |= effect.writes
        return segment

    def _is_quiet(self, blocks: list[int]) -> bool:
        """Whether nothing but registers and the way to go comes out of these blocks."""
        items = [self._cut.flat.code[index] for block in blocks for index in self._cut.graph.blocks[block]]
        parameters = {item.name for item in self._cut.flat.function.parameters}
        return all(
            isinstance(item, Label) or item.opcode in _FLOW or is_pure(item, parameters) for item in items
        ) and self._variation.branches.isdisjoint(blocks)


def _ended(item: Instruction | Label) -> Instruction | Label:
    if isinstance(item, Label):
        return item
    if is_cut(item):
        target = item.operands[0]
        assert isinstance(target, Name)
        return replace(item, opcode=SUSPEND, operands=(Integer(int(target.text[1:])),))
    return replace(item, opcode=END_THREAD) if item.opcode in ("ret", "exit") else item
