"""
Threads of a warp that rely on running in step.

Code from before a warp had a barrier of its own sums up 32 numbers in volatile shared memory without any: each thread adds its neighbour's
number to its own, and what all have read is read before any of them writes. Nobody promises that since Volta, but GPUs do it as long as the
warp stays together, and such programs are still about. Here threads run one after another between the points where they wait. So those of a
warp meet before and behind each volatile store to shared memory, or to memory of any kind, and where those come back that went around one. They
meet as for activemask, which finds out who came along and waits for nobody who does not.

Wrong when: the memory is not volatile, where a GPU may keep numbers in registers, too.

PTX for GPUs before that has votes and shuffles that name no members. Whoever comes along takes part, as activemask tells.
"""

from __future__ import annotations

from collections.abc import Iterable

from cuda_api.ptx.syntax import Instruction, Label, Name
from cuda_api.record import replace
from softgpu.compiler.flow.flatten import FlatFunction

_OTHER_SPACES = frozenset(("global", "local"))
_MEETING = Instruction("activemask", ("b32",), (Name("_"),))
_MEMBERS = Name("members@")
"""A register that no text can name."""
_FIRST_WITH_MEMBERS = 70
"""The oldest target for which votes and shuffles must name them."""


def name_members(flat: FlatFunction, targets: Iterable[str]) -> None:
    """Has votes and shuffles name as members who comes along, in a module for `targets` that knows them without."""
    numbers = [int(digits) for target in targets if (digits := target.removeprefix("sm_")).isdecimal()]
    if not numbers or max(numbers) >= _FIRST_WITH_MEMBERS:
        return
    code: list[Instruction | Label] = []
    for item in flat.code:
        if isinstance(item, Instruction) and item.opcode in ("vote", "shfl") and "sync" not in item.modifiers:
            flat.registers[_MEMBERS.text] = "b32"
            code.append(replace(_MEETING, operands=(_MEMBERS,), guard=item.guard))
            code.append(replace(item, modifiers=("sync", *item.modifiers), operands=(*item.operands, _MEMBERS)))
        else:
            code.append(item)
    flat.code = code


def keep_in_step(flat: FlatFunction) -> None:
    """Puts the meetings into a function."""
    around = _labels_behind_stores(flat)
    code: list[Instruction | Label] = []
    for item in flat.code:
        is_store = isinstance(item, Instruction) and _may_be_for_the_warp(item)
        if is_store and (not code or code[-1] != _MEETING):
            code.append(_MEETING)
        code.append(item)
        if is_store or (isinstance(item, Label) and item.name in around):
            code.append(_MEETING)
    flat.code = code


def _may_be_for_the_warp(instruction: Instruction) -> bool:
    words = instruction.modifiers
    return instruction.opcode == "st" and "volatile" in words and _OTHER_SPACES.isdisjoint(words)


def _labels_behind_stores(flat: FlatFunction) -> set[str]:
    """Those that a branch leads to over a store."""
    last_store = -1
    branches: dict[str, int] = {}
    found = set()
    for index, item in enumerate(flat.code):
        if isinstance(item, Label):
            if branches.get(item.name, index) < last_store:
                found.add(item.name)
        elif _may_be_for_the_warp(item):
            last_store = index
        elif item.opcode == "bra":
            for target in item.operands:
                if isinstance(target, Name):
                    branches.setdefault(target.text, index)
    return found
