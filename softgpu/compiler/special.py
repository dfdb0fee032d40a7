"""Special registers: where a thread stands in its block and grid, clocks, lane masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuda_api.ptx.syntax import Name
from softgpu.compiler.builder import INVARIANT
from softgpu.compiler.layout import RESERVED_SHARED

if TYPE_CHECKING:
    from softgpu.compiler.builder import Builder

_AXIS = {"x": 0, "y": 1, "z": 2}
GRID_OFFSET_BYTES = 32
BLOCK_DIM_OFFSET_BYTES = 44
BLOCK_INDEX_OFFSET_BYTES = 56
_DYNAMIC_SHARED_OFFSET_BYTES = 68
_MULTIPROCESSOR_OFFSET_BYTES = 72
_NR_MULTIPROCESSORS_OFFSET_BYTES = 76
_GRID_WORKSPACE_OFFSETS_BYTES = {"%envreg1": 84, "%envreg2": 80}
CONTEXT_OFFSET_BYTES = 88
BLOCK_BYTES = 96
_VECTORS = {
    "%ntid": (BLOCK_DIM_OFFSET_BYTES, "!2"),
    "%ctaid": (BLOCK_INDEX_OFFSET_BYTES, "!3"),
    "%nctaid": (GRID_OFFSET_BYTES, "!4"),
}
_ZERO = frozenset(
    ("%gridid", "%clusterid", "%cluster_ctaid", "%cluster_ctarank", "%is_explicit_cluster", "%current_graph_exec")
)
_ONE = frozenset(("%nclusterid", "%cluster_nctaid", "%cluster_nctarank"))


def block_word(builder: Builder, offset: int, range_node: str = "") -> str:
    """A 32-bit word of struct sgp_block."""
    suffix = f", !range {range_node}" if range_node else ""
    address = f"getelementptr i8, ptr %block, i64 {offset}"
    return builder.once(f"word{offset}", address, f"load i32, ptr {{}}{INVARIANT}{suffix}")


def linear_thread(builder: Builder) -> str:
    """The thread's number in its block, x fastest."""
    width = block_word(builder, BLOCK_DIM_OFFSET_BYTES, "!2")
    height = block_word(builder, BLOCK_DIM_OFFSET_BYTES + 4, "!2")
    return builder.once(
        "linear",
        f"mul i32 %tz, {height}",
        "add i32 {}, %ty",
        f"mul i32 {{}}, {width}",
        "add i32 {}, %tx",
    )


def lane(builder: Builder) -> str:
    return builder.once("lane", f"and i32 {linear_thread(builder)}, 31")


def _lane_mask(builder: Builder, kind: str) -> str:
    bit = builder.let(f"shl i32 1, {lane(builder)}")
    if kind == "eq":
        return bit
    below = builder.let(f"sub i32 {bit}, 1")
    if kind == "lt":
        return below
    if kind == "ge":
        return builder.let(f"xor i32 {below}, -1")
    inclusive = builder.let(f"or i32 {below}, {bit}")
    return inclusive if kind == "le" else builder.let(f"xor i32 {inclusive}, -1")


def _nr_threads(builder: Builder) -> str:
    words = [block_word(builder, BLOCK_DIM_OFFSET_BYTES + 4 * axis, "!2") for axis in range(3)]
    return builder.let(f"mul i32 {builder.let(f'mul i32 {words[0]}, {words[1]}')}, {words[2]}")


def read_special(builder: Builder, name: Name) -> tuple[str, str]:
    """The value of a special register and its LLVM type."""
    text = name.text
    axis = _AXIS.get(name.component or "x")
    if text == "%tid" and axis is not None:
        return f"%t{'xyz'[axis]}", "i32"
    if text in _VECTORS and axis is not None:
        offset, node = _VECTORS[text]
        return block_word(builder, offset + 4 * axis, node), "i32"
    if text == "%laneid":
        return lane(builder), "i32"
    if text == "%warpid":
        return builder.let(f"lshr i32 {linear_thread(builder)}, 5"), "i32"
    if text == "%nwarpid":
        return builder.let(f"lshr i32 {builder.let(f'add i32 {_nr_threads(builder)}, 31')}, 5"), "i32"
    if text.startswith("%lanemask_"):
        return _lane_mask(builder, text[10:]), "i32"
    if text == "%smid":
        return block_word(builder, _MULTIPROCESSOR_OFFSET_BYTES), "i32"
    if text == "%nsmid":
        return block_word(builder, _NR_MULTIPROCESSORS_OFFSET_BYTES), "i32"
    if text.startswith(RESERVED_SHARED.name):
        return _reserved_shared(builder, text), "i32"
    if text == "%dynamic_smem_size":
        return block_word(builder, _DYNAMIC_SHARED_OFFSET_BYTES), "i32"
    if text in ("%total_smem_size", "%aggr_smem_size"):
        dynamic = block_word(builder, _DYNAMIC_SHARED_OFFSET_BYTES)
        return builder.let(f"add i32 %dynamic, {dynamic}"), "i32"
    if text in ("%clock", "%clock64", "%clock_hi"):
        return _clock(builder, "clock64", text)
    if text in ("%globaltimer", "%globaltimer_lo", "%globaltimer_hi"):
        return _clock(builder, "global_timer_ns", text)
    if text in _GRID_WORKSPACE_OFFSETS_BYTES:
        return block_word(builder, _GRID_WORKSPACE_OFFSETS_BYTES[text]), "i32"
    if text in _ZERO or text.startswith(("%envreg", "%pm")):
        return "0", "i32"
    if text in _ONE:
        return "1", "i32"
    if text.startswith("%"):
        raise builder.unsupported(f"nothing is known of the register '{text}'")
    raise builder.invalid(f"'{text}' is not declared")


def _reserved_shared(builder: Builder, register: str) -> str:
    """%reserved_smem_offset_begin, _end, _cap, _0 and _1: the system's part of shared memory, all of it for the last of these."""
    begin = builder.frame.unit.common_shared.places[RESERVED_SHARED.name].offset_bytes
    size = RESERVED_SHARED.dimensions[0]
    offsets = {"begin": begin, "end": begin + size, "cap": size, "0": begin, "1": begin}
    kind = register.rpartition("_")[2]
    if kind not in offsets:
        raise builder.unsupported(f"nothing is known of the register '{register}'")
    return str(offsets[kind])


def _clock(builder: Builder, function: str, register: str) -> tuple[str, str]:
    now = builder.runtime(function, "i64")
    if register in ("%clock64", "%globaltimer"):
        return now, "i64"
    if register.endswith("_hi"):
        now = builder.let(f"lshr i64 {now}, 32")
    return builder.let(f"trunc i64 {now} to i32"), "i32"
