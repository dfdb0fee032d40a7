"""
A kernel that runs as loops over its threads, segment by segment, as pieces of LLVM text.

A segment is a function of one thread that says where the thread goes on. `run_block` calls its loop (`loops`) for all threads, and looks where
they go: together to the next loop, or apart. As long as they stand apart, or some have ended, each thread is taken through its own next segment
alone; that is as correct, and slow.

What threads keep across cuts lies in memory that the driver gives, register by register and within that thread by thread, so that a loop reads
and writes it in order. Local variables come first, thread by thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from cuda_api.ptx.syntax import Instruction, Label
from cuda_api.record import replace
from softgpu.compiler.base.layout import align
from softgpu.compiler.flow.purity import CARRY
from softgpu.compiler.flow.segments import END_THREAD, RESUME, SUSPEND, Fission, Segment
from softgpu.compiler.lower import control
from softgpu.compiler.module.function import lower_instruction
from softgpu.compiler.module.kernel import Kernel, body_parameters, declaration, parameters_node
from softgpu.compiler.module.loops import BlockWriter, ContextLayout, LoopWriter, segment_type
from softgpu.compiler.text.builder import Builder
from softgpu.compiler.text.frame import Frame
from softgpu.compiler.text.pieces import Lines, Piece
from softgpu.compiler.text.unit import Unit
from softgpu.compiler.text.writer import PARALLEL

_CONTEXT_ALIGNMENT = 16
_LOOP_WEIGHT = 30
"""What the loop around a segment costs, in instructions."""


def fission_pieces(kernel: Kernel, frame: Frame, plan: Fission) -> Iterator[Piece]:
    """All of a kernel that needs no fibers in spite of its barriers. Says in `kernel` how much memory a thread needs."""
    layout = _layout(frame, plan)
    kernel.context_bytes = layout.thread_bytes
    loops: dict[str, str] = {}
    alone: list[int] = []
    for number, segment in enumerate(plan.segments):
        if segment.is_same:
            alone.append(number)
            continue
        writer = LoopWriter(kernel, plan, layout, number)
        loops[writer.name] = writer.declaration()
        yield Piece(
            _loop_lines(kernel, frame, plan, layout, number),
            _LOOP_WEIGHT + len(segment.code),
            {writer.name: writer.declaration()},
            reachable=_reachable(kernel, segment),
            shared=(parameters_node(kernel),),
        )

    def block(unit: Unit) -> Iterator[str]:
        for number in alone:
            yield from _SegmentWriter(unit, frame, plan, layout, number).text()
        yield from BlockWriter(kernel, plan, layout).text()

    name = f"block.{kernel.name}"
    weight = sum(_LOOP_WEIGHT + len(plan.segments[number].code) for number in alone) + len(plan.segments)
    yield Piece(block, weight, {name: declaration(name)}, loops, shared=(parameters_node(kernel),))


def _loop_lines(kernel: Kernel, frame: Frame, plan: Fission, layout: ContextLayout, number: int) -> Lines:
    def lines(unit: Unit) -> Iterator[str]:
        yield from _SegmentWriter(unit, frame, plan, layout, number).text()
        yield from LoopWriter(kernel, plan, layout, number).text()

    return lines


def _reachable(kernel: Kernel, segment: Segment) -> frozenset[str]:
    """Functions that the code of a segment may call, through others too."""
    calls = any(isinstance(item, Instruction) and item.opcode == "call" for item in segment.code)
    return frozenset(kernel.traits.reachable - {kernel.name} if calls else ())


def _layout(frame: Frame, plan: Fission) -> ContextLayout:
    layout = ContextLayout()
    names = {name for segment in plan.segments for name in (*segment.saved, *segment.known)}
    for name in sorted(names):
        layout.types[name] = "i1" if name == CARRY else frame.register_type(name) or "i32"
    layout.local_bytes = align(frame.local.end_bytes, max(_CONTEXT_ALIGNMENT, frame.local_alignment))
    at = layout.local_bytes
    for name in sorted(plan.saved, key=lambda name: (-layout.size_bytes(name), name)):
        layout.offsets[name] = at = align(at, layout.size_bytes(name))
        at += layout.size_bytes(name)
    layout.next_offset = align(at, 4)
    layout.thread_bytes = align(layout.next_offset + 4, _CONTEXT_ALIGNMENT)
    return layout


class _SegmentWriter:
    def __init__(self, unit: Unit, frame: Frame, plan: Fission, layout: ContextLayout, number: int) -> None:
        self._plan = plan
        self._layout = layout
        self._segment = segment = plan.segments[number]
        self._number = number
        flat = replace(plan.flat, code=segment.code)
        self._frame = frame.part(unit, flat, replace(frame.traits, exits=False), "%locals")
        self._builder = Builder(self._frame)
        self._target = self._builder.allocate("i32")
        self._given = [self._builder.allocate(layout.types[name]) for name in segment.gives]

    def text(self) -> Iterator[str]:
        builder, code = self._builder, self._segment.code
        builder.name_labels(code)
        builder.entry.append(f"  %locals.at = mul i64 %thread, {self._layout.local_bytes}")
        builder.entry.append("  %locals = getelementptr i8, ptr %context, i64 %locals.at")
        for item in code:
            if isinstance(item, Label):
                builder.start(builder.labels[item.name])
            else:
                self._instruction(item)
        self._return()
        yield self._head()
        yield "entry:"
        yield from builder.entry
        yield "  br label %body"
        yield "body:"
        yield from builder.lines
        yield "}"

    def _head(self) -> str:
        takes = "".join(f", {self._layout.types[name]} %take{i}" for i, name in enumerate(self._segment.takes))
        result = segment_type(self._segment, self._layout)
        return (
            f'define internal {result} @"s{self._number}.{self._frame.name}"({body_parameters(True)}, '
            f"ptr %context, i64 %thread, i64 %nr_threads{takes}) #3 {{"
        )

    def _instruction(self, item: Instruction) -> None:
        builder = self._builder
        if item.opcode not in (RESUME, SUSPEND, END_THREAD):
            lower_instruction(builder, item)
            return
        builder.instruction = item
        if builder.is_terminated:
            builder.start(builder.fresh("dead"))
        after = control.begin_guarded(builder, item)
        if item.opcode == RESUME:
            self._resume()
        else:
            self._leave(int(builder.read(item.operands[0], "i32")) if item.operands else 0)
        if after:
            builder.start(after)

    def _slot(self, name: str) -> str:
        return self._builder.carry_slot() if name == CARRY else self._builder.slot(name)[0]

    def _saved(self, name: str) -> str:
        """Where this thread's copy lies."""
        llvm = self._memory_type(name)
        return self._builder.once(
            f"saved {name}",
            f"mul i64 %nr_threads, {self._layout.offsets[name]}",
            "getelementptr i8, ptr %context, i64 {}",
            f"getelementptr {llvm}, ptr {{}}, i64 %thread",
        )

    def _memory_type(self, name: str) -> str:
        return "i8" if self._layout.types[name] == "i1" else self._layout.types[name]

    def _resume(self) -> None:
        builder = self._builder
        for name in self._segment.loads:
            memory, llvm = self._memory_type(name), self._layout.types[name]
            value = builder.let(f"load {memory}, ptr {self._saved(name)}{PARALLEL}")
            if memory != llvm:
                value = builder.let(f"trunc {memory} {value} to {llvm}")
            builder.emit(f"store {llvm} {value}, ptr {self._slot(name)}")
        for index, name in enumerate(self._segment.takes):
            builder.emit(f"store {self._layout.types[name]} %take{index}, ptr {self._slot(name)}")

    def _leave(self, target: int) -> None:
        """Saves what the target needs, and returns its number and what it takes."""
        builder, layout = self._builder, self._layout
        following = self._plan.segments[target] if target else Segment([], [])
        for name in following.saved:
            if name not in self._segment.written:
                continue
            memory, llvm = self._memory_type(name), layout.types[name]
            value = builder.let(f"load {llvm}, ptr {self._slot(name)}")
            if memory != llvm:
                value = builder.let(f"zext {llvm} {value} to {memory}")
            builder.emit(f"store {memory} {value}, ptr {self._saved(name)}{PARALLEL}")
        builder.emit(f"store i32 {target}, ptr {self._target}")
        for index, name in enumerate(self._segment.gives):
            if name in following.known:
                value = builder.let(f"load {layout.types[name]}, ptr {self._slot(name)}")
                builder.emit(f"store {layout.types[name]} {value}, ptr {self._given[index]}")
        builder.branch("leave")

    def _return(self) -> None:
        """The one way out: where several returned, LLVM would have to merge their structures, and does not vectorise that."""
        builder = self._builder
        builder.lines.append("leave:")
        builder.collect("%bad_bits", builder.let(f"load i64, ptr {builder.bad_bits}"))
        target = builder.let(f"load i32, ptr {self._target}")
        if not self._segment.gives:
            builder.terminate(f"ret i32 {target}")
            return
        whole = segment_type(self._segment, self._layout)
        result = builder.let(f"insertvalue {whole} poison, i32 {target}, 0")
        for index, name in enumerate(self._segment.gives):
            llvm = self._layout.types[name]
            value = builder.let(f"load {llvm}, ptr {self._given[index]}")
            result = builder.let(f"insertvalue {whole} {result}, {llvm} {value}, {index + 1}")
        builder.terminate(f"ret {whole} {result}")
