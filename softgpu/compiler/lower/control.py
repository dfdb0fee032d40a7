"""Branches, returns, traps."""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction, Name
from softgpu.compiler.text.builder import Builder
from softgpu.compiler.text.registry import lowers


def yield_turn(builder: Builder) -> None:
    """Lets the threads run that this one may be waiting for."""
    builder.runtime("yield", "void", "ptr %self")


def _target(builder: Builder, name: str) -> str:
    """Where a branch to a label goes; in a loop that waits for another thread, by way of a yield."""
    label = builder.labels.get(name)
    if label is None:
        raise builder.invalid(f"there is no label '{name}'")
    if name not in builder.yields_to:
        return label
    turn = builder.fresh("turn")
    builder.lines, builder.detours = builder.detours, builder.lines
    builder.lines.append(f"{turn}:")
    yield_turn(builder)
    builder.emit(f"br label %{label}")
    builder.lines, builder.detours = builder.detours, builder.lines
    return turn


def guard_condition(builder: Builder, instruction: Instruction) -> str:
    """Whether a guarded instruction runs."""
    guard = instruction.guard
    if guard is None:
        return "true"
    condition = builder.read(Name(guard.predicate), "i1")
    return builder.let(f"xor i1 {condition}, true") if guard.is_negated else condition


def begin_guarded(builder: Builder, instruction: Instruction) -> str:
    """Begins the block of a guarded instruction; gives the label behind it, '' without a guard."""
    if instruction.guard is None:
        return ""
    then, after = builder.fresh("then"), builder.fresh("after")
    builder.branch_if(guard_condition(builder, instruction), then, after)
    builder.start(then)
    return after


@lowers("bra")
def lower_bra(builder: Builder, instruction: Instruction) -> None:
    (operand,) = builder.operands(1)
    if not isinstance(operand, Name):
        raise builder.invalid("expected a label")
    target = _target(builder, operand.text)
    if instruction.guard is None:
        builder.branch(target)
        return
    following = builder.fresh("next")
    builder.branch_if(guard_condition(builder, instruction), target, following)
    builder.start(following)


@lowers("brx")
def lower_brx(builder: Builder, instruction: Instruction) -> None:
    """brx.idx: past the list's end the behaviour is undefined; here the thread traps."""
    index, table = builder.operands(2)
    targets = builder.frame.flat.targets.get(table.text) if isinstance(table, Name) else None
    if targets is None:
        raise builder.invalid("expected a list of branch targets")
    following = ""
    if instruction.guard is not None:
        then, following = builder.fresh("then"), builder.fresh("next")
        builder.branch_if(guard_condition(builder, instruction), then, following)
        builder.start(then)
    wild = builder.fresh("wild")
    cases = " ".join(f"i32 {number}, label %{_target(builder, name)}" for number, name in enumerate(targets.targets))
    builder.terminate(f"switch i32 {builder.read(index, 'i32')}, label %{wild} [ {cases} ]")
    builder.start(wild)
    trap(builder)
    if following:
        builder.start(following)


def trap(builder: Builder) -> None:
    builder.runtime("trap", "void", "ptr %self")
    builder.terminate("unreachable")


@lowers("trap", "brkpt")
def lower_trap(builder: Builder, instruction: Instruction) -> None:
    trap(builder)


def leave(builder: Builder) -> None:
    """ret: results that live in registers go to where the caller wants them."""
    for index, result in enumerate(builder.frame.flat.function.returns):
        if result.space == "reg":
            pointer, held = builder.slot(result.name)
            builder.emit(f"store {held} {builder.let(f'load {held}, ptr {pointer}')}, ptr %ret{index}")
    builder.end_function()


@lowers("ret")
def lower_ret(builder: Builder, instruction: Instruction) -> None:
    leave(builder)


@lowers("exit")
def lower_exit(builder: Builder, instruction: Instruction) -> None:
    """Ends the thread: in a device function by a flag that every caller looks at."""
    if not builder.frame.is_entry:
        builder.emit("store i8 1, ptr %exited")
    builder.end_function()


@lowers("nanosleep")
def lower_nanosleep(builder: Builder, instruction: Instruction) -> None:
    """Beside a loop that waits for another thread. Elsewhere a hint: not to sleep is a right answer."""
    if builder.frame.spin_targets:
        [duration] = instruction.operands
        builder.runtime("nap", "void", "ptr %self", f"i32 {builder.read(duration, 'i32')}")


@lowers("prefetch", "prefetchu", "discard", "applypriority", "griddepcontrol", "setmaxnreg", "pmevent")
def lower_nothing(builder: Builder, instruction: Instruction) -> None:
    """Hints: doing nothing is a right answer."""
