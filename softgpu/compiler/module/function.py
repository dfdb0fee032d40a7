"""One function's body, statement by statement, into LLVM text."""

from __future__ import annotations

from collections.abc import Iterator

from cuda_api.ptx.syntax import Instruction, Label
from softgpu.compiler.lower import (  # noqa: F401 - importing a family registers its lowerings
    arithmetic,
    asynchronous,
    atomics,
    bits,
    calls,
    compare,
    control,
    convert,
    floating,
    matrix,
    memory,
    texture,
    transcendental,
    video,
    warp,
)
from softgpu.compiler.module.kernel import Kernel, body_parameters, declaration, kernel_wrappers, parameters_node
from softgpu.compiler.text.builder import Builder
from softgpu.compiler.text.frame import Frame
from softgpu.compiler.text.pieces import Piece
from softgpu.compiler.text.registry import LOWERINGS
from softgpu.compiler.text.unit import Unit

DEVICE_PARAMETERS = "ptr %block, ptr %self, ptr %shared, ptr %globals, i32 %dynamic, i32 %tx, i32 %ty, i32 %tz, ptr %bad_bits, ptr %exited"
_BLOCK_ENDS = frozenset(("bra", "brx"))
_WRAPPERS_WEIGHT = 30


def kernel_piece(kernel: Kernel, frame: Frame) -> Piece:
    """All of a kernel whose threads run one after another, or as fibers."""

    def lines(unit: Unit) -> Iterator[str]:
        yield from lower_function(frame.of_unit(unit))
        yield from kernel_wrappers(kernel)

    names = [f"thread.{kernel.name}"] if kernel.traits.waits else [f"thread.{kernel.name}", f"block.{kernel.name}"]
    return Piece(
        lines,
        _WRAPPERS_WEIGHT + len(kernel.flat.code),
        {name: declaration(name) for name in names},
        reachable=frozenset(kernel.traits.reachable - {kernel.name}),
        shared=(parameters_node(kernel),),
    )


def lower_function(frame: Frame) -> Iterator[str]:
    """LLVM text of a kernel's body or of a device function."""
    function = frame.flat.function
    builder = Builder(frame)
    if frame.is_entry:
        inline = "#2" if frame.traits.waits else "#3"
        head = f'define internal void @"k.{frame.name}"({body_parameters(not frame.traits.waits)}) {inline} {{'
        if frame.traits.exits:
            builder.entry.append("  %exited = alloca i8")
            builder.entry.append("  store i8 0, ptr %exited")
    else:
        places = [f"ptr %ret{index}" for index in range(len(function.returns))]
        places += [f"ptr %arg{index}" for index in range(len(function.parameters))]
        # The runtime tells lanes that ask for their active mask by where they call from: each caller needs a copy of its own.
        inline = "#3" if frame.traits.asks_who_is_active and not frame.traits.is_recursive else "#4"
        head = f'define internal void @"f.{frame.name}"({", ".join([DEVICE_PARAMETERS, *places])}) {inline} {{'
        calls.load_register_parameters(builder)
    builder.name_labels(frame.flat.code)
    for index, item in enumerate(frame.flat.code):
        if isinstance(item, Label):
            if (index - 1, index) in frame.traits.spin_edges and not builder.is_terminated:
                control.yield_turn(builder)
            builder.start(builder.labels[item.name])
        else:
            builder.yields_to = frame.spin_targets.get(index, frozenset())
            lower_instruction(builder, item)
    if not builder.is_terminated:
        control.leave(builder)
    yield head
    yield "entry:"
    yield from builder.entry
    yield "  br label %body"
    yield "body:"
    yield from builder.lines
    yield from builder.detours
    yield "}"


def lower_instruction(builder: Builder, instruction: Instruction) -> None:
    """One instruction, with its guard."""
    builder.instruction = instruction
    lowering = LOWERINGS.get(instruction.opcode)
    if lowering is None:
        raise builder.unsupported()
    if builder.is_terminated:
        builder.start(builder.fresh("dead"))
    after = control.begin_guarded(builder, instruction) if instruction.opcode not in _BLOCK_ENDS else ""
    lowering(builder, instruction)
    if after:
        builder.start(after)
