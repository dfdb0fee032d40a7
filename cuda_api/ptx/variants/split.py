"""
How blocks of the persistent variant give way to others on some multiprocessors: what the first thread of each does between two numbers.

The split word (n, k) says that on each of the first n multiprocessors k blocks fewer may be than fit. For each multiprocessor the variant's
state has how many are there. A block that begins enters by compare and swap while there is room, or ends. One that has entered leaves by
compare and swap while there are too many, so exactly as many go as must. Whoever counts a block is this multiprocessor as it finds itself at
each turn: a kernel that the device took off may come back elsewhere, and its blocks then move their counts. Where a block is counted stands
in shared memory, so the loop has no register for it.

Costs a load of the word for each number, by one thread and at the same time as the loads of counter and limit; without a split, branches.

Wrong when: many blocks move at once. Until all have, some multiprocessor may have more counted than are there, and one of the first n may
lose a block that could stay. A multiprocessor of a number that the state has no count for takes no part: its blocks stay.
"""

from __future__ import annotations

from collections.abc import Iterator

from cuda_api.generated.values import SPLIT_K_SHIFT, PersistentDescriptor, PersistentState
from cuda_api.ptx.syntax import Address, Guard, Instruction, Integer, Label, Name, Statement, Variable
from cuda_api.ptx.variants.part import BLOCK, PREFIX
from cuda_api.ptx.variants.sliced import load_word

HOME_BYTES = 28
"""Where in BLOCK it stands which multiprocessor counts the block: its number and 1, or 0 for none."""
NR_COUNTS = (PersistentState.SIZE - PersistentState.LIVE) // 4

_GONE = Integer(0xFFFFFFFF)
"""Added to a count, one less."""
_STAY, _ENTER, _LEAVE_AGAIN, _ENTER_AGAIN = (
    f"{PREFIX}{name}" for name in ("stay", "enter", "leave_again", "enter_again")
)
_TEST, _IS_SPLIT = Name(f"%{PREFIX}given"), Name(f"%{PREFIX}split")
_WORD_ADDRESS, _COUNT = Name(f"%{PREFIX}split_word"), Name(f"%{PREFIX}count")
_HERE, _HOME, _MOST, _FIRST, _FEWER, _LIVE, _SEEN, _WANTED = (
    Name(f"%{PREFIX}{name}") for name in ("here", "home", "most", "first", "fewer", "live", "seen", "wanted")
)


def registers() -> Iterator[Variable]:
    """Declarations; none is used while the kernel's body runs."""
    for names, kind in (
        ((_TEST, _IS_SPLIT), "pred"),
        ((_WORD_ADDRESS, _COUNT), "b64"),
        ((_HERE, _HOME, _MOST, _FIRST, _FEWER, _LIVE, _SEEN, _WANTED), "b32"),
    ):
        yield from (Variable("reg", kind, name.text) for name in names)


def begin(is_other: Name) -> Iterator[Statement]:
    """The first thread's, before its first turn: nobody counts the block. `is_other`: of the other threads."""
    address = Address(Name(BLOCK), HOME_BYTES)
    yield Instruction("st", ("shared", "u32"), (address, Integer(0)), Guard(is_other.text, is_negated=True))


def give_way(state: Name, stays: str, ends: str) -> Iterator[Statement]:
    """Leads to `stays`, with the block counted, or to `ends`, with nobody counting it."""
    yield from _if_split(stays)
    yield from _most_here()
    yield Instruction("ld", ("shared", "u32"), (_HOME, Address(Name(BLOCK), HOME_BYTES)))
    yield from _branch("eq", _HERE, _HOME, _STAY)
    yield from _branch("eq", _HOME, Integer(0), _ENTER)
    yield from _move(state, stays)
    yield from _enter(state, stays, ends)
    yield from _stay(state, stays, ends)


def leave(state: Name, then: str) -> Iterator[Statement]:
    """For a block that ends for another reason. Leads to `then`."""
    yield Instruction("ld", ("shared", "u32"), (_HOME, Address(Name(BLOCK), HOME_BYTES)))
    yield from _branch("eq", _HOME, Integer(0), then)
    yield from _add(state, _HOME, _GONE)


def _if_split(otherwise: str) -> Iterator[Statement]:
    yield load_word(_MOST, PersistentDescriptor.MOST_EACH)
    yield from _branch("eq", _MOST, Integer(0), otherwise)
    yield load_word(_WORD_ADDRESS, PersistentDescriptor.SPLIT, "u64")
    yield from _branch("eq", _WORD_ADDRESS, Integer(0), otherwise, "u64")


def _most_here() -> Iterator[Statement]:
    """Where the block is, and how many may be there: no less than 0, whatever the word says."""
    yield Instruction("ld", ("volatile", "global", "u32"), (_FIRST, Address(_WORD_ADDRESS, 0)))
    yield Instruction("mov", ("u32",), (_HERE, Name("%smid")))
    yield Instruction("shr", ("u32",), (_FEWER, _FIRST, Integer(SPLIT_K_SHIFT)))
    yield Instruction("and", ("b32",), (_FIRST, _FIRST, Integer((1 << SPLIT_K_SHIFT) - 1)))
    yield Instruction("setp", ("lt", "u32"), (_IS_SPLIT, _HERE, _FIRST))
    yield Instruction("selp", ("b32",), (_FEWER, _FEWER, Integer(0), _IS_SPLIT))
    yield Instruction("min", ("u32",), (_FEWER, _FEWER, _MOST))
    yield Instruction("sub", ("u32",), (_MOST, _MOST, _FEWER))
    yield Instruction("add", ("u32",), (_HERE, _HERE, Integer(1)))


def _move(state: Name, stays: str) -> Iterator[Statement]:
    """The block was elsewhere when it was counted. It is here whether there is room or not."""
    yield from _add(state, _HOME, _GONE)
    yield _set_home(Integer(0))
    yield from _branch("gt", _HERE, Integer(NR_COUNTS), stays)
    yield from _add(state, _HERE, Integer(1))
    yield _set_home(_HERE)
    yield Instruction("bra", (), (Name(_STAY),))


def _enter(state: Name, stays: str, ends: str) -> Iterator[Statement]:
    yield Label(_ENTER)
    yield from _branch("gt", _HERE, Integer(NR_COUNTS), stays)
    yield from _change("ge", 1, _ENTER_AGAIN, state, otherwise=ends)
    yield _set_home(_HERE)
    yield Instruction("bra", (), (Name(stays),))


def _stay(state: Name, stays: str, ends: str) -> Iterator[Statement]:
    yield Label(_STAY)
    yield Instruction("bra", (), (Name(stays),), Guard(_IS_SPLIT.text, is_negated=True))
    yield from _change("le", 0xFFFFFFFF, _LEAVE_AGAIN, state, otherwise=stays)
    yield _set_home(Integer(0))
    yield Instruction("bra", (), (Name(ends),))


def _change(unless: str, by: int, again: str, state: Name, *, otherwise: str) -> Iterator[Statement]:
    """Adds to the count of this multiprocessor, by compare and swap, unless it compares so to the most; then it leads elsewhere."""
    yield from _find(state, _HERE)
    count = Address(_COUNT, PersistentState.LIVE - 4)
    yield Instruction("ld", ("volatile", "global", "u32"), (_LIVE, count))
    yield Label(again)
    yield from _branch(unless, _LIVE, _MOST, otherwise)
    yield Instruction("mov", ("u32",), (_SEEN, _LIVE))
    yield Instruction("add", ("u32",), (_WANTED, _SEEN, Integer(by)))
    yield Instruction("atom", ("global", "cas", "b32"), (_LIVE, count, _SEEN, _WANTED))
    yield from _branch("ne", _LIVE, _SEEN, again)


def _add(state: Name, place: Name, value: Integer) -> Iterator[Statement]:
    yield from _find(state, place)
    yield Instruction("red", ("global", "add", "u32"), (Address(_COUNT, PersistentState.LIVE - 4), value))


def _find(state: Name, place: Name) -> Iterator[Statement]:
    yield Instruction("mul", ("wide", "u32"), (_COUNT, place, Integer(4)))
    yield Instruction("add", ("s64",), (_COUNT, _COUNT, state))


def _set_home(value: Name | Integer) -> Statement:
    return Instruction("st", ("shared", "u32"), (Address(Name(BLOCK), HOME_BYTES), value))


def _branch(comparison: str, a: Name, b: Name | Integer, to: str, kind: str = "u32") -> Iterator[Statement]:
    yield Instruction("setp", (comparison, kind), (_TEST, a, b))
    yield Instruction("bra", (), (Name(to),), Guard(_TEST.text))
