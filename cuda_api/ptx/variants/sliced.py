"""
The variant that runs a box of the grid: launched with as many blocks as the box has, it adds the box's first index to each block's own.

A box and not a range of block numbers, because an addition is all that this takes: no thread divides. Whoever launches it cuts the grid into
rows of blocks, or parts of a row, or several planes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cuda_api.generated.values import BoxDescriptor
from cuda_api.ptx.syntax import Address, Function, Instruction, Module, Name, Statement, Variable
from cuda_api.ptx.variants import index
from cuda_api.ptx.variants.part import AXES, DESCRIPTOR, alone
from cuda_api.ptx.variants.used import used_by
from cuda_api.ptx.variants.walk import rewritten
from cuda_api.record import replace


def slice_kernel(module: Module, kernel: str, addresses: Mapping[str, int]) -> Module:
    """A module with this one entry, to be launched with its own parameters and, at the next multiple of 8 bytes, the descriptor.

    `addresses`: where the original's variables lie. Raises RunsWholeError.
    """
    own = alone(module, used_by(module, kernel).names, addresses)
    others = {item.name for item in own.functions if not item.is_entry and index.reads_index(item)}
    items = [
        _entry(item, shares_index=bool(others))
        if isinstance(item, Function) and item.name == kernel
        else index.from_shared(item)
        if isinstance(item, Function) and item.name in others
        else item
        for item in own.items
    ]
    sliced = replace(own, items=tuple(items))
    return index.with_block_words(sliced) if others else sliced


def _entry(function: Function, *, shares_index: bool) -> Function:
    assert function.body is not None
    body = rewritten(function.body, lambda instruction: (index.in_registers(instruction),))
    begin: list[Statement] = list(_begin())
    if shares_index:
        begin += [*index.stores(index.INDEX_BYTES), *index.stores(index.SIZE_BYTES)]
    return replace(
        function,
        parameters=(*function.parameters, descriptor(BoxDescriptor.SIZE)),
        body=replace(body, statements=(*index.registers(), *begin, *body.statements)),
    )


def descriptor(size_bytes: int) -> Variable:
    """The parameter that is appended."""
    return Variable("param", "b8", DESCRIPTOR, alignment=8, dimensions=(size_bytes,))


def load_word(to: Name, offset_bytes: int, kind: str = "u32") -> Instruction:
    """A word of the descriptor."""
    return Instruction("ld", ("param", kind), (to, Address(Name(DESCRIPTOR), offset_bytes)))


def load_sizes(offset_bytes: int) -> Iterable[Instruction]:
    """The grid's size, from the descriptor."""
    return (load_word(index.size_register(axis), offset_bytes + 4 * place) for place, axis in enumerate(AXES))


def _begin() -> Iterable[Instruction]:
    for place, axis in enumerate(AXES):
        within, first = index.index_register(axis), index.size_register(axis)
        yield Instruction("mov", ("u32",), (within, Name("%ctaid", axis)))
        yield load_word(first, BoxDescriptor.FIRST + 4 * place)
        yield Instruction("add", ("u32",), (within, within, first))
    yield from load_sizes(BoxDescriptor.GRID)
