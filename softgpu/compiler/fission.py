"""
LLVM text of a kernel that runs as loops over its threads, segment by segment.

A segment is a function of one thread that says where the thread goes on. `run_block` calls it for all threads in a loop nest, as for kernels
without barriers, and looks where they go: together to the next loop, or apart. As long as they stand apart, or some have ended, one loop takes
each thread through its own next segment, out of line; that is as correct, and slow.

What threads keep across cuts lies in memory that the driver gives, register by register and within that thread by thread, so that a loop reads
and writes it in order. Local variables come first, thread by thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from cuda_api.ptx.syntax import Instruction, Label
from softgpu.compiler import control
from softgpu.compiler.builder import PARALLEL, Builder, zero
from softgpu.compiler.frame import Frame
from softgpu.compiler.function import lower_instruction
from softgpu.compiler.kernel import Kernel, block_fields, body_parameters, collector, parameters_node, report
from softgpu.compiler.layout import align
from softgpu.compiler.purity import CARRY
from softgpu.compiler.scalars import BITS_OF_LLVM
from softgpu.compiler.segments import END_THREAD, RESUME, SUSPEND, Fission, Segment
from softgpu.compiler.special import BLOCK_BYTES, CONTEXT_OFFSET_BYTES

_CONTEXT_ALIGNMENT = 16
_LOOP_HINTS = (("vectorize.width", 16), ("interleave.count", 1))
"""Rows of threads are short, and often no longer than this."""
_FIRST_NODE = 1 << 20
_NODES_OF_KERNEL = 1 << 12


@dataclass(slots=True)
class _Layout:
    """`offsets` are bytes of one thread; the arrays of all threads lie at that many bytes times the number of threads."""

    types: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0
    next_offset: int = 0
    thread_bytes: int = 0


def fission_text(kernel: Kernel, frame: Frame, plan: Fission) -> Iterator[str]:
    """All of a kernel that needs no fibers in spite of its barriers. Says in `kernel` how much memory a thread needs."""
    layout = _layout(frame, plan)
    kernel.context_bytes = layout.thread_bytes
    yield parameters_node(kernel)
    for number, segment in enumerate(plan.segments):
        yield from _SegmentWriter(frame, plan, layout, number, segment).text()
    yield from _BlockWriter(kernel, plan, layout).text()


def _layout(frame: Frame, plan: Fission) -> _Layout:
    layout = _Layout()
    names = {name for segment in plan.segments for name in (*segment.saved, *segment.known)}
    for name in sorted(names):
        layout.types[name] = "i1" if name == CARRY else frame.register_type(name) or "i32"
    layout.local_bytes = align(frame.local.end_bytes, max(_CONTEXT_ALIGNMENT, frame.local_alignment))
    at = layout.local_bytes
    for name in sorted(plan.saved, key=lambda name: (-_size_bytes(layout.types[name]), name)):
        layout.offsets[name] = at = align(at, _size_bytes(layout.types[name]))
        at += _size_bytes(layout.types[name])
    layout.next_offset = align(at, 4)
    layout.thread_bytes = align(layout.next_offset + 4, _CONTEXT_ALIGNMENT)
    return layout


def _size_bytes(llvm: str) -> int:
    return max(BITS_OF_LLVM[llvm] // 8, 1)


def _result_type(segment: Segment, layout: _Layout) -> str:
    types = [layout.types[name] for name in segment.gives]
    return f"{{ {', '.join(['i32', *types])} }}" if types else "i32"


class _SegmentWriter:
    def __init__(self, frame: Frame, plan: Fission, layout: _Layout, number: int, segment: Segment) -> None:
        self._plan = plan
        self._layout = layout
        self._segment = segment
        self._number = number
        flat = replace(plan.flat, code=segment.code)
        self._frame = frame.part(flat, replace(frame.traits, exits=False), "%locals")
        self._builder = Builder(self._frame)
        self._target = self._builder.allocate("i32")
        self._given = [self._builder.allocate(layout.types[name]) for name in segment.gives]

    def text(self) -> Iterator[str]:
        builder, code = self._builder, self._segment.code
        labels = {item.name: f"L{index}" for index, item in enumerate(code) if isinstance(item, Label)}
        control.set_labels(builder, labels)
        builder.entry.append(f"  %locals.at = mul i64 %thread, {self._layout.local_bytes}")
        builder.entry.append("  %locals = getelementptr i8, ptr %context, i64 %locals.at")
        for item in code:
            if isinstance(item, Label):
                builder.start(labels[item.name])
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
        result = _result_type(self._segment, self._layout)
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
        after = ""
        if item.guard is not None:
            then, after = builder.fresh("then"), builder.fresh("after")
            builder.branch_if(control.guard_condition(builder, item), then, after)
            builder.start(then)
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
        builder.collect("%misaligned", builder.let(f"load i64, ptr {builder.misaligned}"))
        target = builder.let(f"load i32, ptr {self._target}")
        if not self._segment.gives:
            builder.terminate(f"ret i32 {target}")
            return
        whole = _result_type(self._segment, self._layout)
        result = builder.let(f"insertvalue {whole} poison, i32 {target}, 0")
        for index, name in enumerate(self._segment.gives):
            llvm = self._layout.types[name]
            value = builder.let(f"load {llvm}, ptr {self._given[index]}")
            result = builder.let(f"insertvalue {whole} {result}, {llvm} {value}, {index + 1}")
        builder.terminate(f"ret {whole} {result}")


class _BlockWriter:
    """`run_block`: a loop nest for each segment, and what comes between."""

    def __init__(self, kernel: Kernel, plan: Fission, layout: _Layout) -> None:
        self._kernel = kernel
        self._plan = plan
        self._layout = layout
        self._taken = sorted({name for segment in plan.segments for name in segment.known})
        self._places = {name: f"%shared.register{index}" for index, name in enumerate(self._taken)}
        self._lines: list[str] = []

    def text(self) -> Iterator[str]:
        self._entry()
        for number, segment in enumerate(self._plan.segments):
            self._loop(number, segment)
        if self._plan.is_ever_split:
            self._apart()
        self._lines.append("done:")
        self._lines += report()
        self._lines.append("  ret void")
        yield (
            f'define internal void @"block.{self._kernel.name}"(ptr dereferenceable({BLOCK_BYTES}) %block, ptr %self) #0 {{'
        )
        yield "entry:"
        yield from self._lines
        yield "}"
        for number in range(len(self._plan.segments)):
            node = self._node(number)
            hints = "".join(f', !{{!"llvm.loop.{name}", i32 {value}}}' for name, value in _LOOP_HINTS)
            yield f"!{node} = distinct !{{!{node}, !{node + 1}{hints}}}"
            yield f'!{node + 1} = !{{!"llvm.loop.parallel_accesses", !1}}'

    def _emit(self, *lines: str) -> None:
        self._lines += [f"  {line}" for line in lines]

    def _node(self, number: int) -> int:
        return _FIRST_NODE + _NODES_OF_KERNEL * self._kernel.index + 2 * number

    def _entry(self) -> None:
        self._lines += block_fields(self._kernel)
        self._lines += collector()
        self._emit(
            f"%context.at = getelementptr i8, ptr %block, i64 {CONTEXT_OFFSET_BYTES}",
            "%context = load ptr, ptr %context.at, !invariant.load !0",
            "%plane.threads = mul nuw nsw i32 %nx, %ny",
            "%all.threads = mul nuw nsw i32 %plane.threads, %nz",
            "%nr_threads = zext i32 %all.threads to i64",
        )
        for name in self._taken:
            llvm = self._layout.types[name]
            self._emit(f"{self._places[name]} = alloca {llvm}", f"store {llvm} {zero(llvm)}, ptr {self._places[name]}")
        if self._plan.is_ever_split:
            self._emit(
                "%least = alloca i32",
                "%most = alloca i32",
                "%misaligned.apart = alloca i64",
                f"%next.offset = mul i64 %nr_threads, {self._layout.next_offset}",
                "%next = getelementptr i8, ptr %context, i64 %next.offset",
            )
        self._emit("br label %s0")

    def _call(self, number: int, stem: str, thread: str, misaligned: str, attributes: str = "") -> None:
        """The segment for one thread: `thread` is the stem of its indices and of the registers it takes."""
        segment = self._plan.segments[number]
        takes = "".join(f", {self._layout.types[name]} %{thread}.{self._places[name][1:]}" for name in segment.takes)
        self._emit(
            f"%{stem}.result = call {_result_type(segment, self._layout)} "
            f'@"s{number}.{self._kernel.name}"(ptr %block, ptr %self, ptr %shared, ptr %globals, ptr %params, '
            f"i32 {self._kernel.static_shared_bytes}, i32 %{thread}.tx, i32 %{thread}.ty, i32 %{thread}.tz, ptr {misaligned}, "
            f"ptr %context, i64 %{thread}.thread, i64 %nr_threads{takes}){attributes}"
        )

    def _load_taken(self, stem: str, names: list[str]) -> None:
        for name in names:
            self._emit(f"%{stem}.{self._places[name][1:]} = load {self._layout.types[name]}, ptr {self._places[name]}")

    def _next(self, number: int, stem: str) -> str:
        """The number of the segment that a call returned. Takes the result apart, in the loop: LLVM does not vectorise structures."""
        segment = self._plan.segments[number]
        if not segment.gives:
            return f"%{stem}.result"
        result = f"{_result_type(segment, self._layout)} %{stem}.result"
        self._emit(f"%{stem}.to = extractvalue {result}, 0")
        for index in range(len(segment.gives)):
            self._emit(f"%{stem}.given{index} = extractvalue {result}, {index + 1}")
        return f"%{stem}.to"

    def _store_given(self, number: int, stem: str, *, unless_ended: str = "") -> None:
        segment = self._plan.segments[number]
        for index, name in enumerate(segment.gives):
            llvm, place = self._layout.types[name], self._places[name]
            value = f"%{stem}.given{index}"
            if unless_ended:
                self._emit(
                    f"%{stem}.old{index} = load {llvm}, ptr {place}",
                    f"%{stem}.kept{index} = select i1 {unless_ended}, {llvm} {value}, {llvm} %{stem}.old{index}",
                )
                value = f"%{stem}.kept{index}"
            self._emit(f"store {llvm} {value}, ptr {place}")

    def _loop(self, number: int, segment: Segment) -> None:
        """
        All threads through one segment, row by row. The masks around y and z say how large they may be, which LLVM does not see itself.
        """
        s = f"s{number}"
        self._lines.append(f"{s}:")
        self._load_taken(s, segment.takes)
        if segment.is_same:
            self._once(number, segment)
            return
        if segment.is_split:
            self._reset_range()
        self._emit(f"br label %{s}.row")
        self._lines.append(f"{s}.row:")
        self._emit(
            f"%{s}.first = phi i32 [ 0, %{s} ], [ %{s}.first.next, %{s}.row.end ]",
            f"%{s}.y = phi i32 [ 0, %{s} ], [ %{s}.y.next, %{s}.row.end ]",
            f"%{s}.z = phi i32 [ 0, %{s} ], [ %{s}.z.next, %{s}.row.end ]",
            f"%{s}.ty = and i32 %{s}.y, 1023",
            f"%{s}.tz = and i32 %{s}.z, 63",
            f"br label %{s}.threads",
        )
        self._lines.append(f"{s}.threads:")
        self._emit(
            f"%{s}.tx = phi i32 [ 0, %{s}.row ], [ %{s}.tx.next, %{s}.threads ]",
            f"%{s}.index = add nuw nsw i32 %{s}.first, %{s}.tx",
            f"%{s}.thread = zext i32 %{s}.index to i64",
        )
        self._call(number, s, s, "%misaligned")
        to = self._next(number, s)
        if segment.is_split:
            self._emit(f"%{s}.lives = icmp ne i32 {to}, 0")
            self._store_given(number, s, unless_ended=f"%{s}.lives")
            self._note_next(s, to)
        self._emit(
            f"%{s}.tx.next = add nuw nsw i32 %{s}.tx, 1",
            f"%{s}.tx.more = icmp ult i32 %{s}.tx.next, %nx",
            f"br i1 %{s}.tx.more, label %{s}.threads, label %{s}.row.end, !llvm.loop !{self._node(number)}",
        )
        self._lines.append(f"{s}.row.end:")
        self._emit(
            f"%{s}.first.next = add nuw nsw i32 %{s}.first, %nx",
            f"%{s}.y.after = add nuw nsw i32 %{s}.y, 1",
            f"%{s}.is.last = icmp eq i32 %{s}.y.after, %ny",
            f"%{s}.y.next = select i1 %{s}.is.last, i32 0, i32 %{s}.y.after",
            f"%{s}.z.after = zext i1 %{s}.is.last to i32",
            f"%{s}.z.next = add nuw nsw i32 %{s}.z, %{s}.z.after",
            f"%{s}.more = icmp ult i32 %{s}.first.next, %all.threads",
            f"br i1 %{s}.more, label %{s}.row, label %{s}.end",
        )
        self._lines.append(f"{s}.end:")
        if segment.is_split:
            self._go_on(s, segment.next)
        else:
            self._store_given(number, s)
            self._switch(to, segment.next)

    def _once(self, number: int, segment: Segment) -> None:
        """A segment that does the same for all threads: the first one is enough."""
        s = f"s{number}"
        self._emit(*(f"%{s}.t{axis} = add i32 0, 0" for axis in "xyz"), f"%{s}.thread = add i64 0, 0")
        self._call(number, s, s, "%misaligned")
        to = self._next(number, s)
        self._store_given(number, s)
        self._switch(to, segment.next)

    def _reset_range(self) -> None:
        self._emit("store i32 -1, ptr %least", "store i32 0, ptr %most")

    def _note_next(self, stem: str, to: str) -> None:
        """Keeps where a thread goes on, and the range over all threads."""
        self._emit(
            f"%{stem}.next = getelementptr i32, ptr %next, i64 %{stem}.thread",
            f"store i32 {to}, ptr %{stem}.next{PARALLEL}",
        )
        self._widen(stem, to)

    def _widen(self, stem: str, to: str) -> None:
        for place, relation in (("least", "ult"), ("most", "ugt")):
            self._emit(
                f"%{stem}.{place} = load i32, ptr %{place}",
                f"%{stem}.{place}.is = icmp {relation} i32 {to}, %{stem}.{place}",
                f"%{stem}.{place}.new = select i1 %{stem}.{place}.is, i32 {to}, i32 %{stem}.{place}",
                f"store i32 %{stem}.{place}.new, ptr %{place}",
            )

    def _go_on(self, stem: str, targets: list[int]) -> None:
        """To one loop when all threads go the same way."""
        self._emit(
            f"%{stem}.from = load i32, ptr %least",
            f"%{stem}.upto = load i32, ptr %most",
            f"%{stem}.together = icmp eq i32 %{stem}.from, %{stem}.upto",
            f"br i1 %{stem}.together, label %{stem}.same, label %apart",
        )
        self._lines.append(f"{stem}.same:")
        self._switch(f"%{stem}.from", targets)

    def _switch(self, to: str, targets: list[int]) -> None:
        labels = {number: f"s{number}" if number else "done" for number in targets}
        if len(labels) <= 1:
            self._emit(f"br label %{next(iter(labels.values()), 'done')}")
            return
        cases = " ".join(f"i32 {number}, label %{label}" for number, label in labels.items())
        self._emit(f"switch i32 {to}, label %never [ {cases} ]")
        if "never:" not in self._lines:
            self._lines.append("never:")
            self._emit("unreachable")

    def _apart(self) -> None:
        """Each thread through the segment that it goes on with."""
        numbers = sorted({number for segment in self._plan.segments for number in segment.next if number})
        taken = sorted({name for number in numbers for name in self._plan.segments[number].takes})
        self._lines.append("apart:")
        self._reset_range()
        self._emit("store i64 0, ptr %misaligned.apart")
        self._load_taken("apart", taken)
        self._emit("br label %apart.thread.begin")
        self._lines.append("apart.thread.begin:")
        self._emit(
            "%apart.index = phi i32 [ 0, %apart ], [ %apart.index.next, %apart.thread.end ]",
            "%apart.thread = zext i32 %apart.index to i64",
            "%apart.tx = urem i32 %apart.index, %nx",
            "%apart.row = udiv i32 %apart.index, %nx",
            "%apart.ty = urem i32 %apart.row, %ny",
            "%apart.tz = udiv i32 %apart.row, %ny",
            "%apart.at = getelementptr i32, ptr %next, i64 %apart.thread",
            "%apart.now = load i32, ptr %apart.at",
        )
        cases = " ".join(f"i32 {number}, label %apart{number}" for number in numbers)
        self._emit(f"switch i32 %apart.now, label %apart.thread.end [ {cases} ]")
        arrivals = ["[ 0, %apart.thread.begin ]"]
        for number in numbers:
            arrivals.append(self._apart_call(number))
        self._lines.append("apart.thread.end:")
        self._emit(f"%apart.to = phi i32 {', '.join(arrivals)}")
        self._widen("apart", "%apart.to")
        self._emit(
            "%apart.index.next = add nuw nsw i32 %apart.index, 1",
            "%apart.more = icmp ult i32 %apart.index.next, %all.threads",
            "br i1 %apart.more, label %apart.thread.begin, label %apart.end",
        )
        self._lines.append("apart.end:")
        self._emit(
            "%apart.bits = load i64, ptr %misaligned.apart",
            "%together.bits = load i64, ptr %misaligned",
            "%all.bits = or i64 %apart.bits, %together.bits",
            "store i64 %all.bits, ptr %misaligned",
        )
        self._go_on("apart", [0, *numbers])

    def _apart_call(self, number: int) -> str:
        """One thread through one segment; returns what the phi of all ways says of this one."""
        stem = f"apart{number}"
        self._lines.append(f"{stem}:")
        self._call(number, stem, "apart", "%misaligned.apart", " #5")
        to = self._next(number, stem)
        self._emit(f"store i32 {to}, ptr %apart.at", f"%{stem}.lives = icmp ne i32 {to}, 0")
        self._store_given(number, stem, unless_ended=f"%{stem}.lives")
        self._emit("br label %apart.thread.end")
        return f"[ {to}, %{stem} ]"
