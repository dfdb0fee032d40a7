"""
What a segment computes again instead of loading what an earlier one has saved.

Two kinds of registers. One is defined once, from special registers, parameters, constants and others of its kind: its definition is run again.
The other goes along with all threads: it starts as a value of the first kind, and all threads together add to it what is the same for all of
them, as an address does in a loop. What was added gets a register of its own, one for the block. Both matter beyond the traffic they save:
LLVM sees how an address hangs on the thread's index, and vectorises.
"""

from __future__ import annotations

from collections.abc import Iterable

from cuda_api.ptx.syntax import Instruction, Integer, Label, Name
from cuda_api.record import record, replace
from softgpu.compiler.flow.cut import CutCode
from softgpu.compiler.flow.purity import CARRY, is_pure, is_stable
from softgpu.compiler.flow.uniform import Variation

_MAX_COST = 40
_COSTS = dict.fromkeys(("div", "rem", "sqrt", "rsqrt", "rcp", "sin", "cos", "ex2", "lg2", "tanh"), 16)
_ADDING = frozenset((("s32",), ("u32",), ("s64",), ("u64",), ("b32",), ("b64",)))
_WORDS = frozenset(("s32", "u32", "b32", "s64", "u64", "b64"))


@record
class Origin:
    """Where a register that goes along starts: at a register of the first kind, or at what an instruction over such computes."""

    register: str = ""
    start: Instruction | None = None


_UNKNOWN = Origin()


class Recomputation:
    """`once` holds the definitions of registers of the first kind, `along` the origins of those of the second."""

    def __init__(self, cut: CutCode, variation: Variation) -> None:
        self._cut = cut
        self._variation = variation
        self._parameters = {item.name for item in cut.flat.function.parameters}
        self._definitions: dict[str, list[Instruction]] = {}
        for item in cut.flat.code:
            if isinstance(item, Instruction):
                for name in cut.effect(item).writes:
                    self._definitions.setdefault(name, []).append(item)
        self._costs: dict[str, int] = {}
        self._sources: dict[str, set[str]] = {}
        self.once: dict[str, Instruction] = {}
        self.along: dict[str, Origin] = {}
        self._find_once()
        if variation.is_together:
            self._find_along()
            self._follow()

    def moved(self, name: str) -> str:
        """The register for what has been added to this one so far."""
        return f"#moved {name}"

    def code_of(self, names: Iterable[str]) -> list[Instruction | Label]:
        """What computes these registers, each of the first or the second kind."""
        code: list[Instruction | Label] = []
        done: set[int] = set()
        for name in names:
            origin = self.along.get(name)
            if origin is None:
                self._add_definition(name, code, done)
                continue
            if origin.start is None and not self._is_kept(origin.register):
                self._add_definition(origin.register, code, done)
            elif origin.start is not None:
                self._add_reads(origin.start, code, done)
                code.append(replace(origin.start, operands=(Name(name), *origin.start.operands[1:])))
            source = Name(origin.register or name)
            code.append(Instruction("add", (self._word(name),), (Name(name), source, Name(self.moved(name)))))
        return code

    def _word(self, name: str) -> str:
        return f"u{self._cut.flat.registers[name][1:]}"

    def _add_definition(self, name: str, code: list[Instruction | Label], done: set[int]) -> None:
        item = self.once[name]
        if id(item) not in done:
            done.add(id(item))
            self._add_reads(item, code, done)
            code.append(item)

    def _add_reads(self, item: Instruction, code: list[Instruction | Label], done: set[int]) -> None:
        for name in sorted(self._cut.effect(item).reads & self.once.keys()):
            if not self._is_kept(name):
                self._add_definition(name, code, done)

    def is_again(self, name: str) -> bool:
        """Whether a segment that needs this register computes it."""
        return name in self.along or (name in self.once and not self._is_kept(name))

    def _is_kept(self, name: str) -> bool:
        """What is the same for all threads is computed once for the block, unless it takes no more than a look."""
        return name not in self._variation.registers and not self._cut.effect(self.once[name]).reads.isdisjoint(
            self.once
        )

    def sources(self, names: Iterable[str]) -> set[str]:
        """The registers that a segment must be given to have these."""
        found: set[str] = set()
        return found.union(*(self._sources_of(name) for name in names))

    def _sources_of(self, name: str) -> set[str]:
        if name not in self._sources:
            origin = self.along.get(name)
            found = {name} if not self.is_again(name) else {self.moved(name)} if origin is not None else set()
            found.update(*(self._sources_of(read) for read in self._operands(name) & self.once.keys()))
            self._sources[name] = found
        return self._sources[name]

    def _operands(self, name: str) -> set[str]:
        """What the code that computes a register reads, before what it computes again itself."""
        origin = self.along.get(name)
        if origin is not None:
            return self._cut.effect(origin.start).reads if origin.start is not None else {origin.register}
        return self._cut.effect(self.once[name]).reads if self.is_again(name) else set()

    # Defined once

    def _find_once(self) -> None:
        candidates = {
            name: items[0]
            for name, items in self._definitions.items()
            if name in self._cut.flat.registers and len(items) == 1 and self._is_unconditional(items[0])
        }
        nr_before = -1
        while nr_before != len(self.once):
            nr_before = len(self.once)
            for name, item in candidates.items():
                if name not in self.once and self._has_known_operands(item) and self._cost(name, item) <= _MAX_COST:
                    self.once[name] = item

    def _is_unconditional(self, item: Instruction) -> bool:
        effect = self._cut.effect(item)
        return (
            not effect.is_guarded
            and CARRY not in effect.writes | effect.reads
            and is_pure(item, self._parameters)
            and all(len(self._definitions[name]) == 1 for name in effect.writes)
        )

    def _has_known_operands(self, item: Instruction) -> bool:
        """Whether it reads registers of the first kind alone."""
        flat = self._cut.flat
        for name in self._cut.effect(item).reads:
            if name in flat.registers:
                if name not in self.once:
                    return False
            elif name in flat.variables:
                if flat.variables[name].space == "param":
                    return False
            elif name[0] == "%" and not is_stable(name):
                return False
        return True

    def _cost(self, name: str, item: Instruction) -> int:
        """What it takes each thread: values that are the same for all are computed once."""
        if name not in self._costs:
            own = _COSTS.get(item.opcode, 1) if name in self._variation.registers else 0
            self._costs[name] = own + sum(self._costs.get(read, 0) for read in self._cut.effect(item).reads)
        return self._costs[name]

    # Going along

    def _find_along(self) -> None:
        """Takes every register for one that goes along until a definition says otherwise."""
        alone = {
            id(self._cut.flat.code[index])
            for number in self._variation.blocks
            for index in self._cut.graph.blocks[number]
        }
        self.along = {
            name: _UNKNOWN
            for name, items in self._definitions.items()
            if name in self._variation.registers
            and name not in self.once
            and self._cut.flat.registers.get(name) in _WORDS
            and not any(id(item) in alone or self._cut.effect(item).is_guarded for item in items)
        }
        changed = True
        while changed:
            changed = False
            for name in list(self.along):
                origin = self._common_origin(name)
                if origin is None:
                    del self.along[name]
                    changed = True
                elif origin != self.along[name]:
                    self.along[name] = origin
                    changed = True
        for name in [name for name, origin in self.along.items() if origin == _UNKNOWN]:
            del self.along[name]

    def _common_origin(self, name: str) -> Origin | None:
        common = _UNKNOWN
        for item in self._definitions[name]:
            origin = self._origin(item)
            if origin is None or (common not in (_UNKNOWN, origin) and origin != _UNKNOWN):
                return None
            common = origin if common == _UNKNOWN else common
        return common

    def _origin(self, item: Instruction) -> Origin | None:
        source, _ = self._step(item)
        if source in self.along:
            return self.along[source]
        if source in self.once:
            return Origin(source)
        is_start = (
            isinstance(item.operands[0], Name)
            and CARRY not in self._cut.effect(item).writes
            and is_pure(item, self._parameters)
            and self._has_known_operands(item)
        )
        return Origin(start=item) if is_start else None

    def _step(self, item: Instruction) -> tuple[str, Name | Integer]:
        """The register that a definition adds something to that is the same for all threads, and what it adds; '': it does not."""
        operands = item.operands
        if item.opcode == "mov" and len(operands) == 2 and isinstance(operands[1], Name):
            return operands[1].text, Integer(0)
        if item.opcode == "add" and item.modifiers in _ADDING and len(operands) == 3:
            for source, step in ((operands[1], operands[2]), (operands[2], operands[1])):
                if isinstance(source, Name) and (isinstance(step, Integer) or self._is_same(step)):
                    assert isinstance(step, Name | Integer)
                    return source.text, step
        return "", Integer(0)

    def _is_same(self, operand: object) -> bool:
        return (
            isinstance(operand, Name)
            and operand.text in self._cut.flat.registers
            and operand.text not in self._variation.registers
        )

    def _follow(self) -> None:
        """Writes the code that keeps count of what is added, behind each definition of the registers that go along."""
        registers = self._cut.flat.registers
        follows: dict[int, Instruction] = {}
        for name in self.along:
            registers[self.moved(name)] = self._word(name)
            for item in self._definitions[name]:
                source, step = self._step(item)
                if source not in self.along:
                    by = step if source in self.once else Integer(0)
                    follows[id(item)] = Instruction("mov", (self._word(name),), (Name(self.moved(name)), by))
                else:
                    operands = (Name(self.moved(name)), Name(self.moved(source)), step)
                    follows[id(item)] = Instruction("add", (self._word(name),), operands)
        code = [(item, follows.get(id(item))) for item in self._cut.flat.code]
        self._cut.flat.code = [item for pair in code for item in pair if item is not None]
        self._cut.refresh()
