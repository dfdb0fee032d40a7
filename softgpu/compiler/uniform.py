"""
What is the same for all threads of a block: registers, branches, blocks of code.

A register varies when an operand of one of its definitions varies, or when it depends on the thread which definition came last: when one stands
between a varying branch and the place where its ways meet again. Ways that end the thread meet nobody. Registers are judged over the whole
kernel, wherever they are defined.

All this holds as long as all threads that live stand at the same cut. When a varying branch decides which cut comes next, that is not so,
and everything counts as varying.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cuda_api.ptx.syntax import Instruction, Name
from softgpu.compiler.cut import END, CutCode
from softgpu.compiler.effects import Effects, names_of
from softgpu.compiler.purity import CARRY, is_of_the_block, is_pure


@dataclass(slots=True)
class Variation:
    """`branches` are the blocks that end in a varying branch, `blocks` those that a part of the threads may run alone or more often."""

    is_together: bool = True
    registers: set[str] = field(default_factory=set)
    branches: set[int] = field(default_factory=set)
    blocks: set[int] = field(default_factory=set)


def variation(cut: CutCode, *, is_together: bool = True) -> Variation:
    """What varies. With `is_together` false, everything."""
    solver = _Solver(cut)
    if is_together and solver.solve():
        return solver.found
    every = set(range(len(cut.graph.blocks)))
    return Variation(
        False, {*cut.flat.registers, CARRY}, {block for block in every if len(solver.ways(block)) > 1}, every
    )


class _Solver:
    def __init__(self, cut: CutCode) -> None:
        self._cut = cut
        self._continuations = cut.continuations()
        self._parameters = {item.name for item in cut.flat.function.parameters}
        self._effects: list[Effects | None] = [
            cut.effect(item) if isinstance(item, Instruction) else None for item in cut.flat.code
        ]
        self._meetings: dict[int, dict[int, int]] = {}
        self.found = Variation()

    def ways(self, block: int) -> list[int]:
        """All ways out of a block; -1 ends the thread."""
        return self._cut.within(block) + ([-1] if self._cut.graph.leaves[block] else [])

    def solve(self) -> bool:
        """False: the threads may stand at different cuts."""
        registers, found = self._cut.flat.registers, self.found
        nr_before = -1
        while nr_before != len(found.registers) + len(found.branches):
            nr_before = len(found.registers) + len(found.branches)
            for number, block in enumerate(self._cut.graph.blocks):
                for index in block:
                    item, effect = self._cut.flat.code[index], self._effects[index]
                    if effect is not None and isinstance(item, Instruction) and self._varies(number, item, effect):
                        found.registers |= {name for name in effect.writes if name in registers or name == CARRY}
            for number in range(len(self._cut.graph.blocks)):
                if number not in found.branches and len(self.ways(number)) > 1 and self._decides_by_thread(number):
                    found.branches.add(number)
                    if len(self._continuations[number] - {END}) > 1:
                        return False
                    found.blocks |= self._run_apart(number)
        return True

    def _varies(self, number: int, item: Instruction, effect: Effects) -> bool:
        return number in self.found.blocks or not is_pure(item, self._parameters) or not self._are_same(effect.reads)

    def _are_same(self, names: set[str]) -> bool:
        flat = self._cut.flat
        for name in names:
            if name in flat.registers or name == CARRY:
                if name in self.found.registers:
                    return False
            elif name in flat.variables:
                if flat.variables[name].space in ("local", "param"):
                    return False
            elif name[0] == "%" and not is_of_the_block(name):
                return False
        return True

    def _decides_by_thread(self, number: int) -> bool:
        last = self._cut.flat.code[self._cut.graph.blocks[number].stop - 1]
        if not isinstance(last, Instruction):
            return False
        decided_by = {last.guard.predicate} if last.guard is not None else set()
        if last.opcode == "brx":
            decided_by |= {operand.text for operand in last.operands[:1] if isinstance(operand, Name)}
            decided_by |= names_of(last.operands[:1])
        return not self._are_same(decided_by)

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
