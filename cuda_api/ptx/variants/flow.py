"""
The control flow of one function: straight pieces of code, where each may go on, and the loops they make.

Labels of nested blocks may repeat names of outer ones; a branch means the innermost. A loop is a strongly connected part; without the piece at
which it is entered, the loops within it are left. Where threads that parted at a branch come together again is the first piece that all ways to
the end lead by.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator
from dataclasses import dataclass, field

from cuda_api.generated.values import Whole
from cuda_api.ptx.syntax import Block, Instruction, Label, Name, Targets
from cuda_api.ptx.variants.part import RunsWholeError

MOST_PIECES = 4096
"""Of a function, and eight times as many ways from one to another. What is found out of pieces takes time and memory that grow with their
square; PTX comes from guests."""
_RETURNS = frozenset(("ret", "exit"))
_ENDS = _RETURNS | {"trap"}
_BRANCHES = frozenset(("bra", "brx"))


@dataclass(slots=True)
class Piece:
    """Runs from its first instruction to its last. `goes_to` are numbers of pieces; `may_end`: the function may return behind the last one."""

    code: list[Instruction] = field(default_factory=list)
    goes_to: list[int] = field(default_factory=list)
    may_end: bool = False


@dataclass(frozen=True, slots=True)
class Loop:
    """Every piece of it reaches every other; `entry` is where it is entered."""

    entry: int
    pieces: frozenset[int]


@dataclass(frozen=True, slots=True)
class Fork:
    """`piece` ends with a branch, or with a return that not all take. `apart`: the pieces between it and `join`, where all come by before the
    end; None: that is the end itself."""

    piece: int
    apart: frozenset[int]
    join: int | None


@dataclass(slots=True)
class _Flat:
    items: list[tuple[Instruction, tuple[int, ...]] | int] = field(default_factory=list)
    nr_labels: int = 0


def pieces_of(body: Block) -> list[Piece]:
    """The function's pieces; it begins with the first. Raises RunsWholeError when there are too many."""
    flat = _Flat()
    _flatten(body, ChainMap(), ChainMap(), flat)
    pieces = [Piece()]
    starts: dict[int, int] = {}
    branches: list[tuple[int, tuple[int, ...]]] = []
    is_open = True
    for item in flat.items:
        if isinstance(item, int):
            if pieces[-1].code or not is_open:
                _begin(pieces, is_open)
            starts[item], is_open = len(pieces) - 1, True
            continue
        instruction, targets = item
        if not is_open:
            _begin(pieces, is_open)
            is_open = True
        pieces[-1].code.append(instruction)
        if instruction.opcode in _ENDS or instruction.opcode in _BRANCHES:
            branches.append((len(pieces) - 1, targets))
            pieces[-1].may_end = instruction.opcode in _RETURNS
            if instruction.guard is None:
                is_open = False
            else:
                _begin(pieces, True)
    pieces[-1].may_end |= is_open
    nr_ways = sum(len(targets) for _, targets in branches)
    if len(pieces) > MOST_PIECES or nr_ways > 8 * MOST_PIECES:
        raise RunsWholeError(Whole.TOO_LARGE, f"{len(pieces)} pieces of code")
    for number, targets in branches:
        pieces[number].goes_to += [starts[target] for target in targets if target in starts]
    return pieces


def _begin(pieces: list[Piece], is_reached: bool) -> None:
    if is_reached:
        pieces[-1].goes_to.append(len(pieces))
    pieces.append(Piece())


def _flatten(block: Block, labels: ChainMap[str, int], tables: ChainMap[str, tuple[int, ...]], flat: _Flat) -> None:
    for statement in block.statements:
        if isinstance(statement, Label):
            labels[statement.name] = flat.nr_labels
            flat.nr_labels += 1
    for statement in block.statements:
        if isinstance(statement, Targets):
            tables[statement.name] = tuple(labels[target] for target in statement.targets if target in labels)
    for statement in block.statements:
        match statement:
            case Label(name):
                flat.items.append(labels[name])
            case Block():
                _flatten(statement, labels.new_child(), tables.new_child(), flat)
            case Instruction():
                flat.items.append((statement, _targets(statement, labels, tables)))


def _targets(
    instruction: Instruction, labels: ChainMap[str, int], tables: ChainMap[str, tuple[int, ...]]
) -> tuple[int, ...]:
    names = [operand.text for operand in instruction.operands if isinstance(operand, Name)]
    if instruction.opcode == "bra":
        return tuple(labels[name] for name in names if name in labels)
    if instruction.opcode == "brx":
        return tables.get(names[-1], ()) if names else ()
    return ()


def loops_of(pieces: list[Piece]) -> Iterator[Loop]:
    """All loops, each before those within it."""
    waiting = [frozenset(range(len(pieces)))]
    while waiting:
        within = waiting.pop()
        for part in _strongly_connected(pieces, within):
            loop = Loop(_entry(pieces, part), part)
            yield loop
            waiting.append(part - {loop.entry})


def _entry(pieces: list[Piece], part: frozenset[int]) -> int:
    entered = [
        target
        for number, piece in enumerate(pieces)
        if number not in part
        for target in piece.goes_to
        if target in part
    ]
    return 0 if 0 in part else min(entered or part)


def _strongly_connected(pieces: list[Piece], within: frozenset[int]) -> Iterator[frozenset[int]]:
    """The parts that hold a cycle: in the order in which a first walk leaves the pieces, backwards, what reaches each (Kosaraju)."""
    backwards: dict[int, list[int]] = {number: [] for number in within}
    for number in within:
        for target in pieces[number].goes_to:
            if target in within:
                backwards[target].append(number)
    taken: set[int] = set()
    for root in reversed(_leaving_order(pieces, within)):
        part = _reached(root, backwards, taken)
        taken |= part
        if len(part) > 1 or any(number in pieces[number].goes_to for number in part):
            yield frozenset(part)


def _leaving_order(pieces: list[Piece], within: frozenset[int]) -> list[int]:
    order: list[int] = []
    seen: set[int] = set()
    for root in sorted(within):
        path = [(root, iter(pieces[root].goes_to))] if root not in seen else []
        seen.add(root)
        while path:
            number, rest = path[-1]
            following = next((target for target in rest if target in within and target not in seen), None)
            if following is None:
                order.append(number)
                path.pop()
            else:
                seen.add(following)
                path.append((following, iter(pieces[following].goes_to)))
    return order


def _reached(root: int, edges: dict[int, list[int]], taken: set[int]) -> set[int]:
    found: set[int] = set()
    waiting = [root] if root not in taken else []
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting.extend(target for target in edges[number] if target not in taken)
    return found


def forks_of(pieces: list[Piece]) -> Iterator[Fork]:
    """Of pieces that may go on in more than one way."""
    behind = _behind(pieces)
    for number, piece in enumerate(pieces):
        if len({*piece.goes_to}) + piece.may_end < 2:
            continue
        stops = behind[number] & ~(1 << number)
        apart: set[int] = set()
        joins: set[int] = set()
        waiting = list(piece.goes_to)
        while waiting:
            target = waiting.pop()
            if stops >> target & 1:
                joins.add(target)
            elif target not in apart:
                apart.add(target)
                waiting.extend(pieces[target].goes_to)
        yield Fork(number, frozenset(apart), next(iter(joins), None))


def _behind(pieces: list[Piece]) -> list[int]:
    """For each piece those, as bits, that every way from it to the end leads by: its post-dominators, itself among them."""
    everything = (1 << len(pieces)) - 1
    found = [everything] * len(pieces)
    is_changed = True
    while is_changed:
        is_changed = False
        for number in range(len(pieces) - 1, -1, -1):
            piece = pieces[number]
            common = 0 if piece.may_end or not piece.goes_to else everything
            for target in piece.goes_to:
                common &= found[target]
            common |= 1 << number
            if common != found[number]:
                found[number], is_changed = common, True
    return found
