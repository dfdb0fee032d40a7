"""
How many registers a function would need: the most 32-bit values that are alive at once, and some for addresses.

Programs size their grids by it (occupancy), and PTX declares a register for every value it ever computes. Wrong by what a real compiler's
scheduling and rematerialisation make of it; large functions are not analysed, and need as many as they declare.
"""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction
from softgpu.compiler.effects import Effects, effects
from softgpu.compiler.flatten import FlatFunction
from softgpu.compiler.graph import Graph, control_flow

_MAX_INSTRUCTIONS = 4000
_MAX_REGISTERS = 255
_ADDRESS_REGISTERS = 8


def nr_registers(flat: FlatFunction) -> int:
    """Registers of 32 bits, from 1 to 255."""
    words = {
        name: 2 if declared.endswith("64") else int(declared != "pred") for name, declared in flat.registers.items()
    }
    declared = sum(words.values())
    if declared <= _ADDRESS_REGISTERS or len(flat.code) > _MAX_INSTRUCTIONS:
        return max(1, min(declared, _MAX_REGISTERS))
    return min(_most_alive(flat, words) + _ADDRESS_REGISTERS, declared, _MAX_REGISTERS)


def _most_alive(flat: FlatFunction, words: dict[str, int]) -> int:
    graph = control_flow(flat)
    effect_of = [effects(item) if isinstance(item, Instruction) else None for item in flat.code]
    alive_at_start: list[set[str]] = [set() for _ in graph.blocks]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(graph.blocks))):
            alive = _alive_at_end(graph, number, alive_at_start)
            for index in reversed(graph.blocks[number]):
                _step_back(effect_of[index], alive, words)
            if len(alive) != len(alive_at_start[number]):
                alive_at_start[number] = alive
                changed = True
    most = 0
    for number, block in enumerate(graph.blocks):
        alive = _alive_at_end(graph, number, alive_at_start)
        count = sum(words[name] for name in alive)
        most = max(most, count)
        for index in reversed(block):
            count += _step_back(effect_of[index], alive, words)
            most = max(most, count)
    return most


def _alive_at_end(graph: Graph, number: int, alive_at_start: list[set[str]]) -> set[str]:
    alive: set[str] = set()
    return alive.union(*(alive_at_start[successor] for successor in graph.successors[number]))


def _step_back(effect: Effects | None, alive: set[str], words: dict[str, int]) -> int:
    """From behind an instruction to before it; returns by how many words that changes what is alive."""
    if effect is None:
        return 0
    ended = set() if effect.is_guarded else effect.writes & alive
    alive -= ended
    begun = (effect.reads & words.keys()) - alive
    alive |= begun
    return sum(words[name] for name in begun) - sum(words[name] for name in ended)
