"""The compiler as a whole: modules, spaces, control flow, calls and atomics that run by the ABI alone; the command;
what is refused and how."""

from __future__ import annotations

import ctypes
import os
import random
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from softgpu.compiler.base.errors import (
    InvalidImageError,
    InvalidPtxError,
    UnsupportedInstruction,
    UnsupportedPtxVersionError,
)
from softgpu.compiler.command import compile_image, llvm_text
from tests.softgpu.compiler_harness import CAPABILITY, HEADER, LoadedModule, compiled

KERNEL = """.visible .entry k(.param .u64 out, .param .u64 in) {{
  .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<20>; .reg .b64 %x<20>; .reg .f32 %f<9>; .reg .f64 %d<9>;
  ld.param.u64 %x0, [out]; ld.param.u64 %x1, [in]; mov.u32 %r0, %tid.x; cvt.u64.u32 %x2, %r0;
  mad.lo.s64 %x3, %x2, 4, %x0; mad.lo.s64 %x4, %x2, 4, %x1;
  {body}
  ret;
}}
"""


def words(
    module: LoadedModule, values: list[int], threads: int | None = None, nr_out: int = 0, name: str = "k"
) -> list[int]:
    """Runs k(out, in) with one block; `out` starts as all ones."""
    threads = len(values) if threads is None else threads
    nr_out = nr_out or threads
    out = ctypes.create_string_buffer(b"\xff" * (4 * nr_out), 4 * nr_out)
    inside = ctypes.create_string_buffer(struct.pack(f"<{len(values)}I", *values), 4 * len(values))
    parameters = struct.pack("<QQ", ctypes.addressof(out), ctypes.addressof(inside))
    module.run(name, parameters, block_dim=(threads, 1, 1))
    return list(struct.unpack(f"<{nr_out}I", out.raw))


def run_body(tmp_path: Path, body: str, values: list[int], threads: int | None = None, nr_out: int = 0) -> list[int]:
    return words(compiled(HEADER + KERNEL.format(body=body), tmp_path), values, threads, nr_out)


def test_registers_that_are_vectors(tmp_path: Path) -> None:
    """Of two names for each element, in a block that has a vector of the same name, and as the operand of a load and a store."""
    body = """.reg .v4 .u32 %v; .reg .v2 .b32 %w<2>;
      ld.global.v4.u32 %v, [%x1]; mov.v2.b32 %w1, {%v.w, %v.z}; mov.u32 %v.g, 7;
      { .reg .v2 .b32 %v; mov.v2.b32 %v, {100, 200}; add.u32 %w1.x, %w1.r, %v.y; }
      st.global.v4.u32 [%x0], %v; st.global.v2.b32 [%x0+16], %w1;"""
    assert run_body(tmp_path, body, [1, 2, 3, 4], threads=1, nr_out=6) == [1, 7, 3, 4, 204, 3]


def test_vector_add_over_blocks_and_in_three_dimensions(tmp_path: Path) -> None:
    text = """.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) {
      .reg .pred %p<2>; .reg .f32 %f<4>; .reg .b32 %r<20>; .reg .b64 %rd<11>;
      ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u32 %r2, [n];
      mov.u32 %r3, %ctaid.z; mov.u32 %r4, %nctaid.y; mov.u32 %r5, %ctaid.y; mad.lo.s32 %r3, %r3, %r4, %r5;
      mov.u32 %r4, %nctaid.x; mov.u32 %r5, %ctaid.x; mad.lo.s32 %r3, %r3, %r4, %r5;
      mov.u32 %r4, %ntid.z; mov.u32 %r5, %tid.z; mad.lo.s32 %r3, %r3, %r4, %r5;
      mov.u32 %r4, %ntid.y; mov.u32 %r5, %tid.y; mad.lo.s32 %r3, %r3, %r4, %r5;
      mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x; mad.lo.s32 %r1, %r3, %r4, %r5;
      setp.ge.s32 %p1, %r1, %r2; @%p1 bra $L; cvta.to.global.u64 %rd4, %rd1; mul.wide.s32 %rd5, %r1, 4;
      add.s64 %rd6, %rd4, %rd5; cvta.to.global.u64 %rd7, %rd2; add.s64 %rd8, %rd7, %rd5; ld.global.f32 %f1, [%rd8];
      ld.global.f32 %f2, [%rd6]; add.f32 %f3, %f2, %f1; cvta.to.global.u64 %rd9, %rd3; add.s64 %rd10, %rd9, %rd5;
      st.global.f32 [%rd10], %f3;
      $L: ret; }"""
    module = compiled(HEADER + text, tmp_path)
    kernel = module.kernels["add"]
    assert (kernel.nr_parameters, kernel.parameters_bytes, kernel.needs_threads, kernel.max_threads) == (4, 28, 0, 1024)
    assert [kernel.parameters[i].offset_bytes for i in range(4)] == [0, 8, 16, 24]
    for block_dim, grid in (((64, 1, 1), (3, 1, 1)), ((5, 3, 2), (2, 3, 2))):
        count = 150
        a, b = ([float(random.Random(seed).randrange(1 << 20)) for _ in range(count)] for seed in (1, 2))
        buffers = [ctypes.create_string_buffer(struct.pack(f"<{count}f", *values)) for values in (a, b, [0.0] * count)]
        parameters = struct.pack("<QQQI", *map(ctypes.addressof, buffers), count)
        module.run("add", parameters, block_dim=block_dim, grid=grid)
        assert list(struct.unpack(f"<{count}f", buffers[2].raw[: 4 * count])) == [
            x + y for x, y in zip(a, b, strict=True)
        ]


def test_an_output_that_is_no_file_stays_what_it_is(tmp_path: Path) -> None:
    """As /dev/null."""
    output = tmp_path / "pipe"
    os.mkfifo(output)
    reader = os.open(output, os.O_RDWR)
    compile_image((HEADER + KERNEL.format(body="")).encode(), CAPABILITY, output)
    assert stat.S_ISFIFO(output.stat().st_mode)
    assert os.read(reader, 4) == b"\x7fELF"
    os.close(reader)


def test_one_thread_of_a_block(tmp_path: Path) -> None:
    module = compiled(HEADER + KERNEL.format(body="st.global.u32 [%x3], 7;"), tmp_path)
    out = ctypes.create_string_buffer(16)
    module.run("k", struct.pack("<QQ", ctypes.addressof(out), 0), block_dim=(4, 1, 1), thread=2)
    assert struct.unpack("<4I", out.raw) == (0, 0, 7, 0)


def test_loops_and_divergence(tmp_path: Path) -> None:
    body = """ld.global.u32 %r1, [%x4]; mov.u32 %r2, 0;
      LOOP: setp.le.u32 %p1, %r1, 1; @%p1 bra DONE; add.u32 %r2, %r2, 1;
      and.b32 %r3, %r1, 1; setp.eq.u32 %p2, %r3, 0; @%p2 shr.u32 %r1, %r1, 1; @!%p2 mad.lo.u32 %r1, %r1, 3, 1; bra.uni LOOP;
      DONE: st.global.u32 [%x3], %r2;"""
    starts = list(range(1, 65))

    def steps(n: int) -> int:
        count = 0
        while n > 1:
            n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
        return count

    assert run_body(tmp_path, body, starts) == [steps(n) for n in starts]


def test_branch_table_early_exit_and_undefined_registers(tmp_path: Path) -> None:
    body = """ld.global.u32 %r1, [%x4]; setp.gt.u32 %p1, %r1, 3; @%p1 exit;
      T: .branchtargets A, B, A, C; brx.idx %r1, T;
      A: st.global.u32 [%x3], %r9; ret;
      B: st.global.u32 [%x3], 11; ret;
      C: st.global.u32 [%x3], 22;"""
    assert run_body(tmp_path, body, [0, 1, 2, 3, 4]) == [0, 11, 0, 22, 0xFFFFFFFF]


def test_local_shared_and_generic_addresses(tmp_path: Path) -> None:
    body = """.local .align 4 .b8 depot[64]; .shared .align 4 .b8 mine[256]; .reg .b64 %SP, %SPL;
      mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL;
      ld.global.u32 %r1, [%x4]; and.b32 %r2, %r1, 15; cvt.u64.u32 %x5, %r2; shl.b64 %x5, %x5, 2;
      add.u64 %x6, %SPL, %x5; st.local.u32 [%x6], %r1; add.u64 %x7, %SP, %x5; ld.u32 %r3, [%x7];
      mov.u32 %r4, mine; shl.b32 %r5, %r0, 2; add.s32 %r6, %r4, %r5; st.shared.u32 [%r6], %r3;
      cvt.u64.u32 %x8, %r6; cvta.shared.u64 %x9, %x8; ld.u32 %r7, [%x9]; cvta.to.shared.u64 %x10, %x9; ld.shared.u32 %r8, [%x10];
      isspacep.shared %p1, %x9; isspacep.global %p2, %x3; isspacep.local %p3, %x7; isspacep.shared %p4, %x3;
      and.pred %p1, %p1, %p2; and.pred %p1, %p1, %p3; not.pred %p4, %p4; and.pred %p1, %p1, %p4;
      add.u32 %r7, %r7, %r8; @%p1 st.global.u32 [%x3], %r7;"""
    values = [random.Random(3).randrange(1 << 30) for _ in range(32)]
    assert run_body(tmp_path, body, values) == [2 * value for value in values]


def test_shared_addresses_have_32_bits_and_wrap(tmp_path: Path) -> None:
    body = """.shared .align 4 .b8 mine[256];
      ld.global.u32 %r3, [%x4]; mov.u32 %r4, mine; shl.b32 %r5, %r0, 2; add.s32 %r6, %r4, %r5; sub.s32 %r6, %r6, 1024;
      st.shared.u32 [%r6+1024], %r3; ld.shared.u32 %r7, [%r6+1024]; st.global.u32 [%x3], %r7;"""
    assert run_body(tmp_path, body, [5, 6, 7]) == [5, 6, 7]


def test_dynamic_shared_memory_follows_the_static(tmp_path: Path) -> None:
    text = """.extern .shared .align 16 .b8 dyn[]; .shared .b32 common[3];
    .visible .entry k(.param .u64 out) { .shared .align 8 .b8 own[20]; .reg .b32 %r<9>; .reg .b64 %x<3>;
      ld.param.u64 %x0, [out]; mov.u32 %r0, common; mov.u32 %r1, own; mov.u32 %r2, dyn; mov.u32 %r3, %dynamic_smem_size;
      mov.u32 %r4, %total_smem_size; st.global.v4.u32 [%x0], {%r0, %r1, %r2, %r3}; st.global.u32 [%x0+16], %r4;
      st.shared.u32 [dyn+96], 5; st.shared.u32 [common+4], 6; ret; }
    .visible .entry other(.param .u64 out) { .shared .b8 own[4]; .reg .b64 %x; .reg .b32 %r; ld.param.u64 %x, [out];
      mov.u32 %r, own; st.global.u32 [%x], %r; ret; }"""
    module = compiled(HEADER + text, tmp_path)
    out = ctypes.create_string_buffer(32)
    out_at = -(-ctypes.addressof(out) // 16) * 16 if ctypes.addressof(out) % 16 else ctypes.addressof(out)
    memory = ctypes.create_string_buffer(64)
    out_at = -(-ctypes.addressof(memory) // 16) * 16
    module.run("k", struct.pack("<Q", out_at), dynamic_shared_bytes=100)
    assert struct.unpack("<5I", ctypes.string_at(out_at, 20)) == (0, 16, 48, 100, 148)
    assert module.kernels["k"].static_shared_bytes == 48
    assert module.kernels["other"].static_shared_bytes == 4


@pytest.mark.parametrize(
    ("words_and_operands", "nr_bytes"),
    [
        (" [%r6], [%x4], 4", (4, 4, 4, 4)),
        (".L2::cache_hint [%r6], [%x4], 4, %x9", (4, 4, 4, 4)),
        (" [%r6], [%x4], 4, %r0", (0, 1, 2, 3)),
        (".L2::cache_hint [%r6], [%x4], 4, %r0, %x9", (0, 1, 2, 3)),
        (" [%r6], [%x4], 4, %p1", (4, 0, 4, 0)),
        (" [%r6], [%x4], 4, !%p1", (0, 4, 0, 4)),
        (".L2::cache_hint.L2::128B [%r6], [%x4], 4, %p1, %x9", (4, 0, 4, 0)),
    ],
)
def test_copies_of_a_part_or_nothing(tmp_path: Path, words_and_operands: str, nr_bytes: tuple[int, ...]) -> None:
    """What is not copied becomes zeros. A thread's number is in r0, whether it is odd in p1."""
    body = f""".shared .align 4 .b8 mine[256]; mov.u32 %r4, mine; shl.b32 %r5, %r0, 2; add.s32 %r6, %r4, %r5; st.shared.u32 [%r6], 9;
      and.b32 %r7, %r0, 1; setp.ne.u32 %p1, %r7, 0; createpolicy.fractional.L2::evict_last.b64 %x9, 1.0;
      cp.async.ca.shared.global{words_and_operands}; cp.async.wait_all; ld.shared.u32 %r8, [%r6]; st.global.u32 [%x3], %r8;"""
    values = [0x04030201 + thread for thread in range(4)]
    assert run_body(tmp_path, body, values) == [
        value % (1 << 8 * nr) for value, nr in zip(values, nr_bytes, strict=True)
    ]


def test_globals_constants_and_relocations(tmp_path: Path) -> None:
    prelude = """.const .align 4 .u32 factors[4] = {3, 5, 7, 9}; .global .align 4 .b8 table[16] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4};
      .global .u64 middle = generic(table)+8; .global .f32 half = 0f3F000000; .global .f32 decimal = 1.25; .visible .global .u32 count;"""
    body = """ld.global.u64 %x5, [middle]; ld.u32 %r1, [%x5]; mov.u64 %x6, factors; shl.b64 %x7, %x2, 2; add.s64 %x6, %x6, %x7;
      ld.const.u32 %r2, [%x6]; ld.const.u32 %r3, [factors+4]; ld.global.f32 %f1, [half]; ld.global.f32 %f2, [decimal];
      add.f32 %f1, %f1, %f2; mov.b32 %r4, %f1; mul.lo.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4;
      atom.global.add.u32 %r5, [count], 1; st.global.u32 [%x3], %r1;"""
    module = compiled(HEADER + prelude + KERNEL.format(body=body), tmp_path)
    one_and_three_quarters = 0x3FE00000
    assert words(module, [0] * 4) == [3 * factor + 5 + one_and_three_quarters for factor in (3, 5, 7, 9)]
    assert module.globals["factors"].is_constant and not module.globals["table"].is_constant
    assert (module.globals["table"].size_bytes, module.globals["factors"].size_bytes) == (16, 16)
    count = module.globals["count"]
    assert ctypes.c_uint32.from_address(module.base + count.offset_bytes).value == 4


def _bytes_of(address: str, nr_bytes: int = 8) -> str:
    """An address as nvcc writes it into a packed structure."""
    return ", ".join(f"{0xFF << 8 * index:#X}({address})" for index in range(nr_bytes))


def test_addresses_that_are_not_aligned(tmp_path: Path) -> None:
    prelude = f""".global .align 4 .b32 table[4] = {{10, 11, 12, 13}};
      .global .align 1 .u8 packed[20] = {{121, {_bytes_of("generic(table)+4")}, 7, {_bytes_of("generic(table)+12")}, 9}};"""
    body = """mov.u64 %x5, packed; mad.lo.u64 %x5, %x2, 9, %x5; ld.global.u8 %r1, [%x5]; mov.u64 %x6, 0; mov.u32 %r2, 8;
      AGAIN: cvt.u64.u32 %x7, %r2; add.u64 %x7, %x5, %x7; ld.global.u8 %x8, [%x7]; shl.b64 %x6, %x6, 8; or.b64 %x6, %x6, %x8;
      sub.u32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra AGAIN;
      ld.u32 %r3, [%x6]; mad.lo.u32 %r3, %r1, 100, %r3; ld.global.u8 %r4, [packed+18]; mad.lo.u32 %r3, %r3, 10, %r4;
      st.global.u32 [%x3], %r3;"""
    module = compiled(HEADER + prelude + KERNEL.format(body=body), tmp_path)
    assert words(module, [0, 0]) == [121119, 7139]


FUNCTIONS = """
.func (.param .b32 r) twice (.param .b32 a) { .reg .b32 %r; ld.param.u32 %r, [a]; add.u32 %r, %r, %r; st.param.b32 [r+0], %r; ret; }
.func (.reg .b32 r) plus (.reg .b32 a, .reg .b32 b) { add.u32 r, a, b; ret; }
.func (.param .b32 r) factorial (.param .b32 a) {
  .reg .b32 %r<4>; .reg .pred %p; ld.param.u32 %r0, [a]; setp.le.u32 %p, %r0, 1; @%p bra ONE;
  { .param .b32 p; .param .b32 q; sub.u32 %r1, %r0, 1; st.param.b32 [p], %r1; call.uni (q), factorial, (p); ld.param.b32 %r2, [q]; }
  mul.lo.u32 %r3, %r2, %r0; st.param.b32 [r], %r3; ret;
  ONE: mov.u32 %r3, 1; st.param.b32 [r], %r3; ret; }
.func leave (.param .b32 a) { .reg .b32 %r; .reg .pred %p; ld.param.u32 %r, [a]; setp.gt.u32 %p, %r, 5; @%p exit; ret; }
.global .u64 functions[2] = {twice, factorial};
"""


def test_calls_direct_recursive_and_by_address(tmp_path: Path) -> None:
    body = """ld.global.u32 %r1, [%x4];
      { .param .b32 p; .param .b32 q; st.param.b32 [p], %r1; call.uni (q), factorial, (p); ld.param.b32 %r2, [q]; }
      call (%r3), plus, (%r2, 100);
      and.b32 %r4, %r1, 1; cvt.u64.u32 %x5, %r4; shl.b64 %x5, %x5, 3; mov.u64 %x6, functions; add.s64 %x6, %x6, %x5;
      ld.global.u64 %x7, [%x6];
      { .param .b32 p; .param .b32 q; st.param.b32 [p], %r1; proto: .callprototype (.param .b32 _) _ (.param .b32 _);
        call (q), %x7, (p), proto; ld.param.b32 %r5, [q]; }
      { .param .b32 p; st.param.b32 [p], %r1; call leave, (p); }
      add.u32 %r3, %r3, %r5; st.global.u32 [%x3], %r3;"""
    factorials = [1, 1, 2, 6, 24, 120]
    expected = [f + 100 + (f if n % 2 else 2 * n) for n, f in enumerate(factorials)]
    module = compiled(HEADER + FUNCTIONS + KERNEL.format(body=body), tmp_path)
    assert words(module, list(range(8))) == [*expected, 0xFFFFFFFF, 0xFFFFFFFF]
    assert module.kernels["k"].stack_bytes > 256 << 10


def test_names_of_nested_blocks_are_their_own(tmp_path: Path) -> None:
    body = """mov.u32 %r1, 1; { .reg .b32 %r1; mov.u32 %r1, 2; { .reg .pred %p1; L: setp.eq.u32 %p1, %r1, 5; @%p1 bra DONE;
      add.u32 %r1, %r1, 1; bra L; DONE: add.u32 %r2, %r2, %r1; } }
      { .reg .b32 %r1; add.u32 %r2, %r2, %r1; } add.u32 %r2, %r2, %r1; st.global.u32 [%x3], %r2;"""
    assert run_body(tmp_path, body, [0]) == [6]


def test_each_kernel_has_only_the_shared_variables_that_it_names(tmp_path: Path) -> None:
    """nvcc -rdc=true makes all of them variables of the module, where two kernels alone may have more than a block can."""
    text = """.weak .shared .align 16 .b8 first[40000]; .weak .shared .align 16 .b8 second[30000]; .shared .b32 both;
    .func f() { st.shared.u32 [both], 7; ret; }
    .visible .entry one(.param .u64 out) { .reg .b32 %r; .reg .b64 %x; ld.param.u64 %x, [out];
      st.shared.u32 [first+39996], 5; call f; ld.shared.u32 %r, [both]; st.global.u32 [%x], %r;
      ld.shared.u32 %r, [first+39996]; st.global.u32 [%x+4], %r; mov.u32 %r, first; st.global.u32 [%x+8], %r; ret; }
    .visible .entry two() { st.shared.u32 [second], 5; ret; }
    .visible .entry none() { ret; }"""
    module = compiled(HEADER + text, tmp_path)
    out = (ctypes.c_uint32 * 3)()
    module.run("one", struct.pack("<Q", ctypes.addressof(out)))
    assert list(out) == [7, 5, 16]
    sizes = {name: kernel.static_shared_bytes for name, kernel in module.kernels.items()}
    assert sizes == {"one": 40016, "two": 30000, "none": 0}


@pytest.mark.parametrize("space", ["global", "shared", "generic"])
@pytest.mark.parametrize(
    ("operation", "start", "values", "expected"),
    [
        ("add.u32", 5, [1, 2, 3, 4], 15),
        ("add.s32", 5, [0xFFFFFFFF] * 3, 2),
        ("min.s32", 5, [9, 0xFFFFFFFE, 3], 0xFFFFFFFE),
        ("max.s32", 5, [9, 0xFFFFFFFE, 3], 9),
        ("min.u32", 5, [9, 0xFFFFFFFE, 3], 3),
        ("max.u32", 5, [9, 0xFFFFFFFE, 3], 0xFFFFFFFE),
        ("and.b32", 0xFF, [0xF7, 0x7F], 0x77),
        ("or.b32", 1, [4, 16], 21),
        ("xor.b32", 1, [3, 3, 8], 9),
        ("exch.b32", 1, [3, 4, 5], 5),
        ("inc.u32", 1, [3] * 6, 3),
        ("dec.u32", 1, [3] * 6, 3),
        ("add.f32", 0x3F800000, [0x3F800000, 0x40000000], 0x40800000),
    ],
)
def test_atomics(tmp_path: Path, space: str, operation: str, start: int, values: list[int], expected: int) -> None:
    kind = "f32" if operation.endswith("f32") else "b32"
    source = "%f1" if kind == "f32" else "%r1"
    target, where = {"global": ("[%x0]", ".global"), "shared": ("[cell]", ".shared"), "generic": ("[%x0]", "")}[space]
    body = f""".shared .u32 cell; ld.global.{kind} {source}, [%x4+4]; setp.eq.u32 %p1, %r0, 0;
      @%p1 ld.global.u32 %r2, [%x1]; @%p1 st.global.u32 [%x0], %r2; @%p1 st.shared.u32 [cell], %r2;
      atom{where}.{operation} {source}, {target}, {source}; red{where}.or.b32 {target}, 0;
      ld{where}.u32 %r3, {target}; st.global.u32 [%x0+4], %r3;"""
    out = run_body(tmp_path, body, [start, *values], threads=len(values), nr_out=2)
    assert out[1] == expected


def test_wide_and_packed_atomics(tmp_path: Path) -> None:
    body = """mov.u64 %x5, 0x100000001; st.global.u64 [%x0], %x5; atom.global.add.u64 %x6, [%x0], 7; atom.global.cas.b64 %x7, [%x0], %x5, 0;
      add.u64 %x5, %x5, 7; atom.acq_rel.gpu.global.cas.b64 %x7, [%x0], %x5, 9; ld.acquire.gpu.u64 %x8, [%x0]; cvt.u32.u64 %r1, %x8;
      st.relaxed.gpu.u32 [%x0+8], %r1; mov.u32 %r2, 0x3C003C00; st.volatile.global.u32 [%x0+12], %r2;
      atom.global.add.noftz.f16x2 %r3, [%x0+12], %r2; mov.f64 %d1, 0d3FF8000000000000; st.global.f64 [%x0+16], %d1;
      red.global.add.f64 [%x0+16], %d1; cvt.u16.u32 %h1, %r2; st.global.u16 [%x0+24], %h1; atom.global.cas.b16 %h2, [%x0+24], %h1, %h2;
      fence.acq_rel.gpu; membar.sys;"""
    out = run_body(tmp_path, body, [0], nr_out=8)
    assert out[0:2] == [9, 0] and out[2] == 9 and out[3] == 0x40004000
    assert struct.unpack("<d", struct.pack("<II", *out[4:6])) == (3.0,)
    assert out[6] == 0xFFFF0000


def test_vectors_and_packing(tmp_path: Path) -> None:
    body = """ld.global.v4.u8 {%h1, %h2, %h3, %h4}, [%x1]; mov.b32 %r1, {%h1, %h2}; mov.b64 %x5, {%r1, %r0}; mov.b64 {%r2, %r3}, %x5;
      ld.global.s8 %r4, [%x1+3]; ld.global.v2.u32 {_, %r5}, [%x1]; st.global.v2.u16 [%x0+8], {%h3, %h4};
      st.global.v2.u32 [%x0], {%r2, %r4}; st.global.u32 [%x0+12], %r5; mov.b32 {%h5, %h6}, %r5; st.global.u8 [%x0+16], %h6;"""
    assert run_body(tmp_path, body, [0xF0E0D0C0, 0x12345678], threads=1, nr_out=5) == [
        0xD000C0,
        0xFFFFFFF0,
        0xF000E0,
        0x12345678,
        0xFFFFFF34,
    ]


def test_packed_halves(tmp_path: Path) -> None:
    body = """ld.global.u32 %r1, [%x1]; ld.global.u32 %r2, [%x1+4]; set.gt.f16x2.f16x2 %r3, %r1, %r2; set.ne.u32.f16x2 %r4, %r1, %r2;
      setp.lt.f16x2 %p1|%p2, %r1, %r2; selp.u32 %r5, 1, 0, %p1; selp.u32 %r6, 2, 0, %p2; add.u32 %r5, %r5, %r6;
      fma.rn.f16x2 %r7, %r1, %r2, %r1; st.global.u32 [%x0], %r3; st.global.u32 [%x0+4], %r4; st.global.u32 [%x0+8], %r5;
      st.global.u32 [%x0+12], %r7;"""
    one_two, two_one = 0x3C004000, 0x40003C00
    assert run_body(tmp_path, body, [one_two, two_one], 1, 4) == [0x3C00, 0xFFFFFFFF, 2, 0x42004400]


def test_special_registers(tmp_path: Path) -> None:
    body = """mov.u32 %r1, %laneid; mov.u32 %r2, %warpid; mov.u32 %r3, %lanemask_lt; mov.u32 %r4, %nwarpid; mov.u32 %r5, %lanemask_ge;
      not.b32 %r5, %r5; sub.u32 %r3, %r3, %r5; mov.u64 %x5, %clock64; cvt.u32.u64 %r6, %x5; mov.u32 %r7, %clock; sub.u32 %r6, %r6, %r7;
      mov.u64 %x6, %globaltimer; setp.eq.u64 %p1, %x6, 0; selp.u32 %r8, 1, 0, %p1; mad.lo.u32 %r1, %r2, 100, %r1;
      mad.lo.u32 %r1, %r4, 10000, %r1;
      add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r6; add.u32 %r1, %r1, %r8; st.global.u32 [%x3], %r1;"""
    assert run_body(tmp_path, body, [0] * 70) == [30000 + 100 * (i // 32) + i % 32 for i in range(70)]


def test_printf_hands_over_format_and_arguments(tmp_path: Path) -> None:
    prelude = """.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
      .global .align 1 .b8 text[6] = {104, 105, 32, 37, 100, 0};"""
    body = """.local .align 8 .b8 depot[8]; .reg .b64 %SP, %SPL; mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL; st.local.u32 [%SPL], %r0;
      mov.u64 %x5, text; cvta.global.u64 %x6, %x5; { .param .b64 p0; .param .b64 p1; .param .b32 q; st.param.b64 [p0], %x6;
      st.param.b64 [p1], %SP;
      call.uni (q), vprintf, (p0, p1); ld.param.b32 %r1, [q]; } st.global.u32 [%x3], %r1;"""
    module = compiled(HEADER + prelude + KERNEL.format(body=body), tmp_path)
    assert words(module, [0, 0]) == [1, 1]
    assert module.printed == [b"hi %d", b"hi %d"]


@pytest.mark.parametrize(
    "body",
    [
        "bar.sync 0; bar.sync 1;",
        "barrier.sync 1, 64;",
        "bar.warp.sync -1;",
        "vote.sync.ballot.b32 %r1, %p1, -1;",
        "shfl.sync.down.b32 %r1|%p1, %r2, 1, 31, -1;",
        "match.any.sync.b32 %r1, %r2, -1;",
        "bar.red.popc.u32 %r1, 0, %p1;",
        "redux.sync.add.s32 %r1, %r2, -1;",
        "call waits, ();",
    ],
)
def test_kernels_that_wait_are_marked(tmp_path: Path, body: str) -> None:
    prelude = ".func waits () { bar.sync 0; ret; } "
    module = compiled(HEADER + prelude + KERNEL.format(body=body), tmp_path)
    assert module.kernels["k"].needs_threads == 1
    assert not module.kernels["k"].run_block


def test_kernel_figures(tmp_path: Path) -> None:
    text = """.visible .entry k(.param .u8 a, .param .align 16 .b8 b[20], .param .f64 c) .reqntid 8, 4 { .local .b8 depot[48];
      .reg .b32 %r<7>; ret; }
    .visible .entry l() .maxntid 64, 2, 1 { ret; }"""
    module = compiled(HEADER + text, tmp_path)
    kernel = module.kernels["k"]
    assert [(kernel.parameters[i].offset_bytes, kernel.parameters[i].size_bytes) for i in range(3)] == [
        (0, 1),
        (16, 20),
        (40, 8),
    ]
    assert (kernel.parameters_bytes, kernel.local_bytes, kernel.max_threads, kernel.nr_registers) == (48, 48, 32, 7)
    assert list(kernel.required_threads) == [8, 4, 1]
    assert (module.kernels["l"].max_threads, module.kernels["l"].nr_parameters) == (128, 0)
    assert (module.table.ptx_version, module.table.target) == (80, 90)


@pytest.mark.parametrize(
    ("body", "words_of_message"),
    [
        ("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [t, {%f1, %f2}];", ("tex.2d.v4.f32.f32", "k", "line 8")),
        ("sust.b.2d.b32.trap [s, {%r1, %r2}], {%r3};", ("sust.b.2d.b32.trap",)),
        ("wgmma.wait_group.sync.aligned 0;", ("wgmma.wait_group",)),
        ("add.rn.quick.f32 %f1, %f1, %f1;", ("add.rn.quick.f32",)),
        ("barrier.cluster.arrive;", ("barrier.cluster.arrive",)),
        ("mov.u32 %r1, %nosuchregister;", ("%nosuchregister",)),
        ("vote.ballot.b32 %r1, %p1;", ("vote.ballot.b32",)),
    ],
)
def test_unsupported_instruction_is_named(body: str, words_of_message: tuple[str, ...]) -> None:
    with pytest.raises(UnsupportedInstruction) as caught:
        llvm_text(HEADER + KERNEL.format(body=body))
    for word in words_of_message:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (HEADER + "nonsense", InvalidPtxError),
        (HEADER + KERNEL.format(body="mov.u32 %r1, %r77;"), UnsupportedInstruction),
        (HEADER + KERNEL.format(body="mov.u32 %r1, undeclared;"), InvalidPtxError),
        (HEADER + KERNEL.format(body="bra NOWHERE;"), InvalidPtxError),
        (HEADER + KERNEL.format(body="add.u32 %r1, %r2;"), InvalidPtxError),
        (HEADER + ".extern .global .u32 elsewhere;", InvalidPtxError),
        (HEADER + f".global .u32 x; .global .u8 part[7] = {{{_bytes_of('x', 7)}}};", InvalidPtxError),
        (HEADER + f".global .u32 x; .global .u8 small[7] = {{{_bytes_of('x')}}};", InvalidPtxError),
        (HEADER.replace("64", "32"), InvalidPtxError),
        (HEADER.replace("8.0", "11.0"), UnsupportedPtxVersionError),
    ],
)
def test_refusals(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        llvm_text(text)


def test_an_image_that_is_no_image(tmp_path: Path) -> None:
    with pytest.raises(InvalidImageError):
        compile_image(b"\x01\x02 neither text nor container", CAPABILITY, tmp_path / "out.so")
    assert list(tmp_path.iterdir()) == []


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-m", "softgpu.compiler", *arguments], capture_output=True, text=True, check=False, cwd=root
    )


def test_command(tmp_path: Path) -> None:
    image, output = tmp_path / "k.ptx", tmp_path / "k.so"
    image.write_text(HEADER + KERNEL.format(body="st.global.u32 [%x3], 3;"))
    done = _command("--image", str(image), "--capability", "90", "--output", str(output))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert words(LoadedModule(output), [0, 0]) == [3, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k.ptx", "k.so"]


def test_command_names_error_and_reason_and_keeps_what_was_there(tmp_path: Path) -> None:
    image, output = tmp_path / "k.ptx", tmp_path / "k.so"
    image.write_text(HEADER + KERNEL.format(body="txq.filter_mode.b32 %r1, [%x1];"))
    output.write_text("old")
    done = _command("--image", str(image), "--capability", "90", "--output", str(output))
    assert done.returncode == 1
    assert (
        done.stderr
        == "softgpu: CUDA_ERROR_NOT_SUPPORTED: k: line 8: instruction 'txq.filter_mode.b32' is not supported\n"
    )
    assert output.read_text() == "old"
    missing = _command("--image", str(tmp_path / "none"), "--capability", "90", "--output", str(output))
    assert missing.returncode == 1 and missing.stderr.startswith("softgpu: CUDA_ERROR_FILE_NOT_FOUND: ")
    assert _command("--version").stdout.startswith("softgpu-compile ")
