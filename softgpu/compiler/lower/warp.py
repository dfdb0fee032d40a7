"""
Barriers and everything the threads of a warp do together, on top of the runtime's rendezvous.

One exchange hands every member the value of each lane; vote, match, shuffle and reductions are then computed by each thread for itself.
"""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction, Operand, Pair
from softgpu.compiler.base.scalars import Type
from softgpu.compiler.text.builder import Builder
from softgpu.compiler.text.registry import lowers
from softgpu.compiler.text.special import lane

_REDUCTIONS = {"and": 0, "or": 1, "popc": 2}


@lowers("bar", "barrier")
def lower_bar(builder: Builder, instruction: Instruction) -> None:
    words = [word for word in instruction.modifiers if word not in ("cta", "aligned")]
    if "cluster" in words:
        raise builder.unsupported("there are no clusters")
    if words[:1] == ["warp"]:
        (mask,) = builder.operands(1)
        _exchange(builder, builder.read(mask, "i32"), "0")
        return
    action = words[0] if words else "sync"
    operands = instruction.operands
    if action == "sync":
        barrier, count = _barrier(builder, operands)
        builder.runtime("barrier", "void", "ptr %self", f"i32 {barrier}", f"i32 {count}")
    elif action == "arrive":
        if len(operands) != 2:
            raise builder.invalid("bar.arrive needs a barrier and a number of threads")
        barrier, count = _barrier(builder, operands)
        builder.runtime("barrier_arrive", "void", "ptr %self", f"i32 {barrier}", f"i32 {count}")
    elif action == "red":
        _reduce(builder, words[1], operands)
    else:
        raise builder.unsupported()


def _barrier(builder: Builder, operands: tuple[Operand, ...]) -> tuple[str, str]:
    number = builder.read(operands[0], "i32") if operands else "0"
    return number, builder.read(operands[1], "i32") if len(operands) > 1 else "0"


def _reduce(builder: Builder, operation: str, operands: tuple[Operand, ...]) -> None:
    destination, *barrier, predicate = operands
    if operation not in _REDUCTIONS or not 1 <= len(barrier) <= 2:
        raise builder.unsupported()
    number, count = _barrier(builder, tuple(barrier))
    value = builder.let(f"zext i1 {builder.read(predicate, 'i1')} to i32")
    arguments = (f"i32 {number}", f"i32 {count}", f"i32 {_REDUCTIONS[operation]}", f"i32 {value}")
    result = builder.runtime("barrier_reduce", "i32", "ptr %self", *arguments)
    if operation == "popc":
        builder.write(destination, result, "i32")
    else:
        builder.write(destination, builder.let(f"icmp ne i32 {result}, 0"), "i1")


def _exchange(builder: Builder, mask: str, value: str) -> tuple[str, str]:
    """All members' 64-bit values as a <32 x i64>, and the mask of those that took part."""
    values = builder.once("exchange", "alloca [32 x i64], align 64")
    arguments = ("ptr %self", f"i32 {mask}", f"i64 {value}", f"ptr {values}")
    present = builder.runtime("warp_exchange", "i32", *arguments)
    return values, present


def _member_lanes(builder: Builder, values: str, present: str, condition: str) -> str:
    """The mask of present lanes whose value stands in a relation ('ne 0') to something."""
    operation, _, other = condition.partition(" ")
    vector = builder.let(f"load <32 x i64>, ptr {values}, align 64")
    splat = "zeroinitializer"
    if other != "0":
        first = builder.let(f"insertelement <32 x i64> poison, i64 {other}, i32 0")
        splat = builder.let(f"shufflevector <32 x i64> {first}, <32 x i64> poison, <32 x i32> zeroinitializer")
    bits = builder.let(f"icmp {operation} <32 x i64> {vector}, {splat}")
    return builder.let(f"and i32 {builder.let(f'bitcast <32 x i1> {bits} to i32')}, {present}")


@lowers("vote")
def lower_vote(builder: Builder, instruction: Instruction) -> None:
    destination, predicate, *rest = builder.operands(2, 3)
    if not rest:
        raise builder.unsupported("without .sync it left PTX with sm_70")
    value = builder.let(f"zext i1 {builder.read(predicate, 'i1')} to i64")
    values, present = _exchange(builder, builder.read(rest[0], "i32"), value)
    votes = _member_lanes(builder, values, present, "ne 0")
    if builder.has("ballot"):
        builder.write(destination, votes, "i32")
        return
    is_none = builder.let(f"icmp eq i32 {votes}, 0")
    is_all = builder.let(f"icmp eq i32 {votes}, {present}")
    if builder.has("all"):
        result = is_all
    elif builder.has("any"):
        result = builder.let(f"xor i1 {is_none}, true")
    elif builder.has("uni"):
        result = builder.let(f"or i1 {is_none}, {is_all}")
    else:
        raise builder.unsupported()
    builder.write(destination, result, "i1")


@lowers("match")
def lower_match(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    destination, operand, mask = builder.operands(3)
    value = builder.convert_bits(builder.read(operand, kind.integer), kind.integer, "i64")
    values, present = _exchange(builder, builder.read(mask, "i32"), value)
    equal = _member_lanes(builder, values, present, f"eq {value}")
    if builder.has("any"):
        builder.write(destination, equal, "i32")
        return
    is_all = builder.let(f"icmp eq i32 {equal}, {present}")
    register = destination
    if isinstance(destination, Pair):
        register = destination.first
        builder.write(destination.second, is_all, "i1")
    builder.write(register, builder.select(is_all, "i32", equal, "0"), "i32")


@lowers("shfl")
def lower_shfl(builder: Builder, instruction: Instruction) -> None:
    if not builder.has("sync"):
        raise builder.unsupported("without .sync it left PTX with sm_70")
    destination, operand, second, third, mask = builder.operands(5)
    amount = builder.let(f"and i32 {builder.read(second, 'i32')}, 31")
    control = builder.read(third, "i32")
    clamp = builder.let(f"and i32 {control}, 31")
    segment = builder.let(f"and i32 {builder.let(f'lshr i32 {control}, 8')}, 31")
    outside = builder.let(f"xor i32 {segment}, 31")
    own = lane(builder)
    first = builder.let(f"and i32 {own}, {segment}")
    last = builder.let(f"or i32 {first}, {builder.let(f'and i32 {clamp}, {outside}')}")
    relation = "sle"
    if builder.has("up"):
        source, relation = builder.let(f"sub i32 {own}, {amount}"), "sge"
    elif builder.has("down"):
        source = builder.let(f"add i32 {own}, {amount}")
    elif builder.has("bfly"):
        source = builder.let(f"xor i32 {own}, {amount}")
    else:
        source = builder.let(f"or i32 {first}, {builder.let(f'and i32 {amount}, {outside}')}")
    is_inside = builder.let(f"icmp {relation} i32 {source}, {last}")
    source = builder.select(is_inside, "i32", source, own)
    value = builder.read(operand, "i32")
    wide = builder.let(f"zext i32 {value} to i64")
    # What an absent lane holds is undefined; sums over a part of a warp add it all the same and count on zero.
    values, _present = _exchange(builder, builder.read(mask, "i32"), wide)
    slot = builder.let(f"getelementptr i64, ptr {values}, i32 {source}")
    found = builder.let(f"trunc i64 {builder.let(f'load i64, ptr {slot}')} to i32")
    register = destination
    if isinstance(destination, Pair):
        register = destination.first
        builder.write(destination.second, is_inside, "i1")
    builder.write(register, found, "i32")


@lowers("redux")
def lower_redux(builder: Builder, instruction: Instruction) -> None:
    """A reduction over the members, in the order of their lanes."""
    kind = builder.type()
    if kind.is_float:
        raise builder.unsupported()
    destination, operand, mask = builder.operands(3)
    wide = builder.let(f"zext i32 {builder.read(operand, 'i32')} to i64")
    values, present = _exchange(builder, builder.read(mask, "i32"), wide)
    result = _reduction(builder, kind, values, present)
    builder.write(destination, result, "i32")


def _reduction(builder: Builder, kind: Type, values: str, present: str) -> str:
    operations = {"add": ("add", 0), "and": ("and", -1), "or": ("or", 0), "xor": ("xor", 0)}
    if kind.is_signed:
        operations |= {"min": ("smin", 2**31 - 1), "max": ("smax", -(2**31))}
    else:
        operations |= {"min": ("umin", -1), "max": ("umax", 0)}
    name = next((word for word in builder.instruction.modifiers if word in operations), "")
    if not name:
        raise builder.unsupported()
    operation, neutral = operations[name]
    vector = builder.let(f"load <32 x i64>, ptr {values}, align 64")
    narrow = builder.let(f"trunc <32 x i64> {vector} to <32 x i32>")
    members = builder.let(f"bitcast i32 {present} to <32 x i1>")
    neutrals = f"<{', '.join([f'i32 {neutral}'] * 32)}>"
    chosen = builder.let(f"select <32 x i1> {members}, <32 x i32> {narrow}, <32 x i32> {neutrals}")
    intrinsic = f"llvm.vector.reduce.{operation}.v32i32"
    builder.frame.unit.declare(intrinsic, "i32", ("<32 x i32>",))
    return builder.let(f"call i32 @{intrinsic}(<32 x i32> {chosen})")


@lowers("activemask")
def lower_activemask(builder: Builder, instruction: Instruction) -> None:
    """
    The runtime tells threads that came together by the address they call it from: calls that LLVM merged or moved would make one meeting of
    several.
    """
    (destination,) = builder.operands(1)
    mask = builder.runtime("active_mask", "i32", "ptr %self", attributes=" convergent nomerge")
    builder.write(destination, mask, "i32")


@lowers("elect")
def lower_elect(builder: Builder, instruction: Instruction) -> None:
    """Elects the lowest lane of those that came."""
    destination, mask = builder.operands(2)
    _, present = _exchange(builder, builder.read(mask, "i32"), "0")
    builder.frame.unit.declare("llvm.cttz.i32", "i32", ("i32", "i1 immarg"))
    leader = builder.let(f"call i32 @llvm.cttz.i32(i32 {present}, i1 false)")
    if not isinstance(destination, Pair):
        raise builder.invalid("expected a lane and a predicate")
    builder.write(destination.first, leader, "i32")
    builder.write(destination.second, builder.let(f"icmp eq i32 {leader}, {lane(builder)}"), "i1")
