"""
The block's index and the grid's size, where a kernel reads them: registers in their place.

Functions that are called have none of the kernel's registers. They read the index from a word of shared memory that the kernel filled: every
thread writes what all others write, and reads after its own write.
"""

from __future__ import annotations

from collections.abc import Iterable

from cuda_api.ptx.syntax import Address, Function, Instruction, Module, Name, Statement, Variable
from cuda_api.ptx.variants.part import AXES, BLOCK, PREFIX
from cuda_api.ptx.variants.walk import instructions, names_of, rewritten, with_names
from cuda_api.record import replace

INDEX_BYTES, SIZE_BYTES = 0, 16
"""Where index and size stand in BLOCK; the word between them is the persistent variant's, that behind them split.py's."""
BLOCK_WORDS = 8


def index_register(axis: str) -> Name:
    """What stands for %ctaid in the kernel."""
    return Name(f"%{PREFIX}ctaid_{axis}")


def size_register(axis: str) -> Name:
    """What stands for %nctaid in the kernel."""
    return Name(f"%{PREFIX}nctaid_{axis}")


def registers() -> tuple[Variable, ...]:
    """Declarations of all six."""
    return tuple(
        Variable("reg", "b32", register(axis).text) for register in (index_register, size_register) for axis in AXES
    )


def reads_index(function: Function) -> bool:
    """Whether it reads its block's index or the grid's size."""
    return function.body is not None and any(
        name.text in ("%ctaid", "%nctaid")
        for instruction in instructions(function.body)
        for name in names_of(instruction.operands)
    )


def in_registers(instruction: Instruction) -> Instruction:
    """The instruction with registers in place of %ctaid and %nctaid."""

    def change(name: Name) -> Name:
        if name.text == "%ctaid":
            return index_register(name.component)
        return size_register(name.component) if name.text == "%nctaid" else name

    return with_names(instruction, change)


def from_shared(function: Function) -> Function:
    """A function that is called: it begins by loading what it reads of index and size."""
    assert function.body is not None
    body = rewritten(function.body, lambda instruction: (in_registers(instruction),))
    begin = [*registers()]
    loads = [
        Instruction("ld", ("shared", "u32"), (register(axis), Address(Name(BLOCK), start + 4 * place)))
        for start, register in ((INDEX_BYTES, index_register), (SIZE_BYTES, size_register))
        for place, axis in enumerate(AXES)
    ]
    return replace(function, body=replace(body, statements=(*begin, *loads, *body.statements)))


def stores(start_bytes: int) -> Iterable[Statement]:
    """The kernel's part: index or size, from its registers."""
    register = index_register if start_bytes == INDEX_BYTES else size_register
    for place, axis in enumerate(AXES):
        yield Instruction("st", ("shared", "u32"), (Address(Name(BLOCK), start_bytes + 4 * place), register(axis)))


def with_block_words(module: Module) -> Module:
    """The module with the words in shared memory, before everything else."""
    words = Variable("shared", "b32", BLOCK, alignment=16, dimensions=(BLOCK_WORDS,))
    return replace(module, items=(words, *module.items))
