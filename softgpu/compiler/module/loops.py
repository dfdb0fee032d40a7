"""
LLVM text of what runs a kernel's segments for the threads of a block: a function with a loop nest for each segment, and the function that calls
these one after another.

Where threads may stand apart, a loop is also what takes one thread through its segment: it runs over a range that is then one thread. Each loop
is a function of its own, however small, since LLVM takes more than twice the time for twice the code, and so that processes can share the work.
"""

from __future__ import annotations

from collections.abc import Iterator

from cuda_api.record import field, mutable_record
from softgpu.compiler.base.scalars import BITS_OF_LLVM
from softgpu.compiler.flow.segments import Fission, Segment
from softgpu.compiler.module.kernel import Kernel, block_fields, collector, report
from softgpu.compiler.text.builder import zero
from softgpu.compiler.text.special import BLOCK_BYTES, CONTEXT_OFFSET_BYTES
from softgpu.compiler.text.writer import PARALLEL

_LOOP_HINTS = (("vectorize.width", 16), ("interleave.count", 1))
"""Rows of threads are short, and often no longer than this."""
_FIRST_NODE = 1 << 20
_NODES_OF_KERNEL = 1 << 12


@mutable_record
class ContextLayout:
    """`offsets` are bytes of one thread; the arrays of all threads lie at that many bytes times the number of threads."""

    types: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0
    next_offset: int = 0
    thread_bytes: int = 0

    def size_bytes(self, name: str) -> int:
        """Of one register in memory."""
        return max(BITS_OF_LLVM[self.types[name]] // 8, 1)


def struct_type(types: list[str]) -> str:
    """What a function returns; a single value is no structure."""
    return f"{{ {', '.join(types)} }}" if len(types) > 1 else types[0]


def segment_type(segment: Segment, layout: ContextLayout) -> str:
    """What a segment returns: the number of the next one, and the registers that it gives."""
    return struct_type(["i32", *(layout.types[name] for name in segment.gives)])


class _Writer:
    """Lines of one function, and what both kinds of function say of segments."""

    def __init__(self, kernel: Kernel, plan: Fission, layout: ContextLayout) -> None:
        self._kernel = kernel
        self._plan = plan
        self._layout = layout
        self._lines: list[str] = []

    def _emit(self, *lines: str) -> None:
        self._lines += [f"  {line}" for line in lines]

    def _label(self, label: str) -> None:
        self._lines.append(f"{label}:")

    def _call_segment(self, number: int, stem: str, takes: str) -> None:
        """The segment for one thread, `stem` being that of its indices."""
        self._emit(
            f"%{stem}.result = call {segment_type(self._plan.segments[number], self._layout)} "
            f'@"s{number}.{self._kernel.name}"(ptr %block, ptr %self, ptr %shared, ptr %globals, ptr %params, '
            f"i32 {self._kernel.static_shared_bytes}, i32 %{stem}.tx, i32 %{stem}.ty, i32 %{stem}.tz, ptr %bad_bits, "
            f"ptr %context, i64 %{stem}.thread, i64 %nr_threads{takes})"
        )

    def _unpack(self, result_type: str, stem: str, names: list[str]) -> None:
        """Names the fields of `%stem.result`."""
        if len(names) == 1:
            self._emit(f"%{stem}.{names[0]} = add i32 %{stem}.result, 0")
            return
        for index, name in enumerate(names):
            self._emit(f"%{stem}.{name} = extractvalue {result_type} %{stem}.result, {index}")

    def _given(self, number: int) -> list[str]:
        return [f"given{index}" for index in range(len(self._plan.segments[number].gives))]

    def _loop_results(self, number: int) -> tuple[str, list[str]]:
        """The type of what the loop of a segment returns, and its fields: the least and the highest number of a next segment."""
        segment = self._plan.segments[number]
        ways = ["from", "upto"] if segment.is_split else ["from"]
        types = [*("i32" for _ in ways), *(self._layout.types[name] for name in segment.gives)]
        return struct_type(types), [*ways, *self._given(number)]

    def _loop_name(self, number: int) -> str:
        return f"loop{number}.{self._kernel.name}"

    def _loop_parameters(self, number: int) -> list[str]:
        segment, types = self._plan.segments[number], self._layout.types
        parameters = [
            f"ptr dereferenceable({BLOCK_BYTES}) %block",
            "ptr %self",
            "ptr %context",
            "i64 %nr_threads",
            "ptr %bad_bits.all",
        ]
        if self._is_ranged(number):
            parameters += [f"i32 %{name}" for name in ("x0", "x1", "y0", "z0", "begin", "end")]
        parameters += [f"{types[name]} %take{index}" for index, name in enumerate(segment.takes)]
        if segment.is_split:
            parameters += [f"{types[name]} %old{index}" for index, name in enumerate(segment.gives)]
        return parameters

    def _is_ranged(self, number: int) -> bool:
        """Whether single threads come here, too."""
        return self._plan.is_ever_split and number > 0 and not self._plan.segments[number].is_same


class LoopWriter(_Writer):
    """All threads through one segment, row by row; or those of a range."""

    def __init__(self, kernel: Kernel, plan: Fission, layout: ContextLayout, number: int) -> None:
        super().__init__(kernel, plan, layout)
        self._number = number
        self._segment = plan.segments[number]
        self.name = self._loop_name(number)

    def declaration(self) -> str:
        """For modules that only call it."""
        types = ", ".join(parameter.split(" %")[0] for parameter in self._loop_parameters(self._number))
        return f'declare hidden {self._loop_results(self._number)[0]} @"{self.name}"({types})'

    def text(self) -> Iterator[str]:
        """The loop's function; the segment's stands elsewhere in the same module."""
        self._entry()
        self._nest()
        self._leave()
        result, parameters = self._loop_results(self._number)[0], ", ".join(self._loop_parameters(self._number))
        yield f'define hidden {result} @"{self.name}"({parameters}) #1 {{'
        yield "entry:"
        yield from self._lines
        yield "}"
        node = _FIRST_NODE + _NODES_OF_KERNEL * self._kernel.index + 2 * self._number
        hints = "".join(f', !{{!"llvm.loop.{name}", i32 {value}}}' for name, value in _LOOP_HINTS)
        yield f"!{node} = distinct !{{!{node}, !{node + 1}{hints}}}"
        yield f'!{node + 1} = !{{!"llvm.loop.parallel_accesses", !1}}'

    def _entry(self) -> None:
        self._lines += block_fields(self._kernel)
        self._lines += collector()
        if not self._is_ranged(self._number):
            self._emit("%plane.threads = mul nuw nsw i32 %nx, %ny", "%end = mul nuw nsw i32 %plane.threads, %nz")
        if self._segment.is_split:
            self._emit(
                "%least = alloca i32",
                "store i32 -1, ptr %least",
                "%most = alloca i32",
                "store i32 0, ptr %most",
                f"%next.offset = mul i64 %nr_threads, {self._layout.next_offset}",
                "%next = getelementptr i8, ptr %context, i64 %next.offset",
            )
            for index, name in enumerate(self._segment.gives):
                llvm = self._layout.types[name]
                self._emit(f"%kept{index} = alloca {llvm}", f"store {llvm} %old{index}, ptr %kept{index}")
        self._emit("br label %row")

    def _nest(self) -> None:
        """The masks around y and z say how large they may be, which LLVM does not see itself."""
        node = _FIRST_NODE + _NODES_OF_KERNEL * self._kernel.index + 2 * self._number
        x0, x1, y0, z0, begin = "0", "%nx", "0", "0", "0"
        if self._is_ranged(self._number):
            x0, x1, y0, z0, begin = "%x0", "%x1", "%y0", "%z0", "%begin"
        self._label("row")
        self._emit(
            f"%first = phi i32 [ {begin}, %entry ], [ %first.next, %row.end ]",
            f"%y = phi i32 [ {y0}, %entry ], [ %y.next, %row.end ]",
            f"%z = phi i32 [ {z0}, %entry ], [ %z.next, %row.end ]",
            "%s.ty = and i32 %y, 1023",
            "%s.tz = and i32 %z, 63",
            "br label %threads",
        )
        self._label("threads")
        self._emit(
            f"%s.tx = phi i32 [ {x0}, %row ], [ %tx.next, %threads ]",
            "%index = add nuw nsw i32 %first, %s.tx",
            "%s.thread = zext i32 %index to i64",
        )
        self._thread()
        self._emit(
            "%tx.next = add nuw nsw i32 %s.tx, 1",
            f"%tx.more = icmp ult i32 %tx.next, {x1}",
            f"br i1 %tx.more, label %threads, label %row.end, !llvm.loop !{node}",
        )
        self._label("row.end")
        self._emit(
            "%first.next = add nuw nsw i32 %first, %nx",
            "%y.after = add nuw nsw i32 %y, 1",
            "%is.last = icmp eq i32 %y.after, %ny",
            "%y.next = select i1 %is.last, i32 0, i32 %y.after",
            "%z.after = zext i1 %is.last to i32",
            "%z.next = add nuw nsw i32 %z, %z.after",
            "%more = icmp ult i32 %first.next, %end",
            "br i1 %more, label %row, label %leave",
        )

    def _thread(self) -> None:
        """Takes the result apart in the loop: LLVM does not vectorise structures."""
        segment, types = self._segment, self._layout.types
        takes = "".join(f", {types[name]} %take{index}" for index, name in enumerate(segment.takes))
        self._call_segment(self._number, "s", takes)
        self._unpack(segment_type(segment, self._layout), "s", ["to", *self._given(self._number)])
        if not segment.is_split:
            return
        self._emit("%lives = icmp ne i32 %s.to, 0")
        for index, name in enumerate(segment.gives):
            llvm = types[name]
            self._emit(
                f"%before{index} = load {llvm}, ptr %kept{index}",
                f"%now{index} = select i1 %lives, {llvm} %s.given{index}, {llvm} %before{index}",
                f"store {llvm} %now{index}, ptr %kept{index}",
            )
        self._emit("%next.at = getelementptr i32, ptr %next, i64 %s.thread", f"store i32 %s.to, ptr %next.at{PARALLEL}")
        self._lines += widened("s", "%s.to")

    def _leave(self) -> None:
        self._label("leave")
        self._emit(
            "%bits = load i64, ptr %bad_bits",
            "%bits.before = load i64, ptr %bad_bits.all",
            "%bits.all = or i64 %bits.before, %bits",
            "store i64 %bits.all, ptr %bad_bits.all",
        )
        values = ["i32 %s.to"]
        given = [f"{self._layout.types[name]} %s.given{index}" for index, name in enumerate(self._segment.gives)]
        if self._segment.is_split:
            self._emit("%from = load i32, ptr %least", "%upto = load i32, ptr %most")
            values = ["i32 %from", "i32 %upto"]
            for index, name in enumerate(self._segment.gives):
                llvm = self._layout.types[name]
                self._emit(f"%last{index} = load {llvm}, ptr %kept{index}")
                given[index] = f"{llvm} %last{index}"
        values += given
        result = self._loop_results(self._number)[0]
        if len(values) == 1:
            self._emit(f"ret {values[0]}")
            return
        whole = "poison"
        for index, value in enumerate(values):
            self._emit(f"%whole{index} = insertvalue {result} {whole}, {value}, {index}")
            whole = f"%whole{index}"
        self._emit(f"ret {result} {whole}")


def widened(stem: str, to: str) -> Iterator[str]:
    """The range of next segments, with one thread that goes on to `to`."""
    for place, relation in (("least", "ult"), ("most", "ugt")):
        yield f"  %{stem}.{place} = load i32, ptr %{place}"
        yield f"  %{stem}.{place}.is = icmp {relation} i32 {to}, %{stem}.{place}"
        yield f"  %{stem}.{place}.new = select i1 %{stem}.{place}.is, i32 {to}, i32 %{stem}.{place}"
        yield f"  store i32 %{stem}.{place}.new, ptr %{place}"


class BlockWriter(_Writer):
    """`run_block`: the loops in turn, and what comes between."""

    def __init__(self, kernel: Kernel, plan: Fission, layout: ContextLayout) -> None:
        super().__init__(kernel, plan, layout)
        self._taken = sorted({name for segment in plan.segments for name in segment.known})
        self._places = {name: f"%shared.register{index}" for index, name in enumerate(self._taken)}

    def text(self) -> Iterator[str]:
        self._entry()
        for number, segment in enumerate(self._plan.segments):
            self._step(number, segment)
        if self._plan.is_ever_split:
            self._apart()
        self._label("done")
        self._lines += report()
        self._lines.append("  ret void")
        yield (
            f'define hidden void @"block.{self._kernel.name}"(ptr dereferenceable({BLOCK_BYTES}) %block, ptr %self) #0 {{'
        )
        yield "entry:"
        yield from self._lines
        yield "}"

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
            self._emit(*(f"{self._places[name]}.next = alloca {self._layout.types[name]}" for name in self._taken))
            self._emit(
                "%least = alloca i32",
                "%most = alloca i32",
                f"%next.offset = mul i64 %nr_threads, {self._layout.next_offset}",
                "%next = getelementptr i8, ptr %context, i64 %next.offset",
            )
        self._emit("br label %s0")

    def _load(self, stem: str, kind: str, names: list[str]) -> str:
        """Block-wide registers as further arguments of a call."""
        text = ""
        for index, name in enumerate(names):
            llvm = self._layout.types[name]
            self._emit(f"%{stem}.{kind}{index} = load {llvm}, ptr {self._places[name]}")
            text += f", {llvm} %{stem}.{kind}{index}"
        return text

    def _call_loop(self, number: int, stem: str, threads: str) -> None:
        """Leaves its results in `%stem.from`, `.upto`, `.given0`, ..."""
        segment = self._plan.segments[number]
        takes = self._load(stem, "take", segment.takes)
        old = self._load(stem, "old", segment.gives) if segment.is_split else ""
        result, fields = self._loop_results(number)
        self._emit(
            f'%{stem}.result = call {result} @"{self._loop_name(number)}"(ptr %block, ptr %self, ptr %context, '
            f"i64 %nr_threads, ptr %bad_bits{threads if self._is_ranged(number) else ''}{takes}{old})"
        )
        self._unpack(result, stem, fields)

    def _call_once(self, number: int, stem: str) -> None:
        """A segment that does the same for all threads: one of them is enough."""
        segment = self._plan.segments[number]
        self._call_segment(number, stem, self._load(stem, "take", segment.takes))
        self._unpack(segment_type(segment, self._layout), stem, ["from", *self._given(number)])

    def _store_given(self, number: int, stem: str, *, unless_ended: str = "") -> None:
        """With `unless_ended`, of one thread of many: the others have not taken theirs yet."""
        for index, name in enumerate(self._plan.segments[number].gives):
            llvm, place = self._layout.types[name], self._places[name] + (".next" if unless_ended else "")
            value = f"%{stem}.given{index}"
            if unless_ended:
                self._emit(
                    f"%{stem}.before{index} = load {llvm}, ptr {place}",
                    f"%{stem}.kept{index} = select i1 {unless_ended}, {llvm} {value}, {llvm} %{stem}.before{index}",
                )
                value = f"%{stem}.kept{index}"
            self._emit(f"store {llvm} {value}, ptr {place}")

    def _step(self, number: int, segment: Segment) -> None:
        """All threads together through one segment."""
        s = f"s{number}"
        self._label(s)
        if segment.is_same:
            self._emit(*(f"%{s}.t{axis} = add i32 0, 0" for axis in "xyz"), f"%{s}.thread = add i64 0, 0")
            self._call_once(number, s)
        else:
            self._call_loop(number, s, ", i32 0, i32 %nx, i32 0, i32 0, i32 0, i32 %all.threads")
        self._store_given(number, s)
        if segment.is_split:
            self._go_on(s, f"%{s}.from", f"%{s}.upto", segment.next)
        else:
            self._switch(f"%{s}.from", segment.next)

    def _go_on(self, stem: str, least: str, most: str, targets: list[int]) -> None:
        """To one loop when all threads go the same way."""
        self._emit(
            f"%{stem}.together = icmp eq i32 {least}, {most}",
            f"br i1 %{stem}.together, label %{stem}.same, label %apart",
        )
        self._label(f"{stem}.same")
        self._switch(least, targets)

    def _switch(self, to: str, targets: list[int]) -> None:
        labels = {number: f"s{number}" if number else "done" for number in targets}
        if len(labels) <= 1:
            self._emit(f"br label %{next(iter(labels.values()), 'done')}")
            return
        cases = " ".join(f"i32 {number}, label %{label}" for number, label in labels.items())
        self._emit(f"switch i32 {to}, label %never [ {cases} ]")
        if "never:" not in self._lines:
            self._label("never")
            self._emit("unreachable")

    def _apart(self) -> None:
        """
        Each thread through the segment that it goes on with. All of them take the same block-wide registers, so that what they give is kept
        beside those until the last one is through.
        """
        numbers = sorted({number for segment in self._plan.segments for number in segment.next if number})
        self._label("apart")
        self._copy_places("begin", "", ".next")
        self._emit("store i32 -1, ptr %least", "store i32 0, ptr %most", "br label %apart.thread.begin")
        self._label("apart.thread.begin")
        self._emit(
            "%apart.index = phi i32 [ 0, %apart ], [ %apart.index.next, %apart.thread.end ]",
            "%apart.thread = zext i32 %apart.index to i64",
            "%apart.tx = urem i32 %apart.index, %nx",
            "%apart.row = udiv i32 %apart.index, %nx",
            "%apart.ty = urem i32 %apart.row, %ny",
            "%apart.tz = udiv i32 %apart.row, %ny",
            "%apart.x1 = add nuw nsw i32 %apart.tx, 1",
            "%apart.begin = sub nuw nsw i32 %apart.index, %apart.tx",
            "%apart.stop = add nuw nsw i32 %apart.begin, 1",
            "%apart.at = getelementptr i32, ptr %next, i64 %apart.thread",
            "%apart.now = load i32, ptr %apart.at",
        )
        cases = " ".join(f"i32 {number}, label %apart{number}" for number in numbers)
        self._emit(f"switch i32 %apart.now, label %apart.thread.end [ {cases} ]")
        arrivals = ["[ 0, %apart.thread.begin ]"]
        for number in numbers:
            self._apart_step(number)
            arrivals.append(f"[ %apart{number}.from, %apart{number} ]")
        self._label("apart.thread.end")
        self._emit(f"%apart.to = phi i32 {', '.join(arrivals)}")
        self._lines += widened("apart", "%apart.to")
        self._emit(
            "%apart.index.next = add nuw nsw i32 %apart.index, 1",
            "%apart.more = icmp ult i32 %apart.index.next, %all.threads",
            "br i1 %apart.more, label %apart.thread.begin, label %apart.end",
        )
        self._label("apart.end")
        self._copy_places("end", ".next", "")
        self._emit("%apart.from = load i32, ptr %least", "%apart.upto = load i32, ptr %most")
        self._go_on("apart", "%apart.from", "%apart.upto", [0, *numbers])

    def _copy_places(self, stem: str, source: str, target: str) -> None:
        """All block-wide registers, from places of one suffix to those of the other."""
        for index, name in enumerate(self._taken):
            llvm, place = self._layout.types[name], self._places[name]
            value = f"%apart.{stem}.copy{index}"
            self._emit(f"{value} = load {llvm}, ptr {place}{source}", f"store {llvm} {value}, ptr {place}{target}")

    def _apart_step(self, number: int) -> None:
        """One thread through one segment, and where it goes on."""
        stem = f"apart{number}"
        self._label(stem)
        if self._plan.segments[number].is_same:
            self._emit(*(f"%{stem}.t{axis} = add i32 %apart.t{axis}, 0" for axis in "xyz"))
            self._emit(f"%{stem}.thread = add i64 %apart.thread, 0")
            self._call_once(number, stem)
        else:
            one = "i32 %apart.tx, i32 %apart.x1, i32 %apart.ty, i32 %apart.tz, i32 %apart.begin, i32 %apart.stop"
            self._call_loop(number, stem, f", {one}")
        self._emit(f"store i32 %{stem}.from, ptr %apart.at", f"%{stem}.lives = icmp ne i32 %{stem}.from, 0")
        self._store_given(number, stem, unless_ended=f"%{stem}.lives")
        self._emit("br label %apart.thread.end")
