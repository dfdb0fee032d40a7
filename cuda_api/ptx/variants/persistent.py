"""
The variant whose blocks take their numbers from a counter until the numbers run out or they are told to stop.

Fewer blocks are launched than the grid has, as many as fit the device, say. Each of them, again and again: one thread reads counter and
limit, and stops if the limit is reached, else takes the next number and tells the others the index that belongs to it; all run the kernel's
body. To stop a running kernel the limit is set to 0; launched again with the same counter it goes on where it was. No number is lost, none is
run twice. On some multiprocessors blocks give way to others' while the kernel goes on (split.py).

The body is a loop's body now, so where a thread of the kernel ended it goes to the loop's end and waits there for the others of its block,
which also keeps shared memory from the next block until all are done with this one. In the kernel, threads that have ended count for no
barrier; here they still run. So a kernel of which some threads may end while others have barriers before them has no such variant (ending.py).

Wrong when: an asynchronous copy that nobody waited for lands when the next block has begun. Units with such copies are refused, cp.async is
waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cuda_api.generated.values import PERSISTENT_STATE_NAME, PersistentDescriptor, PersistentState, Whole
from cuda_api.ptx.syntax import (
    Address,
    Alias,
    Block,
    Function,
    Guard,
    Instruction,
    Integer,
    Label,
    Module,
    Name,
    Operand,
    Pragma,
    Statement,
    Variable,
)
from cuda_api.ptx.variants import index, split
from cuda_api.ptx.variants.ending import check_ends
from cuda_api.ptx.variants.part import AXES, BLOCK, PREFIX, RunsWholeError, alone
from cuda_api.ptx.variants.sliced import descriptor, load_sizes, load_word
from cuda_api.ptx.variants.used import used_by
from cuda_api.ptx.variants.walk import instructions, rewritten
from cuda_api.record import replace

_HAS_BLOCK_BYTES = 12

_ASYNCHRONOUS = frozenset(("mbarrier", "wgmma", "setmaxnreg", "griddepcontrol", "alloca", "stacksave", "tensormap"))

_Item = Function | Variable | Alias | Pragma

_HEAD, _TAKE, _ENDS, _TOLD, _DONE = (f"{PREFIX}{name}" for name in ("next", "take", "ends", "told", "done"))
_TEST = Name(f"%{PREFIX}test")
_STATE, _COUNTER, _LIMIT, _BLOCKS, _NUMBER = (
    Name(f"%{PREFIX}{name}") for name in ("state", "counter", "limit", "blocks", "number")
)
_WORD, _OTHER, _HAS_BLOCK = (Name(f"%{PREFIX}{name}") for name in ("word", "other", "has"))
_PREDICATES, _LONGS, _WORDS = (
    (_TEST,),
    (_STATE, _COUNTER, _LIMIT, _BLOCKS, _NUMBER),
    (_WORD, _OTHER, _HAS_BLOCK),
)


def persist_kernel(module: Module, kernel: str, addresses: Mapping[str, int]) -> Module:
    """As `slice_kernel`, with this variant's descriptor. It has one counter, so it runs one grid at a time. Raises RunsWholeError."""
    own = alone(module, used_by(module, kernel).names, addresses)
    for function in own.functions:
        _check_units(function)
    check_ends(own, kernel)
    items = [_item(item, kernel) for item in own.items]
    words = (PersistentState.SIZE // 8,)
    state = Variable("global", "b64", PERSISTENT_STATE_NAME, alignment=16, dimensions=words, linkage="visible")
    return index.with_block_words(replace(own, items=(state, *items)))


def _item(item: _Item, kernel: str) -> _Item:
    if not isinstance(item, Function):
        return item
    if item.name == kernel:
        return _entry(item)
    return index.from_shared(item) if index.reads_index(item) else item


def _check_units(function: Function) -> None:
    for instruction in instructions(function.body or Block(())):
        if (
            instruction.opcode in _ASYNCHRONOUS
            or instruction.opcode.startswith("tcgen05")
            or (instruction.opcode == "cp" and "bulk" in instruction.modifiers)
        ):
            raise RunsWholeError(Whole.ASYNCHRONOUS_UNITS, f"{function.name}: {instruction.spelling}")
        if instruction.opcode == "exit" and not function.is_entry:
            raise RunsWholeError(Whole.EARLY_RETURNS, f"{function.name} ends its thread")


def _entry(function: Function) -> Function:
    assert function.body is not None
    own = Block(tuple(_without_end(function.body.statements)))
    statements: tuple[Statement, ...] = (
        *_declarations(),
        *_begin(),
        Label(_HEAD),
        *_take_number(),
        *_go_on(),
        rewritten(own, _in_loop),
        Label(_DONE),
        *_copies_are_done(function.body),
        _all_are_here(),
        Instruction("bra", ("uni",), (Name(_HEAD),)),
    )
    return replace(
        function,
        parameters=(*function.parameters, descriptor(PersistentDescriptor.SIZE)),
        body=Block(statements),
    )


def _without_end(statements: tuple[Statement, ...]) -> Iterable[Statement]:
    """What follows the body does what a return at its end does."""
    last = statements[-1] if statements else None
    is_return = isinstance(last, Instruction) and last.opcode in ("ret", "exit") and last.guard is None
    return statements[:-1] if is_return else statements


def _copies_are_done(body: Block) -> Iterator[Instruction]:
    if any(item.opcode == "cp" and "async" in item.modifiers for item in instructions(body)):
        yield Instruction("cp", ("async", "wait_all"), ())


def _declarations() -> Iterator[Variable]:
    yield from index.registers()
    yield from split.registers()
    for names, kind in ((_PREDICATES, "pred"), (_LONGS, "b64"), (_WORDS, "b32")):
        yield from (Variable("reg", kind, name.text) for name in names)


def _begin() -> Iterator[Statement]:
    yield Instruction("mov", ("u64",), (_STATE, Name(PERSISTENT_STATE_NAME)))
    yield load_word(_BLOCKS, PersistentDescriptor.NR_BLOCKS, "u64")
    yield from load_sizes(PersistentDescriptor.GRID)
    yield from _is_other()
    yield from split.begin(_TEST)


def _all_are_here() -> Instruction:
    return Instruction("bar", ("sync",), (Integer(0),))


def _is_other() -> Iterator[Statement]:
    """Whether this is not the first thread."""
    yield Instruction("mov", ("u32",), (_WORD, Name("%tid", "x")))
    for axis in AXES[1:]:
        yield Instruction("mov", ("u32",), (_OTHER, Name("%tid", axis)))
        yield Instruction("or", ("b32",), (_WORD, _WORD, _OTHER))
    yield Instruction("setp", ("ne", "u32"), (_TEST, _WORD, Integer(0)))


def _take_number() -> Iterator[Statement]:
    """By the first thread: the next number and its index, or word 3 of BLOCK stays 0. Leads to _TOLD, as the others go at once."""
    yield from _is_other()
    yield _to(_TOLD, _TEST)
    yield Instruction("st", ("shared", "u32"), (Address(Name(BLOCK), _HAS_BLOCK_BYTES), Integer(0)))
    for offset_bytes, value in ((PersistentState.LIMIT, _LIMIT), (PersistentState.COUNTER, _COUNTER)):
        yield Instruction("ld", ("volatile", "global", "u64"), (value, Address(_STATE, offset_bytes)))
    yield from split.give_way(_STATE, _TAKE, _TOLD)
    yield Label(_TAKE)
    yield Instruction("setp", ("ge", "u64"), (_TEST, _COUNTER, _LIMIT))
    yield _to(_ENDS, _TEST)
    yield Instruction("atom", ("global", "add", "u64"), (_NUMBER, Address(_STATE, PersistentState.COUNTER), Integer(1)))
    yield Instruction("setp", ("ge", "u64"), (_TEST, _NUMBER, _BLOCKS))
    yield _to(_ENDS, _TEST)
    yield from _index_of_number()
    yield from index.stores(index.INDEX_BYTES)
    yield from index.stores(index.SIZE_BYTES)
    yield Instruction("st", ("shared", "u32"), (Address(Name(BLOCK), _HAS_BLOCK_BYTES), Integer(1)))
    yield Instruction("bra", (), (Name(_TOLD),))
    yield Label(_ENDS)
    yield from split.leave(_STATE, _TOLD)
    yield Label(_TOLD)


def _to(label: str, test: Name) -> Instruction:
    return Instruction("bra", (), (Name(label),), Guard(test.text))


def _index_of_number() -> Iterator[Instruction]:
    """x fastest, as the device counts blocks."""
    x, y, z = (index.index_register(axis) for axis in AXES)
    width, height = index.size_register("x"), index.size_register("y")
    steps: tuple[tuple[str, tuple[Operand, ...]], ...] = (
        ("div", (_OTHER, _WORD, width)),
        ("rem", (x, _WORD, width)),
        ("div", (z, _OTHER, height)),
        ("rem", (y, _OTHER, height)),
    )
    yield Instruction("cvt", ("u32", "u64"), (_WORD, _NUMBER))
    for opcode, operands in steps:
        yield Instruction(opcode, ("u32",), operands)


def _go_on() -> Iterator[Instruction]:
    """With the index that the first thread told; without one the block is at its end, all of it."""
    yield _all_are_here()
    yield Instruction("ld", ("shared", "u32"), (_HAS_BLOCK, Address(Name(BLOCK), _HAS_BLOCK_BYTES)))
    yield Instruction("setp", ("eq", "u32"), (_TEST, _HAS_BLOCK, Integer(0)))
    yield Instruction("exit", (), (), Guard(_TEST.text))
    for place, axis in enumerate(AXES):
        address = Address(Name(BLOCK), index.INDEX_BYTES + 4 * place)
        yield Instruction("ld", ("shared", "u32"), (index.index_register(axis), address))


def _in_loop(instruction: Instruction) -> Iterable[Statement]:
    if instruction.opcode in ("ret", "exit"):
        return (Instruction("bra", (), (Name(_DONE),), instruction.guard),)
    return (index.in_registers(instruction),)
