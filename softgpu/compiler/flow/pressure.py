"""
How many registers a function would need: the most 32-bit values that are alive at once, and some for addresses.

Programs size their grids by it (occupancy), and PTX declares a register for every value it ever computes. Wrong by what a real compiler's
scheduling and rematerialisation make of it; large functions are not analysed, and need as many as they declare.
"""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction, Label
from softgpu.compiler.flow.effects import effects
from softgpu.compiler.flow.flatten import FlatFunction
from softgpu.compiler.flow.graph import Graph, control_flow

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
    """Sets of registers are whole numbers, a bit for each register."""
    bit_of = {name: 1 << number for number, name in enumerate(words)}
    singles, doubles = (sum(bit_of[name] for name, count in words.items() if count == size) for size in (1, 2))
    graph = control_flow(flat)
    blocks = [[_step(item, bit_of) for item in reversed(flat.code[block.start : block.stop])] for block in graph.blocks]
    wholes = [_whole(steps) for steps in blocks]
    alive_at_start = [0] * len(blocks)
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(blocks))):
            reads, writes = wholes[number]
            alive = _alive_at_end(graph, number, alive_at_start) & ~writes | reads
            changed |= alive != alive_at_start[number]
            alive_at_start[number] = alive
    most = 0
    for number, steps in enumerate(blocks):
        alive = _alive_at_end(graph, number, alive_at_start)
        most = max(most, _nr_words(alive, singles, doubles))
        for reads, writes in steps:
            alive = alive & ~writes | reads
            most = max(most, _nr_words(alive, singles, doubles))
    return most


def _nr_words(alive: int, singles: int, doubles: int) -> int:
    return (alive & singles).bit_count() + 2 * (alive & doubles).bit_count()


def _alive_at_end(graph: Graph, number: int, alive_at_start: list[int]) -> int:
    alive = 0
    for successor in graph.successors[number]:
        alive |= alive_at_start[successor]
    return alive


def _step(item: Instruction | Label, bit_of: dict[str, int]) -> tuple[int, int]:
    """What an instruction reads, and what it writes in any case."""
    if isinstance(item, Label):
        return 0, 0
    effect = effects(item)
    writes = set() if effect.is_guarded else effect.writes
    return _bits(effect.reads, bit_of), _bits(writes, bit_of)


def _bits(names: set[str], bit_of: dict[str, int]) -> int:
    bits = 0
    for name in names:
        bits |= bit_of.get(name, 0)
    return bits


def _whole(steps: list[tuple[int, int]]) -> tuple[int, int]:
    """The same for several, the last one first."""
    all_reads = all_writes = 0
    for reads, writes in steps:
        all_reads = all_reads & ~writes | reads
        all_writes |= writes
    return all_reads, all_writes
