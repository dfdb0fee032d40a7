"""
What is the same for all threads of a block: registers, branches, blocks of code.

A register varies when an operand of one of its definitions varies, or when it depends on the thread which definition came last: when one stands
between a varying branch and the place where its ways meet again. Ways that end the thread meet nobody. Registers are judged over the whole
kernel, wherever they are defined.

All this holds as long as all threads that live stand at the same cut. When a varying branch decides which cut comes next, that is not so,
and everything counts as varying.
"""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction, Name
from cuda_api.record import field, mutable_record, record
from softgpu.compiler.flow.cut import END, CutCode
from softgpu.compiler.flow.effects import names_of
from softgpu.compiler.flow.purity import CARRY, is_of_the_block, is_pure


@mutable_record
class Variation:
    """`branches` are the blocks that end in a varying branch, `blocks` those that a part of the threads may run alone or more often."""

    is_together: bool = True
    registers: set[str] = field(default_factory=set)
    branches: set[int] = field(default_factory=set)
    blocks: set[int] = field(default_factory=set)


def variation(cut: CutCode, definitions: Definitions, *, is_together: bool = True) -> Variation:
    """What varies. With `is_together` false, everything."""
    solver = _Solver(cut, definitions)
    if is_together and solver.solve():
        return solver.found
    every = set(range(len(cut.graph.blocks)))
    return Variation(
        False, {*cut.flat.registers, CARRY}, {block for block in every if len(solver.ways(block)) > 1}, every
    )


@record
class _Definition:
    """Registers that vary when one of `reads` does, or with `is_varying` in any case."""

    writes: set[str]
    reads: set[str]
    is_varying: bool


class Definitions:
    """What each instruction of a kernel defines; found out once, wherever the kernel is cut."""

    def __init__(self, cut: CutCode) -> None:
        self._cut = cut
        self._parameters = {item.name for item in cut.flat.function.parameters}
        self._names = cut.flat.registers.keys() | {CARRY}
        self._known: dict[int, tuple[Instruction, _Definition | None]] = {}

    def of(self, block: range) -> list[_Definition]:
        """Of the registers that a block writes."""
        found = [
            self._of(item) for item in self._cut.flat.code[block.start : block.stop] if isinstance(item, Instruction)
        ]
        return [definition for definition in found if definition is not None]

    def _of(self, item: Instruction) -> _Definition | None:
        known = self._known.get(id(item))
        if known is None:
            known = self._known[id(item)] = item, self._definition(item)
        return known[1]

    def _definition(self, item: Instruction) -> _Definition | None:
        effect = self._cut.effect(item)
        writes = effect.writes & self._names
        if not writes:
            return None
        reads = effect.reads & self._names
        is_own = len(reads) < len(effect.reads) and self.has_own(effect.reads)
        return _Definition(writes, reads, is_own or not is_pure(item, self._parameters))

    def has_own(self, names: set[str]) -> bool:
        """Whether one of these, registers aside, is the thread's own."""
        variables = self._cut.flat.variables
        return any(
            variables[name].space in ("local", "param")
            if name in variables
            else name[0] == "%" and not is_of_the_block(name)
            for name in names - self._names
        )


class _Solver:
    def __init__(self, cut: CutCode, definitions: Definitions) -> None:
        self._cut = cut
        self._definitions = definitions
        self._continuations = cut.continuations()
        self._meetings: dict[int, dict[int, int]] = {}
        self.found = Variation()

    def ways(self, block: int) -> list[int]:
        """All ways out of a block; -1 ends the thread."""
        return self._cut.within(block) + ([-1] if self._cut.graph.leaves[block] else [])

    def solve(self) -> bool:
        """False: the threads may stand at different cuts."""
        found = self.found
        definitions = [self._definitions.of(block) for block in self._cut.graph.blocks]
        nr_before = -1
        while nr_before != len(found.registers) + len(found.branches):
            nr_before = len(found.registers) + len(found.branches)
            for number, of_block in enumerate(definitions):
                is_apart = number in found.blocks
                for definition in of_block:
                    if is_apart or definition.is_varying or not found.registers.isdisjoint(definition.reads):
                        found.registers |= definition.writes
            for number in range(len(self._cut.graph.blocks)):
                if number not in found.branches and len(self.ways(number)) > 1 and self._decides_by_thread(number):
                    found.branches.add(number)
                    if len(self._continuations[number] - {END}) > 1:
                        return False
                    found.blocks |= self._run_apart(number)
        return True

    def _decides_by_thread(self, number: int) -> bool:
        last = self._cut.flat.code[self._cut.graph.blocks[number].stop - 1]
        if not isinstance(last, Instruction):
            return False
        decided_by = {last.guard.predicate} if last.guard is not None else set()
        if last.opcode == "brx":
            decided_by |= {operand.text for operand in last.operands[:1] if isinstance(operand, Name)}
            decided_by |= names_of(last.operands[:1])
        return not self.found.registers.isdisjoint(decided_by) or self._definitions.has_own(decided_by)

    def _run_apart(self, branch: int) -> set[int]:
        """The blocks between a varying branch and where the ways of all threads that go on to the next cut meet."""
        cuts = self._continuations[branch] - {END}
        if not cuts:
            return set()
        (cut,) = cuts
        meetings = self._all_meetings(cut)
        stops = meetings[branch] & ~(1 << branch)
        seen: set[int] = set()
        waiting = [branch]
        while waiting:
            for block in self._cut.within(waiting.pop()):
                if block in meetings and not stops >> block & 1 and block not in seen:
                    seen.add(block)
                    waiting.append(block)
        return seen

    def _all_meetings(self, cut: int) -> dict[int, int]:
        """For each block on a way to this cut, the blocks that every such way comes by (its postdominators), a bit for each."""
        if cut in self._meetings:
            return self._meetings[cut]
        inside = {number for number, found in enumerate(self._continuations) if cut in found}
        every = sum(1 << number for number in inside)
        meetings = dict.fromkeys(inside, every)
        changed = True
        while changed:
            changed = False
            for number in sorted(inside, reverse=True):
                common = 0 if self._cut.cut_of.get(number) == cut else every
                for other in self._cut.within(number):
                    common &= meetings.get(other, every)
                common |= 1 << number
                changed |= common != meetings[number]
                meetings[number] = common
        self._meetings[cut] = meetings
        return meetings
