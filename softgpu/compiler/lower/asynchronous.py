"""
cp.async, and mbarrier: barriers as objects in shared memory, counted in arrivals, and in bytes that copies bring, and not in threads.

The 64 bits of one hold how many arrivals a phase expects (20 bits), how many of the current phase are still missing (20 bits), how many bytes
are (22 bits, with a sign: they may come before they are expected), and the number of the phase, of which two bits do: nobody waits for any but
the current phase and the one before. All threads of a block run on one CPU thread, so plain loads and stores do. Copies are over before they
begin to count. Barriers of other blocks are for clusters, of which there are none: what names the cluster's shared memory means the block's.
"""

from __future__ import annotations

from cuda_api.ptx.syntax import Address, Instruction, Integer, Not, Operand
from softgpu.compiler.lower.memory import space_of
from softgpu.compiler.text.builder import Builder
from softgpu.compiler.text.registry import lowers

_COUNT_MASK = (1 << 20) - 1
_PENDING_SHIFT = 20
_BYTES_SHIFT = 40
_PHASE_SHIFT = 62
_BYTES_MASK = ((1 << _PHASE_SHIFT) - 1) ^ ((1 << _BYTES_SHIFT) - 1)
_MISSING_MASK = _BYTES_MASK | _COUNT_MASK << _PENDING_SHIFT
_ARRIVALS = ("arrive", "arrive_drop")
_ACTIONS = ("init", "inval", *_ARRIVALS, "expect_tx", "complete_tx", "test_wait", "try_wait", "pending_count")
_WORDS = frozenset(
    (
        *("shared", "shared::cta", "shared::cluster", "b64", "release", "acquire", "relaxed", "cta", "cluster"),
        *("noComplete", "parity", "expect_tx"),
    )
)


def _load(builder: Builder, pointer: str) -> str:
    return builder.let(f"load i64, ptr {pointer}, align 8")


def _barrier(builder: Builder, address: Operand) -> str:
    """The pointer to a barrier."""
    pointer = builder.address(address, space_of(builder.instruction))
    builder.check_address(pointer, 8)
    return pointer


def _count(builder: Builder, operand: Operand) -> str:
    return builder.let(f"zext i32 {builder.read(operand, 'i32')} to i64")


def _with_bytes(builder: Builder, state: str, operation: str, count: str) -> str:
    """`add` or `sub` to the bytes that are missing."""
    moved = builder.let(f"shl i64 {count}, {_BYTES_SHIFT}")
    changed = builder.let(f"and i64 {builder.let(f'{operation} i64 {state}, {moved}')}, {_BYTES_MASK}")
    return builder.let(f"or i64 {builder.let(f'and i64 {state}, {~_BYTES_MASK}')}, {changed}")


def _store(builder: Builder, pointer: str, state: str) -> None:
    """The next phase begins where nothing is missing any more."""
    expected = builder.let(f"and i64 {state}, {_COUNT_MASK}")
    renewed = builder.let(f"add i64 {state}, {builder.let(f'shl i64 {expected}, {_PENDING_SHIFT}')}")
    following = builder.let(f"add i64 {renewed}, {1 << _PHASE_SHIFT}")
    is_over = builder.let(f"icmp eq i64 {builder.let(f'and i64 {state}, {_MISSING_MASK}')}, 0")
    builder.emit(f"store i64 {builder.select(is_over, 'i64', following, state)}, ptr {pointer}, align 8")


def arrive(builder: Builder, pointer: str, count: str, *, is_dropped: bool = False, nr_bytes: str = "") -> str:
    """`count` arrivals, which expect so many bytes more. Returns the state before."""
    old = _load(builder, pointer)
    state = builder.let(f"sub i64 {old}, {count}") if is_dropped else old
    if nr_bytes:
        state = _with_bytes(builder, state, "add", nr_bytes)
    _store(builder, pointer, builder.let(f"sub i64 {state}, {builder.let(f'shl i64 {count}, {_PENDING_SHIFT}')}"))
    return old


@lowers("mbarrier")
def lower_mbarrier(builder: Builder, instruction: Instruction) -> None:
    action, *words = instruction.modifiers
    if action not in _ACTIONS or not _WORDS.issuperset(words):
        raise builder.unsupported()
    if action == "pending_count":
        destination, state = builder.operands(2)
        pending = builder.let(f"lshr i64 {builder.read(state, 'i64')}, {_PENDING_SHIFT}")
        builder.write(
            destination, builder.let(f"trunc i64 {builder.let(f'and i64 {pending}, {_COUNT_MASK}')} to i32"), "i32"
        )
    elif action in ("init", "inval"):
        _initialise(builder, instruction, action)
    elif action in _ARRIVALS:
        _arrive(builder, instruction, is_dropped=action == "arrive_drop")
    elif action in ("expect_tx", "complete_tx"):
        address, count = builder.operands(2)
        pointer = _barrier(builder, address)
        operation = "add" if action == "expect_tx" else "sub"
        _store(builder, pointer, _with_bytes(builder, _load(builder, pointer), operation, _count(builder, count)))
    else:
        _wait(builder, instruction)


def _arrive(builder: Builder, instruction: Instruction, *, is_dropped: bool) -> None:
    """With or without a place for the state."""
    operands = builder.operands(1, 3)
    target, (address, *rest) = (
        (None, operands) if isinstance(operands[0], Address) else (operands[0], operands[1:] or operands)
    )
    pointer = _barrier(builder, address)
    if builder.has("expect_tx"):
        if len(rest) != 1:
            raise builder.invalid("expected a number of bytes")
        old = arrive(builder, pointer, "1", is_dropped=is_dropped, nr_bytes=_count(builder, rest[0]))
    else:
        count = _count(builder, rest[0] if rest else Integer(1))
        old = arrive(builder, pointer, count, is_dropped=is_dropped)
    if target is not None:
        builder.write(target, old, "i64")


def _initialise(builder: Builder, instruction: Instruction, action: str) -> None:
    address, *rest = builder.operands(1, 2)
    pointer = _barrier(builder, address)
    state = "0"
    if action == "init":
        if not rest:
            raise builder.invalid("expected a count")
        count = _count(builder, rest[0])
        state = builder.let(f"mul i64 {count}, {1 + (1 << _PENDING_SHIFT)}")
    builder.emit(f"store i64 {state}, ptr {pointer}, align 8")


def _wait(builder: Builder, instruction: Instruction) -> None:
    """Whether the phase is over: that of a state, or the one of a parity. A wait with a time limit is one that gives up at once."""
    destination, address, wanted, *_ = builder.operands(3, 4)
    pointer = _barrier(builder, address)
    phase = builder.let(f"lshr i64 {_load(builder, pointer)}, {_PHASE_SHIFT}")
    if builder.has("parity"):
        other = _count(builder, wanted)
        phase = builder.let(f"and i64 {phase}, 1")
    else:
        other = builder.let(f"lshr i64 {builder.read(wanted, 'i64')}, {_PHASE_SHIFT}")
    builder.write(destination, builder.let(f"icmp ne i64 {phase}, {other}"), "i1")


@lowers("cp")
def lower_cp(builder: Builder, instruction: Instruction) -> None:
    """cp.async copies at once, so that every wait is over before it begins."""
    words = instruction.modifiers
    if words[:2] == ("async", "bulk"):
        _bulk(builder, instruction)
        return
    if words[:1] != ("async",) or "reduce" in words:
        raise builder.unsupported()
    if words[1:3] == ("mbarrier", "arrive"):
        # Without noinc it adds the arrival that it makes when the copies are done: they are, and nothing changes.
        if "noinc" in words:
            arrive(builder, _barrier(builder, instruction.operands[0]), "1")
        return
    if words[1] in ("commit_group", "wait_group", "wait_all"):
        return
    target, source, size, *rest = builder.operands(3, 5)
    total = int(builder.read(size, "i32"))
    to = builder.address(target, "shared")
    start = builder.address(source, "global")
    rest = rest[:-1] if builder.has("L2::cache_hint") else rest
    copied = _copied(builder, rest[0], total) if rest else str(total)
    wide = builder.convert_bits(copied, "i32", "i64")
    builder.frame.unit.declare("llvm.memcpy.p0.p0.i64", "void", ("ptr", "ptr", "i64", "i1 immarg"))
    builder.frame.unit.declare("llvm.memset.p0.i64", "void", ("ptr", "i8", "i64", "i1 immarg"))
    builder.check_address(to, total)
    if copied == str(total):
        builder.check_address(start, total)
    else:  # the source of nothing may be anywhere
        is_none = builder.let(f"icmp eq i32 {copied}, 0")
        builder.check_address(builder.select(is_none, "ptr", to, start), total)
        builder.emit(f"call void @llvm.memset.p0.i64(ptr {to}, i8 0, i64 {total}, i1 false)")
    builder.emit(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {start}, i64 {wide}, i1 false)")


def _copied(builder: Builder, operand: Operand, total: int) -> str:
    """How many bytes of the source: a number, or a predicate that leaves all of them out."""
    if isinstance(operand, Not) or builder.destination_llvm(operand) == "i1":
        return builder.select(builder.read(operand, "i1"), "i32", "0", str(total))
    return builder.read(operand, "i32")


_BULK_WORDS = frozenset(
    (
        *("async", "bulk", "shared::cluster", "shared::cta", "global", "mbarrier::complete_tx::bytes", "bulk_group"),
        *("L2", "L2::cache_hint", "prefetch", "commit_group", "wait_group", "read"),
    )
)
_BULK_ALIGNMENT_BYTES = 16


def _bulk(builder: Builder, instruction: Instruction) -> None:
    """cp.async.bulk of plain memory, which copies at once, too, and tells a barrier of the block how much."""
    words = instruction.modifiers[2:]
    if not words or not _BULK_WORDS.issuperset(words):
        raise builder.unsupported()
    if words[0] in ("commit_group", "wait_group", "prefetch"):
        return
    spaces = [word for word in words if word.split("::")[0] in ("shared", "global")]
    if len(spaces) != 2:
        raise builder.unsupported()
    has_barrier = "mbarrier::complete_tx::bytes" in words
    target, source, size, *rest = builder.operands(4 if has_barrier else 3, 5)
    to, start = (
        builder.address(operand, space.split("::")[0]) for operand, space in zip((target, source), spaces, strict=True)
    )
    count = _count(builder, size)
    for pointer in (to, start):
        builder.check_address(pointer, _BULK_ALIGNMENT_BYTES)
    builder.frame.unit.declare("llvm.memcpy.p0.p0.i64", "void", ("ptr", "ptr", "i64", "i1 immarg"))
    builder.emit(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {start}, i64 {count}, i1 false)")
    if has_barrier:
        pointer = builder.address(rest[0], "shared")
        builder.check_address(pointer, 8)
        _store(builder, pointer, _with_bytes(builder, _load(builder, pointer), "sub", count))
