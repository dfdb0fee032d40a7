"""
A kernel's code, cut where its threads wait for each other.

A cut stands in the code as a branch to a label right behind it, which changes nothing and lets the control flow graph end a block there. Cut
`k` leads to the label `#k`, where segment `k` begins; segment 0 begins at the kernel's start.
"""

from __future__ import annotations

from collections.abc import Iterable

from cuda_api.ptx.syntax import Guard, Instruction, Integer, Label, Name
from cuda_api.record import field, mutable_record, replace
from softgpu.compiler.flow.analysis import WAITING
from softgpu.compiler.flow.effects import Effects
from softgpu.compiler.flow.flatten import FlatFunction
from softgpu.compiler.flow.graph import Graph, control_flow
from softgpu.compiler.flow.purity import register_effects

_WHOLE_BLOCK = frozenset((("sync",), ("cta", "sync"), ("sync", "aligned"), ("cta", "sync", "aligned")))
END = 0
"""Where a thread goes on that has ended; no cut leads to segment 0."""


@mutable_record
class CutCode:
    """`graph` is that of `flat`, its edges over cuts included; `cut_of` names the cut at the end of a block."""

    flat: FlatFunction
    nr_segments: int
    graph: Graph = field(default_factory=Graph)
    cut_of: dict[int, int] = field(default_factory=dict)
    start_of: dict[int, int] = field(default_factory=dict)
    _effects: dict[int, tuple[Instruction, Effects]] = field(default_factory=dict)

    def effect(self, item: Instruction) -> Effects:
        """What an instruction of the code does to registers; found out once, as every analysis asks."""
        known = self._effects.get(id(item))
        if known is None:
            known = self._effects[id(item)] = item, register_effects(item)
        return known[1]

    def refresh(self) -> None:
        """After a change of the code."""
        self.graph = control_flow(self.flat)
        self.cut_of, self.start_of = {}, {0: 0}
        for number, block in enumerate(self.graph.blocks):
            last, first = self.flat.code[block.stop - 1], self.flat.code[block.start]
            if isinstance(last, Instruction) and is_cut(last):
                self.cut_of[number] = _target(last)
            if isinstance(first, Label) and first.name[:1] == "#" and first.name[1:].isdigit():
                self.start_of[int(first.name[1:])] = number

    def within(self, block: int) -> list[int]:
        """Where a block goes on without crossing a cut."""
        return [] if block in self.cut_of else self.graph.successors[block]

    def reached(self, starts: Iterable[int]) -> set[int]:
        """The blocks reached from these without crossing a cut, they themselves included."""
        seen: set[int] = set()
        waiting = list(starts)
        while waiting:
            block = waiting.pop()
            if block not in seen:
                seen.add(block)
                waiting.extend(self.within(block))
        return seen

    def continuations(self) -> list[frozenset[int]]:
        """For each block, the segments that may be the next of a thread that is in it."""
        own = [
            {self.cut_of[number]} if number in self.cut_of else {END} if self._ends(number) else set()
            for number in range(len(self.graph.blocks))
        ]
        changed = True
        while changed:
            changed = False
            for number in reversed(range(len(own))):
                size = len(own[number])
                own[number].update(*(own[successor] for successor in self.within(number)))
                changed |= len(own[number]) != size
        return [frozenset(found) for found in own]

    def _ends(self, number: int) -> bool:
        return self.graph.leaves[number] or (number + 1 == len(self.graph.blocks) and not self._branches_away(number))

    def _branches_away(self, number: int) -> bool:
        last = self.flat.code[self.graph.blocks[number].stop - 1]
        return isinstance(last, Instruction) and last.opcode in ("bra", "brx") and last.guard is None


def is_cut(instruction: Instruction) -> bool:
    """Whether this branch stands for a cut."""
    target = instruction.operands[0] if instruction.opcode == "bra" else None
    return isinstance(target, Name) and target.text[0] == "#" and target.text[1:].isdigit()


def _target(instruction: Instruction) -> int:
    target = instruction.operands[0]
    assert isinstance(target, Name)
    return int(target.text[1:])


def barrier_number(instruction: Instruction) -> int | None:
    """The number of a barrier that waits for the whole block; None: this waits for something else, or nobody knows for what."""
    if instruction.opcode not in ("bar", "barrier") or len(instruction.operands) > 1:
        return None
    words = tuple(word for word in instruction.modifiers if word != "aligned")
    number = instruction.operands[0] if instruction.operands else None
    return number.value if words in _WHOLE_BLOCK and isinstance(number, Integer) else None


def cut_at_barriers(flat: FlatFunction) -> CutCode | None:
    """None: its threads wait for more, or for others, than all threads of the block at one barrier."""
    waiting = [item for item in flat.instructions if item.opcode in WAITING]
    numbers = {barrier_number(item) for item in waiting}
    if len(numbers) != 1 or None in numbers:
        return None
    code: list[Instruction | Label] = []
    nr_cuts = 0
    for item in flat.code:
        if isinstance(item, Label) or item.opcode not in WAITING:
            code.append(item)
            continue
        nr_cuts += 1
        if item.guard is None:
            code += _cut(nr_cuts)
        else:
            passed = f"#past{nr_cuts}"
            skips = Guard(item.guard.predicate, not item.guard.is_negated)
            code += [Instruction("bra", (), (Name(passed),), skips, item.line), *_cut(nr_cuts), Label(passed)]
    cut = CutCode(replace(flat, code=code, registers=dict(flat.registers)), nr_cuts + 1)
    cut.refresh()
    return cut


def _cut(number: int) -> list[Instruction | Label]:
    return [Instruction("bra", (), (Name(f"#{number}"),)), Label(f"#{number}")]


def cut_at_branches(cut: CutCode, branches: Iterable[int]) -> None:
    """Cuts both ways out of each of these blocks, which end in a branch with a guard; ways to the same label meet in one cut."""
    at = {cut.graph.blocks[block].stop - 1 for block in branches}
    code: list[Instruction | Label] = []
    detours: list[Instruction | Label] = []
    known: dict[str, Name] = {}

    def detour(label: str) -> tuple[Name]:
        if label not in known:
            known[label] = Name(f"#to{cut.nr_segments}")
            leave = Instruction("bra", (), (Name(label),))
            detours.extend((Label(known[label].text), *_cut(cut.nr_segments), leave))
            cut.nr_segments += 1
        return (known[label],)

    for index, item in enumerate(cut.flat.code):
        if index not in at:
            code.append(item)
            continue
        assert isinstance(item, Instruction)
        target, following = item.operands[0], cut.flat.code[index + 1]
        assert isinstance(target, Name)
        code.append(replace(item, operands=detour(target.text)))
        if isinstance(following, Label):
            code.append(Instruction("bra", (), detour(following.name)))
        else:
            code += _cut(cut.nr_segments)
            cut.nr_segments += 1
    if detours and _falls_off(code):
        code.append(Instruction("ret", (), ()))
    cut.flat.code = code + detours
    cut.refresh()


def _falls_off(code: list[Instruction | Label]) -> bool:
    last = code[-1] if code else None
    return (
        not isinstance(last, Instruction)
        or last.opcode not in ("bra", "brx", "ret", "exit", "trap")
        or last.guard is not None
    )
