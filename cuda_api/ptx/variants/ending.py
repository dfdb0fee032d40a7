"""
Whether threads of a block may end while others of it still meet.

Threads meet at barriers and in operations of a warp. A thread that has ended is not waited for there; one that merely is done with a block of
a looped kernel would be. So it matters whether, where threads part, some may come to the end while others meet. To let the former take part in
what the latter do is no way out: where threads of a warp part, the compiler has those that are early wait for the others, and they would wait
for ever on a GPU, each for the other.
"""

from __future__ import annotations

from cuda_api.generated.values import Whole
from cuda_api.ptx.syntax import Block, Instruction, Module
from cuda_api.ptx.variants.flow import Piece, pieces_of
from cuda_api.ptx.variants.part import RunsWholeError
from cuda_api.ptx.variants.varying import varying_forks
from cuda_api.ptx.variants.walk import instructions, names_of

_WARP = frozenset(
    ("shfl", "vote", "match", "redux", "elect", "activemask", "mma", "wmma", "ldmatrix", "stmatrix", "movmatrix")
)
_MEETINGS = _WARP | {"bar", "barrier"}


def check_ends(module: Module, kernel: str) -> None:
    """Raises RunsWholeError when threads may end before others of them meet."""
    meeting = _meeting_functions(module)
    [entry] = [function for function in module.functions if function.name == kernel]
    assert entry.body is not None
    pieces = pieces_of(entry.body)
    meetings = [next((item for item in piece.code if _meets(item, meeting)), None) for piece in pieces]
    meets_later = _meets_later(pieces, [item is not None for item in meetings])
    if not any(meets_later):
        return
    for fork in varying_forks(pieces):
        if fork.join is None or not meets_later[fork.join]:
            for number in sorted(fork.apart):
                if (item := meetings[number]) is not None:
                    raise RunsWholeError(Whole.EARLY_RETURNS, f"{kernel}: {item.spelling}")


def _meeting_functions(module: Module) -> frozenset[str]:
    """Those in which threads may meet, by themselves or by what they call."""
    callers: dict[str, list[str]] = {}
    found: set[str] = set()
    for function in module.functions:
        for instruction in instructions(function.body or Block(())):
            if _meets(instruction, frozenset()):
                found.add(function.name)
            elif instruction.opcode == "call":
                for name in names_of(instruction.operands):
                    callers.setdefault(name.text, []).append(function.name)
    waiting = list(found)
    while waiting:
        new = set(callers.pop(waiting.pop(), ())) - found
        found |= new
        waiting.extend(new)
    return frozenset(found)


def _meets(instruction: Instruction, meeting: frozenset[str]) -> bool:
    if instruction.opcode == "call":
        return any(name.text in meeting for name in names_of(instruction.operands))
    return instruction.opcode in _MEETINGS


def _meets_later(pieces: list[Piece], meets: list[bool]) -> list[bool]:
    """Which pieces have a meeting, or lead to one."""
    found = list(meets)
    is_changed = True
    while is_changed:
        is_changed = False
        for number, piece in enumerate(pieces):
            if not found[number] and any(found[target] for target in piece.goes_to):
                found[number] = is_changed = True
    return found
