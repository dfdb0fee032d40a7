"""
Loops that wait for other blocks.

Such a loop reads what another block writes, by an access that is made for that (volatile, acquiring, atomic), and goes on or ends by what it
found. Decoupled look-back, stream-K, grid barriers made by hand and queues between kernels all have one. Three loops look alike and wait for
nobody: compare and swap that tries again with what it found, counters that are only ever counted on, and polling of the own block's shared
memory.

Wrong when: a loop polls with plain loads, which PTX's memory model leaves undefined; or hides the flag in memory between the load and the
branch. In the other direction: a lock is taken for waiting, though whoever holds it runs.
"""

from __future__ import annotations

from collections.abc import Iterable

from cuda_api.generated.values import Whole
from cuda_api.ptx.syntax import Block, Instruction, Integer, Name
from cuda_api.ptx.variants.flow import Loop, Piece, loops_of, pieces_of
from cuda_api.ptx.variants.part import RunsWholeError
from cuda_api.ptx.variants.walk import instructions, names_of

STRONG = frozenset(("volatile", "relaxed", "acquire", "mmio", "cv"))
"""Accesses that see what others write meanwhile."""
_MOST_INSTRUCTIONS = 1 << 20
"""Of all loops, those of inner ones again for each outer one. A text of nothing but loops within loops has millions."""
_MOST_STEPS = 1 << 20
"""From copy to copy, for all operations of a loop that compare and swap. A loop that would take more is taken for one that waits."""
_OWN_SPACES = frozenset(("param", "const", "local", "shared"))
_COUNTING = frozenset(("add", "inc", "dec", "and", "or", "xor", "min", "max"))
_FENCES = frozenset(("membar", "fence", "nanosleep"))
_WITHOUT_RESULT = frozenset(("st", "red", "bra", "brx", "bar", "barrier", "membar", "fence", "prefetch", "nanosleep"))


def waits(body: Block, waiting_functions: frozenset[str] = frozenset()) -> bool:
    """Whether some loop of a function waits; calls of `waiting_functions`, which read such memory, count as reads of it. Raises RunsWholeError
    when its loops are too many."""
    if not any(_may_read_others(item, waiting_functions) for item in instructions(body)):
        return False
    pieces = pieces_of(body)
    nr_looked_at = 0
    for loop in loops_of(pieces):
        nr_looked_at += sum(len(pieces[number].code) for number in loop.pieces)
        if nr_looked_at > _MOST_INSTRUCTIONS:
            raise RunsWholeError(Whole.TOO_LARGE, "loops within loops")
        if _loop_waits(pieces, loop, waiting_functions):
            return True
    return False


def reads_others(body: Block) -> bool:
    """Whether a function reads what other blocks may write, so that a loop around a call of it may wait."""
    no_copies = _Copies(())
    return any(_reads(item, no_copies) for item in instructions(body))


def _may_read_others(instruction: Instruction, waiting_functions: frozenset[str]) -> bool:
    if instruction.opcode == "call":
        return any(name.text in waiting_functions for name in names_of(instruction.operands))
    return instruction.opcode in ("atom", "ld", "ldu") and _is_of_others(instruction)


def _is_of_others(instruction: Instruction) -> bool:
    return not any(word.split("::")[0] in _OWN_SPACES for word in instruction.modifiers)


def _loop_waits(pieces: list[Piece], loop: Loop, waiting_functions: frozenset[str]) -> bool:
    code = [instruction for number in loop.pieces for instruction in pieces[number].code]
    has_fence = any(item.opcode in _FENCES for item in code)
    copies = _Copies(code)
    read: set[str] = set()
    for item in code:
        is_call = item.opcode == "call" and _may_read_others(item, waiting_functions)
        is_fenced_load = (
            has_fence and item.opcode in ("ld", "ldu") and _is_of_others(item) and "nc" not in item.modifiers
        )
        if is_call or is_fenced_load or _reads(item, copies):
            read |= written_by(item)
    if not read:
        return False
    spreading = Spreading(code)
    spreading.add(read)
    return any(_is_left_by(pieces, loop, number, spreading.tainted) for number in loop.pieces)


def _is_left_by(pieces: list[Piece], loop: Loop, number: int, tainted: set[str]) -> bool:
    piece = pieces[number]
    if not piece.code or not (piece.may_end or any(target not in loop.pieces for target in piece.goes_to)):
        return False
    last = piece.code[-1]
    decides = {last.guard.predicate} if last.guard is not None else set()
    if last.opcode == "brx":
        decides |= {name.text for name in names_of(last.operands[:1])}
    return not tainted.isdisjoint(decides)


class Spreading:
    """What is computed from some names by some code. Looks at each instruction once, however many names come to be `tainted`."""

    def __init__(self, code: Iterable[Instruction]) -> None:
        self.tainted: set[str] = set()
        self._readers: dict[str, list[list[str]]] = {}
        for item in code:
            written = list(written_by(item))
            for name in read_by(item):
                self._readers.setdefault(name, []).append(written)

    def add(self, names: Iterable[str]) -> None:
        """Adds the names, and all that is computed from them."""
        waiting = [name for name in names if name not in self.tainted]
        self.tainted.update(waiting)
        while waiting:
            for written in self._readers.pop(waiting.pop(), ()):
                new = [name for name in written if name not in self.tainted]
                written.clear()  # for whoever else leads to this instruction
                self.tainted.update(new)
                waiting.extend(new)


def written_by(instruction: Instruction) -> set[str]:
    """Registers, and arguments of calls by their names."""
    if instruction.opcode == "st":
        return {name.text for name in names_of(instruction.operands[:1])} if "param" in instruction.modifiers else set()
    if instruction.opcode == "call":
        return {name.text for name in names_of(instruction.operands)}
    if instruction.opcode in _WITHOUT_RESULT:
        return set()
    return {name.text for name in names_of(instruction.operands[:1])}


def read_by(instruction: Instruction) -> set[str]:
    """Registers and variables, the guard's among them."""
    reads = instruction.operands if instruction.opcode in _WITHOUT_RESULT | {"call"} else instruction.operands[1:]
    names = {name.text for name in names_of(reads)}
    return names | {instruction.guard.predicate} if instruction.guard is not None else names


class _Copies:
    """Which registers have what another one held before, by the copies of a loop."""

    def __init__(self, code: Iterable[Instruction]) -> None:
        self._copied_to: dict[str, list[str]] = {}
        self._nr_left = _MOST_STEPS
        for item in code:
            if item.opcode in ("mov", "cvt"):
                for name in read_by(item):
                    self._copied_to.setdefault(name, []).extend(written_by(item))

    def leads(self, found: str, compared: str) -> bool:
        """Whether `compared` may be a copy of `found`."""
        known = {found}
        waiting = [found]
        while waiting and self._nr_left > 0 and compared not in known:
            copies = self._copied_to.get(waiting.pop(), [])
            self._nr_left -= 1 + len(copies)
            waiting.extend({*copies} - known)
            known.update(copies)
        return compared in known


def _reads(instruction: Instruction, copies: _Copies) -> bool:
    """Whether its result is another block's to decide. `copies`: of the loop around it."""
    if instruction.opcode in ("ld", "ldu"):
        return _is_of_others(instruction) and not STRONG.isdisjoint(instruction.modifiers)
    if instruction.opcode != "atom" or not _is_of_others(instruction):
        return False
    if "cas" in instruction.modifiers:
        return not _tries_again(instruction, copies)
    if _COUNTING.isdisjoint(instruction.modifiers):
        return True
    operand = instruction.operands[2] if len(instruction.operands) > 2 else None
    return isinstance(operand, Integer) and operand.value == 0


def _tries_again(atomic: Instruction, copies: _Copies) -> bool:
    """Whether it compares with what it found before."""
    found, compared = atomic.operands[:1], atomic.operands[2:3] if len(atomic.operands) > 3 else ()
    names = [operand.text for operand in (*found, *compared) if isinstance(operand, Name)]
    return len(names) == 2 and copies.leads(*names)
