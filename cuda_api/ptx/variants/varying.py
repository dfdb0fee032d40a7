"""
Which branches the threads of a block may take differently.

A value is the same in all threads if it is computed from parameters, the sizes of grid and block, the block's index, and what plain loads
find at addresses that are the same, where all threads come by. What another thread tells, what volatile and atomic accesses find and what a
function returns may differ, and so may whatever is set between a branch that threads take differently and the piece where they are together
again.

Wrong when: threads find different values by plain loads at one address, which PTX's memory model leaves undefined. In the other direction: much
that is the same is taken for different, whatever a function returns, say.
"""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction
from cuda_api.ptx.variants.flow import Fork, Piece, forks_of
from cuda_api.ptx.variants.waiting import STRONG, Spreading, read_by, written_by
from cuda_api.ptx.variants.walk import names_of

_NUMBERS = frozenset(
    (
        "abs",
        "add",
        "div",
        "dp2a",
        "dp4a",
        "fma",
        "mad",
        "mad24",
        "max",
        "min",
        "mul",
        "mul24",
        "neg",
        "rem",
        "sad",
        "sub",
    )
)
_FUNCTIONS = frozenset(("copysign", "cos", "ex2", "lg2", "rcp", "rsqrt", "sin", "sqrt", "tanh", "testp"))
_BITS = frozenset(
    (
        "and",
        "bfe",
        "bfi",
        "bfind",
        "bmsk",
        "brev",
        "clz",
        "cnot",
        "fns",
        "lop3",
        "not",
        "or",
        "popc",
        "prmt",
        "shf",
        "shl",
        "shr",
    )
)
_OTHERS = frozenset(("cvt", "cvta", "isspacep", "mov", "selp", "set", "setp", "slct", "szext", "xor"))
_PURE = _NUMBERS | _FUNCTIONS | _BITS | _OTHERS
"""Their results follow from their operands."""
_SAME_REGISTERS = frozenset(("%ctaid", "%nctaid", "%ntid"))


def varying_forks(pieces: list[Piece]) -> list[Fork]:
    """The forks of a kernel that threads of a block may take differently."""
    code = [instruction for piece in pieces for instruction in piece.code]
    set_somewhere = {name for instruction in code for name in written_by(instruction)}
    varying: set[str] = set()
    for instruction in code:
        varying |= {name for name in read_by(instruction) if name not in set_somewhere and _varies(name)}
        if not _is_computed(instruction):
            varying |= written_by(instruction)
    spreading = Spreading(code)
    spreading.add(varying)
    waiting, found = [(fork, _decides(pieces[fork.piece].code[-1])) for fork in forks_of(pieces)], []
    apart: set[int] = set()
    is_changed = True
    while is_changed:
        taken = [fork for fork, names in waiting if not spreading.tainted.isdisjoint(names)]
        waiting = [(fork, names) for fork, names in waiting if spreading.tainted.isdisjoint(names)]
        for fork in taken:
            for number in fork.apart - apart:
                for instruction in pieces[number].code:
                    spreading.add(written_by(instruction))
            apart |= fork.apart
        found += taken
        is_changed = bool(taken)
    return found


def _varies(name: str) -> bool:
    """Of a name that no instruction sets: a special register, or one that has no value. Others are parameters and addresses."""
    return name.startswith("%") and name not in _SAME_REGISTERS


def _is_computed(instruction: Instruction) -> bool:
    """Whether its result is the same where its operands are."""
    if instruction.opcode in ("ld", "ldu"):
        return STRONG.isdisjoint(instruction.modifiers) and "local" not in instruction.modifiers
    if instruction.opcode == "cvta" and "local" in instruction.modifiers:
        return False  # one address, and memory of each thread's own
    return instruction.opcode in _PURE


def _decides(last: Instruction) -> set[str]:
    names = {last.guard.predicate} if last.guard is not None else set()
    return names | {name.text for name in names_of(last.operands[:1])} if last.opcode == "brx" else names
