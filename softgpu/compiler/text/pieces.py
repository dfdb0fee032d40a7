"""
What a module's code consists of, each piece a text of its own, so that several processes can write and optimise them at once.

A piece defines some functions that other pieces may name. It is written when somebody asks for its lines: the process that does is the one
that compiles it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

from cuda_api.record import field, record
from softgpu.compiler.text.unit import Unit

Lines = Callable[[Unit], Iterable[str]]


@record
class Part:
    """Of a module: an LLVM module of its own, written when it is called for, and about how much longer it takes than one PTX instruction."""

    text: Callable[[], str]
    weight: int


@record
class Piece:
    """
    `lines` writes it for a unit that collects what it asks for. `defines` and `uses` are functions, each with its declaration; `reachable` are
    the PTX functions that its code may call, `shared` lines that several pieces need once. `weight` is about how much longer it takes than
    one PTX instruction.
    """

    lines: Lines
    weight: int
    defines: dict[str, str] = field(default_factory=dict)
    uses: dict[str, str] = field(default_factory=dict)
    reachable: frozenset[str] = frozenset()
    shared: tuple[str, ...] = ()


def spread(pieces: Sequence[Piece], nr_parts: int) -> list[list[Piece]]:
    """At most that many parts of about the same weight; the order within one is that of the pieces."""
    parts: list[list[int]] = [[] for _ in range(nr_parts)]
    loads = [(0, number) for number in range(nr_parts)]
    for index in sorted(range(len(pieces)), key=lambda index: -pieces[index].weight):
        load, number = heapq.heappop(loads)
        parts[number].append(index)
        heapq.heappush(loads, (load + pieces[index].weight, number))
    return [[pieces[index] for index in sorted(part)] for part in parts if part]
