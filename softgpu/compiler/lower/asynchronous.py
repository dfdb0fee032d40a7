"""
cp.async, and mbarrier: barriers as objects in shared memory, counted in arrivals and not in threads.

The 64 bits of one hold how many arrivals a phase expects (20 bits), how many of the current phase are still missing (20 bits), and the number
of the phase. All threads of a block run on one CPU thread, so plain loads and stores do. Copies by cp.async are over before they begin to
count. Transactions, and barriers of other blocks, are for devices of capability 9.0.
"""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction, Integer, Operand
from softgpu.compiler.lower.memory import space_of
from softgpu.compiler.text.builder import Builder
from softgpu.compiler.text.registry import lowers

_COUNT_MASK = (1 << 20) - 1
_PENDING_SHIFT = 20
_PHASE_SHIFT = 40
_ACTIONS = ("init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait", "pending_count")
_WORDS = frozenset(("shared", "shared::cta", "b64", "noComplete", "release", "acquire", "cta", "parity", "relaxed"))


def _load(builder: Builder, pointer: str) -> str:
    return builder.let(f"load i64, ptr {pointer}, align 8")


def _barrier(builder: Builder, address: Operand) -> str:
    """The pointer to a barrier."""
    pointer = builder.address(address, space_of(builder.instruction))
    builder.check_address(pointer, 8)
    return pointer


def _count(builder: Builder, operand: Operand) -> str:
    return builder.let(f"zext i32 {builder.read(operand, 'i32')} to i64")


def arrive(builder: Builder, pointer: str, count: str, *, is_dropped: bool = False) -> str:
    """`count` arrivals; the last one of a phase begins the next. Returns the state before."""
    old = _load(builder, pointer)
    state = builder.let(f"sub i64 {old}, {count}") if is_dropped else old
    expected = builder.let(f"and i64 {state}, {_COUNT_MASK}")
    arrivals = builder.let(f"shl i64 {count}, {_PENDING_SHIFT}")
    fewer = builder.let(f"sub i64 {state}, {arrivals}")
    pending = builder.let(f"and i64 {fewer}, {_COUNT_MASK << _PENDING_SHIFT}")
    renewed = builder.let(f"add i64 {fewer}, {builder.let(f'shl i64 {expected}, {_PENDING_SHIFT}')}")
    following = builder.let(f"add i64 {renewed}, {1 << _PHASE_SHIFT}")
    is_last = builder.let(f"icmp eq i64 {pending}, 0")
    builder.emit(f"store i64 {builder.select(is_last, 'i64', following, fewer)}, ptr {pointer}, align 8")
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
    elif action in ("arrive", "arrive_drop"):
        destination, address, *rest = builder.operands(2, 3)
        pointer = _barrier(builder, address)
        count = _count(builder, rest[0] if rest else Integer(1))
        builder.write(destination, arrive(builder, pointer, count, is_dropped=action == "arrive_drop"), "i64")
    else:
        _wait(builder, instruction)


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
    if words[:1] != ("async",) or "bulk" in words or "reduce" in words:
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
    copied = builder.read(rest[0], "i32") if rest and not builder.has("cache_hint") else str(total)
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
