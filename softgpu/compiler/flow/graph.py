"""
The control flow of a function as a graph of blocks, and its loops.

A loop is a strongly connected part; taking its header out leaves the loops within it. That finds every cycle, in whatever order a compiler laid
the blocks out, and gives each to the innermost loop that it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator

from cuda_api.ptx.syntax import Instruction, Label, Name
from cuda_api.record import field, mutable_record, record
from softgpu.compiler.flow.flatten import FlatFunction

_ENDS = frozenset(("ret", "exit", "trap"))


@mutable_record
class Graph:
    """`blocks` are ranges of indices into the flat code; `leaves` says whether a block may leave the function."""

    blocks: list[range] = field(default_factory=list)
    successors: list[list[int]] = field(default_factory=list)
    leaves: list[bool] = field(default_factory=list)


@record
class Region:
    """A loop: every block of it reaches every other; `header` is where it is entered."""

    header: int
    blocks: frozenset[int]


def control_flow(flat: FlatFunction) -> Graph:
    """The graph of a function. Labels that do not exist are left out: lowering names them."""
    graph = Graph()
    start = 0
    for index, item in enumerate(flat.code):
        if isinstance(item, Label) and index > start:
            graph.blocks.append(range(start, index))
            start = index
        elif isinstance(item, Instruction) and (item.opcode in ("bra", "brx") or item.opcode in _ENDS):
            graph.blocks.append(range(start, index + 1))
            start = index + 1
    if start < len(flat.code):
        graph.blocks.append(range(start, len(flat.code)))
    of_label: dict[str, int] = {}
    for number, block in enumerate(graph.blocks):
        first = flat.code[block.start]
        if isinstance(first, Label):
            of_label[first.name] = number
    for number in range(len(graph.blocks)):
        _connect(flat, graph, number, of_label)
    return graph


def _connect(flat: FlatFunction, graph: Graph, number: int, of_label: dict[str, int]) -> None:
    last = flat.code[graph.blocks[number].stop - 1]
    targets: list[str] = []
    goes_on, leaves = True, False
    if isinstance(last, Instruction):
        if last.opcode in ("bra", "brx") or last.opcode in _ENDS:
            goes_on = last.guard is not None
        leaves = last.opcode in _ENDS
        if last.opcode == "bra":
            targets = [operand.text for operand in last.operands if isinstance(operand, Name)]
        elif last.opcode == "brx" and len(last.operands) == 2 and isinstance(table := last.operands[1], Name):
            targets = list(flat.targets[table.text].targets) if table.text in flat.targets else []
    successors = [of_label[target] for target in targets if target in of_label]
    if goes_on and number + 1 < len(graph.blocks):
        successors.append(number + 1)
    graph.successors.append(list(dict.fromkeys(successors)))
    graph.leaves.append(leaves)


def regions(graph: Graph) -> Iterator[Region]:
    """All loops, each before those within it."""
    waiting = [frozenset(range(len(graph.blocks)))]
    while waiting:
        within = waiting.pop()
        for component in _components(graph, within):
            header = _header(graph, component)
            yield Region(header, component)
            waiting.append(component - {header})


def _header(graph: Graph, component: frozenset[int]) -> int:
    """The first block that is entered from outside; a loop at the function's very start has block 0."""
    if 0 in component:
        return 0
    entered = {
        successor
        for block, successors in enumerate(graph.successors)
        if block not in component
        for successor in successors
        if successor in component
    }
    return min(entered or component)


def _components(graph: Graph, within: frozenset[int]) -> Iterator[frozenset[int]]:
    """The strongly connected parts that hold a cycle (Tarjan, without recursion)."""
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in sorted(within):
        if root in order:
            continue
        path: list[tuple[int, Iterator[int]]] = []
        _enter(root, order, lowest, stack, on_stack)
        path.append((root, iter(graph.successors[root])))
        while path:
            block, rest = path[-1]
            successor = next((other for other in rest if other in within), None)
            if successor is not None:
                if successor not in order:
                    _enter(successor, order, lowest, stack, on_stack)
                    path.append((successor, iter(graph.successors[successor])))
                elif successor in on_stack:
                    lowest[block] = min(lowest[block], order[successor])
                continue
            path.pop()
            if path:
                parent = path[-1][0]
                lowest[parent] = min(lowest[parent], lowest[block])
            if lowest[block] == order[block]:
                yield from _component(graph, block, stack, on_stack)


def _enter(block: int, order: dict[int, int], lowest: dict[int, int], stack: list[int], on_stack: set[int]) -> None:
    order[block] = lowest[block] = len(order)
    stack.append(block)
    on_stack.add(block)


def _component(graph: Graph, root: int, stack: list[int], on_stack: set[int]) -> Iterator[frozenset[int]]:
    """Takes the part that `root` closes off the stack; nothing if it is a single block without a cycle."""
    members: set[int] = set()
    while root not in members:
        block = stack.pop()
        on_stack.discard(block)
        members.add(block)
    if len(members) > 1 or root in graph.successors[root]:
        yield frozenset(members)
