"""
Loops that wait for another thread.

Threads of a block share one CPU thread and are switched only where they wait, so a loop that polls memory for what another thread will write
must let that one run. Such a loop is known by what ends it: a branch out of it hangs on a value that somebody else can change, read in the
loop by an atomic, volatile or acquiring access. Loops are found as strongly connected parts of the control flow graph, outer ones first, each
with its header; every edge back to the header of such a loop becomes a place to yield.

Two kinds of loops look the same and wait for nobody. Compare-and-swap until it succeeds, with what the last try found, fails only when
another thread got on. And a counter that is only ever added to (a queue of work) changes by the thread's own doing.

Wrong when: a loop polls with plain loads and no fence, which PTX's memory model leaves undefined, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cuda_api.ptx.syntax import Instruction, Integer, Label, Name
from cuda_api.record import record
from softgpu.compiler.flow.effects import effects, names_of
from softgpu.compiler.flow.flatten import FlatFunction
from softgpu.compiler.flow.graph import Graph, Region, control_flow, regions

_STRONG = frozenset(("volatile", "relaxed", "acquire", "mmio", "cv", "cg"))
_FENCES = frozenset(("membar", "fence", "nanosleep"))
_OWN_SPACES = frozenset(("param", "const", "local", "nc"))
_COUNTING = frozenset(("add", "inc"))


@record
class Callees:
    """Functions that poll, and functions with a fence, when they are called; `of_call` names those that a call may mean."""

    polling: frozenset[str]
    fencing: frozenset[str]
    of_call: Callable[[Instruction], set[str]]

    def poll(self, instruction: Instruction) -> bool:
        return instruction.opcode == "call" and not self.polling.isdisjoint(self.of_call(instruction))

    def fence(self, instruction: Instruction) -> bool:
        if instruction.opcode == "call":
            return not self.fencing.isdisjoint(self.of_call(instruction))
        return is_fence(instruction)


Edge = tuple[int, int]
"""From the block whose last item in the flat code has this index to the block that begins at that one."""


def polls(instruction: Instruction) -> bool:
    """Whether it reads what another thread may change."""
    if instruction.opcode == "atom":
        return True
    if instruction.opcode == "mbarrier":
        return "test_wait" in instruction.modifiers or "try_wait" in instruction.modifiers
    return (
        instruction.opcode in ("ld", "ldu")
        and not _STRONG.isdisjoint(instruction.modifiers)
        and _is_shared(instruction)
    )


def is_fence(instruction: Instruction) -> bool:
    return instruction.opcode in _FENCES


def spin_edges(flat: FlatFunction, callees: Callees) -> frozenset[Edge]:
    """The edges of a function's control flow on which a waiting thread yields."""
    if not any(True for _ in _sources(dict(enumerate(flat.code)), callees)):
        return frozenset()
    graph = control_flow(flat)
    found: set[Edge] = set()
    for region in regions(graph):
        if _waits(flat, graph, region, callees):
            found.update(
                (graph.blocks[block].stop - 1, graph.blocks[region.header].start)
                for block in region.blocks
                if region.header in graph.successors[block]
            )
    return frozenset(found)


def _is_shared(instruction: Instruction) -> bool:
    return not any(word.split("::")[0] in _OWN_SPACES for word in instruction.modifiers)


def _waits(flat: FlatFunction, graph: Graph, region: Region, callees: Callees) -> bool:
    items = {index: flat.code[index] for block in region.blocks for index in graph.blocks[block]}
    sources = set(_sources(items, callees))
    if not sources:
        return False
    effect_of = {index: effects(item) for index, item in items.items() if isinstance(item, Instruction)}
    tainted = {name for index in sources for name in effect_of[index].writes}
    nr_before = 0
    while nr_before < len(tainted):
        nr_before = len(tainted)
        for effect in effect_of.values():
            if not tainted.isdisjoint(effect.reads):
                tainted |= effect.writes
        for index in _decided(flat, graph, region, tainted):
            if index in effect_of:
                tainted |= effect_of[index].writes - {"[global]"}
    return any(_ends_on(flat, graph, region, block, tainted) for block in region.blocks)


def _sources(items: dict[int, Instruction | Label], callees: Callees) -> Iterator[int]:
    """The instructions of a loop whose results others decide."""
    instructions = {index: item for index, item in items.items() if isinstance(item, Instruction)}
    has_fence = any(callees.fence(item) for item in instructions.values())
    only_counts = all(_counts(item) for item in instructions.values() if item.opcode == "atom")
    for index, item in instructions.items():
        if item.opcode == "atom":
            is_source = not only_counts and not _is_retry(item, list(instructions.values()))
        elif item.opcode == "call":
            is_source = callees.poll(item)
        else:
            is_source = polls(item) or (has_fence and item.opcode in ("ld", "ldu") and _is_shared(item))
        if is_source:
            yield index


def _counts(atomic: Instruction) -> bool:
    operand = atomic.operands[2] if len(atomic.operands) > 2 else None
    return not _COUNTING.isdisjoint(atomic.modifiers) and isinstance(operand, Integer) and operand.value > 0


def _is_retry(atomic: Instruction, instructions: list[Instruction]) -> bool:
    """Compare and swap whose next try compares with what this one found, in a loop that ends when the two were equal."""
    if "cas" not in atomic.modifiers or len(atomic.operands) < 4:
        return False
    found, wanted = atomic.operands[0], atomic.operands[2]
    if not isinstance(found, Name) or not isinstance(wanted, Name):
        return False
    is_compared = any(
        item.opcode == "setp"
        and item.modifiers[0] in ("eq", "ne")
        and {operand.text for operand in item.operands[1:] if isinstance(operand, Name)} == {found.text, wanted.text}
        for item in instructions
    )
    return is_compared and _is_copy_of(wanted.text, found.text, instructions, set())


def _is_copy_of(name: str, origin: str, instructions: list[Instruction], seen: set[str]) -> bool:
    """Whether all that the loop ever assigns to `name` is `origin`, by way of moves."""
    if name in seen:
        return False
    definitions = [item for item in instructions if name in effects(item).writes]
    for item in definitions:
        source = item.operands[1] if len(item.operands) == 2 else None
        if item.opcode != "mov" or not isinstance(source, Name):
            return False
        if source.text != origin and not _is_copy_of(source.text, origin, instructions, seen | {name}):
            return False
    return bool(definitions)


def _condition(flat: FlatFunction, graph: Graph, block: int) -> set[str]:
    """What decides where a block goes on."""
    last = flat.code[graph.blocks[block].stop - 1]
    if not isinstance(last, Instruction):
        return set()
    names = {last.guard.predicate} if last.guard is not None else set()
    return names | (names_of(last.operands[:1]) if last.opcode == "brx" else set())


def _ends_on(flat: FlatFunction, graph: Graph, region: Region, block: int, tainted: set[str]) -> bool:
    leaves = graph.leaves[block] or any(successor not in region.blocks for successor in graph.successors[block])
    return leaves and not tainted.isdisjoint(_condition(flat, graph, block))


def _decided(flat: FlatFunction, graph: Graph, region: Region, tainted: set[str]) -> Iterator[int]:
    """Items that run or not by a tainted branch within the loop: one of its ways reaches them before the next turn, another does not."""
    for block in region.blocks:
        inside = [successor for successor in graph.successors[block] if successor in region.blocks]
        if len(inside) < 2 or tainted.isdisjoint(_condition(flat, graph, block)):
            continue
        reached = [_reached(graph, region, start) for start in inside]
        always = reached[0].intersection(*reached[1:])
        for decided in reached[0].union(*reached[1:]) - always:
            yield from graph.blocks[decided]


def _reached(graph: Graph, region: Region, start: int) -> set[int]:
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        block = waiting.pop()
        if block in seen or block == region.header or block not in region.blocks:
            continue
        seen.add(block)
        waiting.extend(graph.successors[block])
    return seen
