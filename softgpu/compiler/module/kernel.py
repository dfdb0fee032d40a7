"""
The two ways into a kernel: one thread (`run_thread`), or a whole block as a loop nest over its threads (`run_block`).

A kernel in which no thread waits for another has one loop nest over a box of thread indices, with the body inlined; its two entries call it
with one thread or with all. The innermost loop runs over x and says that its iterations are independent, as CUDA threads are. Where barriers
of the whole block are all that threads wait at, `fission` writes a sequence of such loops instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from cuda_api.ptx.syntax import Tuning
from cuda_api.record import field, mutable_record
from softgpu.compiler.base.layout import Placed, Stack
from softgpu.compiler.flow.analysis import Traits
from softgpu.compiler.flow.flatten import FlatFunction
from softgpu.compiler.flow.pressure import nr_registers
from softgpu.compiler.text.special import BLOCK_BYTES, BLOCK_DIM_OFFSET_BYTES
from softgpu.compiler.text.writer import RUNTIME_OFFSETS_BYTES

_MAX_THREADS = 1024


@mutable_record
class Kernel:
    """A kernel's figures, for its wrappers and for the driver."""

    index: int
    flat: FlatFunction
    traits: Traits
    shared: Stack
    static_shared_bytes: int
    stack_bytes: int
    reserved_shared: Placed | None = None
    parameters: Stack = field(default_factory=Stack)
    local_bytes: int = 0
    context_bytes: int = 0
    """What a thread keeps across barriers, of a kernel that runs without fibers in spite of them."""

    @property
    def needs_threads(self) -> bool:
        """Whether every thread runs as a fiber."""
        return self.traits.waits and not self.context_bytes

    @property
    def name(self) -> str:
        return self.flat.function.name

    def _tuning(self, name: str) -> tuple[int, int, int] | None:
        for tuning in self.flat.function.tuning:
            if isinstance(tuning, Tuning) and tuning.name == name:
                padded = (*tuning.values, 1, 1, 1)
                return padded[0], padded[1], padded[2]
        return None

    @property
    def max_threads(self) -> int:
        limits = self._tuning("maxntid") or self._tuning("reqntid")
        return limits[0] * limits[1] * limits[2] if limits else _MAX_THREADS

    @property
    def required_threads(self) -> tuple[int, int, int]:
        return self._tuning("reqntid") or (0, 0, 0)

    @property
    def nr_registers(self) -> int:
        return nr_registers(self.flat)


def body_parameters(has_loop: bool) -> str:
    """
    Parameters of a kernel's body. Where it is inlined into a loop, `noalias` would leave marks that hide the loop's independence. Shared memory
    is never `noalias`: other threads write it while this one waits.
    """
    alias = "" if has_loop else "noalias "
    return (
        f"ptr {alias}dereferenceable({BLOCK_BYTES}) %block, ptr %self, ptr %shared, ptr %globals, ptr {alias}%params, "
        "i32 %dynamic, i32 %tx, i32 %ty, i32 %tz, ptr %bad_bits"
    )


def block_fields(kernel: Kernel) -> Iterator[str]:
    """What every entry reads first. The parameter buffer may be read ahead of any guard: its size is known."""
    known = f", !dereferenceable !{_node(kernel) + 2}" if kernel.parameters.end_bytes else ""
    for offset, name in ((8, "params"), (16, "globals"), (24, "shared")):
        yield f"  %{name}.at = getelementptr i8, ptr %block, i64 {offset}"
        yield f"  %{name} = load ptr, ptr %{name}.at, !invariant.load !0{known if name == 'params' else ''}"
    for axis, name in enumerate(("nx", "ny", "nz")):
        yield f"  %{name}.at = getelementptr i8, ptr %block, i64 {BLOCK_DIM_OFFSET_BYTES + 4 * axis}"
        yield f"  %{name} = load i32, ptr %{name}.at, !range !2, !invariant.load !0"


def declaration(name: str) -> str:
    """Of a function that struct sgp_kernel names, for the modules that do not define it."""
    return f'declare hidden void @"{name}"({"ptr, ptr, i32" if name.startswith("thread.") else "ptr, ptr"})'


def _call_body(kernel: Kernel) -> str:
    return (
        f'  call void @"k.{kernel.name}"(ptr %block, ptr %self, ptr %shared, ptr %globals, ptr %params, '
        f"i32 {kernel.static_shared_bytes}, i32 %tx, i32 %ty, i32 %tz, ptr %bad_bits)"
    )


def kernel_wrappers(kernel: Kernel) -> Iterator[str]:
    """LLVM text of the functions that struct sgp_kernel names."""
    yield f'define hidden void @"thread.{kernel.name}"(ptr %block, ptr %self, i32 %index) #0 {{'
    yield from block_fields(kernel)
    yield from _clear_reserved(kernel)
    yield "  %tx = urem i32 %index, %nx"
    yield "  %row = udiv i32 %index, %nx"
    yield "  %ty = urem i32 %row, %ny"
    yield "  %tz = udiv i32 %row, %ny"
    if kernel.traits.waits:
        yield from collector()
        yield _call_body(kernel)
        yield from report()
    else:
        yield "  %x1 = add i32 %tx, 1"
        yield "  %y1 = add i32 %ty, 1"
        yield "  %z1 = add i32 %tz, 1"
        yield (
            f'  call void @"box.{kernel.name}"(ptr %block, ptr %self, i32 %tx, i32 %x1, i32 %ty, i32 %y1, i32 %tz, i32 %z1)'
        )
    yield "  ret void\n}"
    if not kernel.traits.waits:
        yield from _box(kernel)
        yield f'define hidden void @"block.{kernel.name}"(ptr %block, ptr %self) #0 {{'
        yield from block_fields(kernel)
        yield f'  call void @"box.{kernel.name}"(ptr %block, ptr %self, i32 0, i32 %nx, i32 0, i32 %ny, i32 0, i32 %nz)'
        yield "  ret void\n}"


def collector() -> Iterator[str]:
    """Where threads collect the bits of addresses that must not be set."""
    yield "  %bad_bits = alloca i64"
    yield "  store i64 0, ptr %bad_bits"


def report() -> Iterator[str]:
    yield "  %bits = load i64, ptr %bad_bits"
    yield "  %is.good = icmp eq i64 %bits, 0"
    yield "  br i1 %is.good, label %good, label %bad, !prof !10"
    yield "bad:"
    yield "  %runtime = load ptr, ptr %block"
    yield f"  %function.at = getelementptr i8, ptr %runtime, i64 {RUNTIME_OFFSETS_BYTES['bad_address']}"
    yield "  %function = load ptr, ptr %function.at"
    yield "  call void %function(ptr %self, i64 %bits)"
    yield "  br label %good"
    yield "good:"


def _clear_reserved(kernel: Kernel) -> Iterator[str]:
    """The first thread to run clears what the block's shared memory reserves."""
    if kernel.reserved_shared is None:
        return
    yield "  %is.first = icmp eq i32 %index, 0"
    yield "  br i1 %is.first, label %clear, label %start"
    yield "clear:"
    yield f"  %reserved = getelementptr i8, ptr %shared, i64 {kernel.reserved_shared.offset_bytes}"
    size_bytes = kernel.reserved_shared.size_bytes
    yield f"  store [{size_bytes} x i8] zeroinitializer, ptr %reserved, align 128"
    yield "  br label %start"
    yield "start:"


def parameters_node(kernel: Kernel) -> str:
    """The metadata that says how many bytes of parameters may be read."""
    return f"!{_node(kernel) + 2} = !{{i64 {max(kernel.parameters.end_bytes, 1)}}}"


def _node(kernel: Kernel) -> int:
    """The first of this kernel's metadata nodes."""
    return 1000 + 3 * kernel.index


def _box(kernel: Kernel) -> Iterator[str]:
    node = _node(kernel)
    yield (
        f'define internal void @"box.{kernel.name}"(ptr dereferenceable({BLOCK_BYTES}) %block, ptr %self, '
        "i32 %x0, i32 %x1, i32 %y0, i32 %y1, i32 %z0, i32 %z1) #1 {"
    )
    yield "entry:"
    yield from block_fields(kernel)
    yield from collector()
    yield "  br label %plane"
    yield "plane:"
    yield "  %tz = phi i32 [ %z0, %entry ], [ %tz.next, %plane.end ]"
    yield "  br label %row"
    yield "row:"
    yield "  %ty = phi i32 [ %y0, %plane ], [ %ty.next, %row.end ]"
    yield "  br label %thread"
    yield "thread:"
    yield "  %tx = phi i32 [ %x0, %row ], [ %tx.next, %thread ]"
    yield _call_body(kernel)
    yield "  %tx.next = add nuw nsw i32 %tx, 1"
    yield "  %tx.more = icmp ult i32 %tx.next, %x1"
    yield f"  br i1 %tx.more, label %thread, label %row.end, !llvm.loop !{node}"
    yield "row.end:"
    yield "  %ty.next = add nuw nsw i32 %ty, 1"
    yield "  %ty.more = icmp ult i32 %ty.next, %y1"
    yield "  br i1 %ty.more, label %row, label %plane.end"
    yield "plane.end:"
    yield "  %tz.next = add nuw nsw i32 %tz, 1"
    yield "  %tz.more = icmp ult i32 %tz.next, %z1"
    yield "  br i1 %tz.more, label %plane, label %done"
    yield "done:"
    yield from report()
    yield "  ret void\n}"
    yield f"!{node} = distinct !{{!{node}, !{node + 1}}}"
    yield f'!{node + 1} = !{{!"llvm.loop.parallel_accesses", !1}}'
