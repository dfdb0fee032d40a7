"""
Whether threads of a block may end while others of it still meet.

Threads meet at barriers and in operations of a warp. A thread that has ended is not waited for there; one that merely is done with a block of
a looped kernel would be. So it matters whether, behind some branch, one way leads to the end without a meeting and another to a meeting.
Branches are not asked whether all threads take them alike, so a loop with barriers in it counts, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from cuda_api.ptx.syntax import Block, Instruction, Integer, Module
from cuda_api.ptx.variants.flow import Piece, pieces_of
from cuda_api.ptx.variants.part import RunsWholeError
from cuda_api.ptx.variants.walk import instructions, names_of
from cuda_api.whole import Whole

_WARP = frozenset(
    ("shfl", "vote", "match", "redux", "elect", "activemask", "mma", "wmma", "ldmatrix", "stmatrix", "movmatrix")
)


@dataclass(frozen=True)
class Body:
    """What the persistent variant must know of a kernel. `votes`: its barriers have to let those pass that are at their end."""

    votes: bool


def body_of(module: Module, kernel: str) -> Body:
    """Raises RunsWholeError when threads may end before others of them meet in a way that has no vote."""
    meeting = _meeting_functions(module)
    [entry] = [function for function in module.functions if function.name == kernel]
    assert entry.body is not None
    pieces = pieces_of(entry.body)
    if not _may_part(pieces, meeting):
        return Body(votes=False)
    for function in module.functions:
        for instruction in instructions(function.body or Block(())):
            if _meets(instruction, frozenset()) and not _is_plain_barrier(instruction):
                raise RunsWholeError(Whole.EARLY_RETURNS, f"{function.name}: {instruction.spelling}")
    return Body(votes=True)


def _meeting_functions(module: Module) -> frozenset[str]:
    """Those in which threads may meet, by themselves or by what they call."""
    found: set[str] = set()
    nr_before = -1
    while nr_before < len(found):
        nr_before = len(found)
        for function in module.functions:
            if function.body is not None and any(
                _meets(instruction, frozenset(found)) for instruction in instructions(function.body)
            ):
                found.add(function.name)
    return frozenset(found)


def _meets(instruction: Instruction, meeting: frozenset[str]) -> bool:
    if instruction.opcode == "call":
        return any(name.text in meeting for name in names_of(instruction.operands))
    return instruction.opcode in ("bar", "barrier") or instruction.opcode in _WARP


def _is_plain_barrier(instruction: Instruction) -> bool:
    """Of all threads of the block, and the one barrier that has number 0; or of threads that are counted, whoever else has ended."""
    if instruction.opcode not in ("bar", "barrier") or "warp" in instruction.modifiers:
        return False
    if len(instruction.operands) > 1:
        return "red" not in instruction.modifiers and instruction.operands[0] != Integer(0)
    return "sync" in instruction.modifiers and instruction.operands == (Integer(0),)


def _may_part(pieces: list[Piece], meeting: frozenset[str]) -> bool:
    has_meeting = [any(_meets(instruction, meeting) for instruction in piece.code) for piece in pieces]
    ends_apart = _spread(
        pieces, [piece.may_end and not has for piece, has in zip(pieces, has_meeting, strict=True)], has_meeting
    )
    meets_later = _spread(pieces, has_meeting, [False] * len(pieces))
    for piece in pieces:
        if not piece.code or piece.code[-1].guard is None:
            continue
        if (piece.may_end or any(ends_apart[target] for target in piece.goes_to)) and any(
            meets_later[target] for target in piece.goes_to
        ):
            return True
    return False


def _spread(pieces: list[Piece], first: list[bool], stopped: list[bool]) -> list[bool]:
    """Which pieces lead to one of the first, by way of none of the stopped."""
    found = list(first)
    is_changed = True
    while is_changed:
        is_changed = False
        for number, piece in enumerate(pieces):
            if not found[number] and not stopped[number] and any(found[target] for target in piece.goes_to):
                found[number] = is_changed = True
    return found
