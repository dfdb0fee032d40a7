"""Which registers a segment needs when it begins."""

from __future__ import annotations

from collections.abc import Callable

from cuda_api.ptx.syntax import Instruction
from softgpu.compiler.flow.cut import CutCode
from softgpu.compiler.flow.purity import CARRY

Replaced = Callable[[set[str]], set[str]]
"""From the registers that a segment needs to those that it is given: others may be made of them."""


def live_at_cuts(cut: CutCode, replaced: Replaced) -> tuple[dict[int, set[str]], dict[int, set[str]]]:
    """For each segment but the first, what it needs and what it must be given for that."""
    names = cut.flat.registers.keys() | {CARRY}
    needs, kills = [], []
    for block in cut.graph.blocks:
        needed: set[str] = set()
        killed: set[str] = set()
        for index in reversed(block):
            item = cut.flat.code[index]
            if not isinstance(item, Instruction):
                continue
            effect = cut.effect(item)
            if not effect.is_guarded:
                killed |= effect.writes
                needed -= effect.writes
            needed |= effect.reads & names
        needs.append(needed)
        kills.append(killed)
    live: list[set[str]] = [set(needed) for needed in needs]
    given: dict[int, set[str]] = {}
    start_of = {block: segment for segment, block in cut.start_of.items() if segment}
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(live))):
            after: set[str] = set()
            for successor in cut.graph.successors[number]:
                crosses = number in cut.cut_of and successor in start_of
                after |= given.get(start_of[successor], set()) if crosses else live[successor]
            alive = needs[number] | (after - kills[number])
            if len(alive) != len(live[number]):
                live[number] = alive
                changed = True
            if number in start_of:
                found = replaced(alive)
                changed |= found != given.get(start_of[number])
                given[start_of[number]] = found
    return {segment: live[block] for block, segment in start_of.items()}, given
