"""Special registers: where a thread stands in its block and grid, clocks, lane masks."""

from __future__ import annotations

from cuda_api.ptx.syntax import Name
from softgpu.compiler.base.layout import RESERVED_SHARED
from softgpu.compiler.flow.analysis import CURRENT_GRAPH
from softgpu.compiler.text.unit import Unit
from softgpu.compiler.text.writer import INVARIANT, Writer

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
_ZERO = frozenset(("%gridid", "%clusterid", "%cluster_ctaid", "%cluster_ctarank", "%is_explicit_cluster"))
_ONE = frozenset(("%nclusterid", "%cluster_nctaid", "%cluster_nctarank"))


def block_word(writer: Writer, offset: int, range_node: str = "") -> str:
    """A 32-bit word of struct sgp_block."""
    suffix = f", !range {range_node}" if range_node else ""
    address = f"getelementptr i8, ptr %block, i64 {offset}"
    return writer.once(f"word{offset}", address, f"load i32, ptr {{}}{INVARIANT}{suffix}")


def linear_thread(writer: Writer) -> str:
    """The thread's number in its block, x fastest."""
    width = block_word(writer, BLOCK_DIM_OFFSET_BYTES, "!2")
    height = block_word(writer, BLOCK_DIM_OFFSET_BYTES + 4, "!2")
    return writer.once(
        "linear",
        f"mul i32 %tz, {height}",
        "add i32 {}, %ty",
        f"mul i32 {{}}, {width}",
        "add i32 {}, %tx",
    )


def lane(writer: Writer) -> str:
    return writer.once("lane", f"and i32 {linear_thread(writer)}, 31")


def _lane_mask(writer: Writer, kind: str) -> str:
    bit = writer.let(f"shl i32 1, {lane(writer)}")
    if kind == "eq":
        return bit
    below = writer.let(f"sub i32 {bit}, 1")
    if kind == "lt":
        return below
    if kind == "ge":
        return writer.let(f"xor i32 {below}, -1")
    inclusive = writer.let(f"or i32 {below}, {bit}")
    return inclusive if kind == "le" else writer.let(f"xor i32 {inclusive}, -1")


def _nr_threads(writer: Writer) -> str:
    words = [block_word(writer, BLOCK_DIM_OFFSET_BYTES + 4 * axis, "!2") for axis in range(3)]
    return writer.let(f"mul i32 {writer.let(f'mul i32 {words[0]}, {words[1]}')}, {words[2]}")


def read_special(writer: Writer, unit: Unit, name: Name) -> tuple[str, str]:
    """The value of a special register and its LLVM type."""
    text = name.text
    axis = _AXIS.get(name.component or "x")
    if text == "%tid" and axis is not None:
        return f"%t{'xyz'[axis]}", "i32"
    if text in _VECTORS and axis is not None:
        offset, node = _VECTORS[text]
        return block_word(writer, offset + 4 * axis, node), "i32"
    if text == "%laneid":
        return lane(writer), "i32"
    if text == "%warpid":
        return writer.let(f"lshr i32 {linear_thread(writer)}, 5"), "i32"
    if text == "%nwarpid":
        return writer.let(f"lshr i32 {writer.let(f'add i32 {_nr_threads(writer)}, 31')}, 5"), "i32"
    if text.startswith("%lanemask_"):
        return _lane_mask(writer, text[10:]), "i32"
    if text == "%smid":
        return block_word(writer, _MULTIPROCESSOR_OFFSET_BYTES), "i32"
    if text == "%nsmid":
        return block_word(writer, _NR_MULTIPROCESSORS_OFFSET_BYTES), "i32"
    if text.startswith(RESERVED_SHARED.name):
        return _reserved_shared(writer, unit, text), "i32"
    if text == "%dynamic_smem_size":
        return block_word(writer, _DYNAMIC_SHARED_OFFSET_BYTES), "i32"
    if text in ("%total_smem_size", "%aggr_smem_size"):
        dynamic = block_word(writer, _DYNAMIC_SHARED_OFFSET_BYTES)
        return writer.let(f"add i32 %dynamic, {dynamic}"), "i32"
    if text in ("%clock", "%clock64", "%clock_hi"):
        return _clock(writer, "clock64", text)
    if text in ("%globaltimer", "%globaltimer_lo", "%globaltimer_hi"):
        return _clock(writer, "global_timer_ns", text)
    if text == CURRENT_GRAPH:
        return writer.runtime("current_graph", "i64", "ptr %self"), "i64"
    if text in _GRID_WORKSPACE_OFFSETS_BYTES:
        return block_word(writer, _GRID_WORKSPACE_OFFSETS_BYTES[text]), "i32"
    if text in _ZERO or text.startswith(("%envreg", "%pm")):
        return "0", "i32"
    if text in _ONE:
        return "1", "i32"
    if text.startswith("%"):
        raise writer.unsupported(f"nothing is known of the register '{text}'")
    raise writer.invalid(f"'{text}' is not declared")


def _reserved_shared(writer: Writer, unit: Unit, register: str) -> str:
    """%reserved_smem_offset_begin, _end, _cap, _0 and _1: the system's part of shared memory, all of it for the last of these."""
    begin = unit.common_shared.places[RESERVED_SHARED.name].offset_bytes
    size = RESERVED_SHARED.dimensions[0]
    offsets = {"begin": begin, "end": begin + size, "cap": size, "0": begin, "1": begin}
    kind = register.rpartition("_")[2]
    if kind not in offsets:
        raise writer.unsupported(f"nothing is known of the register '{register}'")
    return str(offsets[kind])


def _clock(writer: Writer, function: str, register: str) -> tuple[str, str]:
    now = writer.runtime(function, "i64")
    if register in ("%clock64", "%globaltimer"):
        return now, "i64"
    if register.endswith("_hi"):
        now = writer.let(f"lshr i64 {now}, 32")
    return writer.let(f"trunc i64 {now} to i32"), "i32"
