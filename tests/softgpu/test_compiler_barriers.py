"""
Kernels with barriers run as loops over their threads, and give what they give when each thread is a fiber; random ones, and one for each thing
that can stand at or between barriers. The latter are compared with numpy, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from softgpu.compiler.command import llvm_text
from tests.softgpu.compiler_harness import compiled
from tests.softgpu.driver_harness import LIBRARY, build
from tests.softgpu.launch_kernels import INPUT, NR_BLOCKS, WORDS
from tests.softgpu.random_kernels import RandomKernel

Words = NDArray[np.uint32]
Block = tuple[int, int, int]

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
BLOCKS: tuple[Block, ...] = ((1, 1, 1), (7, 1, 1), (64, 1, 1), (16, 16, 1), (5, 3, 2), (17, 4, 1), (3, 1, 11))
NUMBER = 3
NR_RANDOM = 24
ILLEGAL_ADDRESS = 700
ENTRY = """
.visible .entry {name}(.param .u64 out, .param .u64 in, .param .u32 number) {{
  .reg .b32 %r<60>; .reg .b64 %d<30>; .reg .pred %p<20>; .reg .f32 %f<9>;
  .shared .align 4 .b8 room[4096];
  ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; ld.param.u32 %r0, [number];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y; mov.u32 %r6, %ntid.z;
  mad.lo.u32 %r7, %r3, %r5, %r2; mad.lo.u32 %r7, %r7, %r4, %r1;
  mul.lo.u32 %r8, %r4, %r5; mul.lo.u32 %r8, %r8, %r6;
  mov.u32 %r9, room; shl.b32 %r10, %r7, 2; add.u32 %r10, %r9, %r10;
  mov.u32 %r11, %ctaid.x; mad.lo.u32 %r12, %r11, %r8, %r7; mul.wide.u32 %d2, %r12, 4; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
  ld.global.u32 %r13, [%d4]; mov.u32 %r20, 0;
  {body}
  st.global.u32 [%d3], %r20;
  ret;
}}
"""
"""r7 is the thread's index of r8, r10 its slot in shared memory, r13 its input, r20 what it gives, r0 the number."""


@dataclass(frozen=True)
class Case:
    """`expected` takes the input of one block, thread by thread, and gives what comes out."""

    name: str
    body: str
    expected: Callable[[Words], Words]


def _index(values: Words) -> Words:
    return np.arange(len(values), dtype=np.uint32)


def _prefix_sums(values: Words) -> Words:
    return np.cumsum(values, dtype=np.uint32)


def _sums_of_smaller_ones(numbers: Words) -> Words:
    return numbers * (numbers - np.uint32(1)) // np.uint32(2)


def _sum_of_halves(values: Words) -> Words:
    """Adds the upper half to the lower one until one is left; thread 0 gives it."""
    room = values.copy()
    size = 1 << (len(values) - 1).bit_length()
    while size > 1:
        size //= 2
        room[:size][: max(len(room) - size, 0)] += room[size : 2 * size]
    result = np.zeros_like(values)
    result[0] = room[0]
    return result


def _many_registers(values: Words) -> Words:
    neighbour = np.roll(values, -1)
    return sum((values * np.uint32(k + 1) ^ neighbour for k in range(40)), start=np.zeros_like(values))


_EXCHANGE = """st.shared.u32 [%r10], {value}; bar.sync 0; add.u32 %r30, %r7, 1; rem.u32 %r30, %r30, %r8;
  shl.b32 %r30, %r30, 2; add.u32 %r30, %r9, %r30; ld.shared.u32 {to}, [%r30]; bar.sync 0;"""

CASES = (
    Case(
        "reversal",
        """st.shared.u32 [%r10], %r13; bar.sync 0; sub.u32 %r14, %r8, %r7; shl.b32 %r14, %r14, 2; add.u32 %r14, %r9, %r14;
        ld.shared.u32 %r20, [%r14+-4];""",
        lambda values: values[::-1],
    ),
    Case(
        "prefix_sums",
        """st.shared.u32 [%r10], %r13; mov.u32 %r14, 1; mov.u32 %r20, %r13; bar.sync 0;
        again: setp.ge.u32 %p0, %r14, %r8; @%p0 bra ready;
        setp.lt.u32 %p1, %r7, %r14; mov.u32 %r16, 0; @%p1 bra first;
        shl.b32 %r15, %r14, 2; sub.u32 %r15, %r10, %r15; ld.shared.u32 %r16, [%r15];
        first: bar.sync 0; add.u32 %r20, %r20, %r16; st.shared.u32 [%r10], %r20; bar.sync 0; shl.b32 %r14, %r14, 1; bra.uni again;
        ready:""",
        _prefix_sums,
    ),
    Case(
        "halves",
        """st.shared.u32 [%r10], %r13; mov.u32 %r14, 512;
        again: bar.sync 0; add.u32 %r15, %r7, %r14; setp.ge.u32 %p0, %r7, %r14; setp.ge.u32 %p1, %r15, %r8; or.pred %p0, %p0, %p1;
        @%p0 bra idle; shl.b32 %r16, %r14, 2; add.u32 %r16, %r10, %r16; ld.shared.u32 %r17, [%r16]; ld.shared.u32 %r18, [%r10];
        add.u32 %r18, %r18, %r17; st.shared.u32 [%r10], %r18;
        idle: shr.u32 %r14, %r14, 1; setp.ne.u32 %p2, %r14, 0; @%p2 bra again;
        setp.eq.u32 %p3, %r7, 0; @%p3 ld.shared.u32 %r20, [%r10];""",
        _sum_of_halves,
    ),
    Case(
        "nested_loops",
        """mov.u32 %r14, 0; outer: mov.u32 %r15, 0; inner: """
        + _EXCHANGE.format(value="%r13", to="%r16")
        + """mad.lo.u32 %r20, %r20, 3, %r16; add.u32 %r15, %r15, 1; setp.lt.u32 %p0, %r15, %r0; @%p0 bra inner;
        add.u32 %r14, %r14, 1; setp.lt.u32 %p1, %r14, 2; @%p1 bra outer;""",
        lambda values: np.roll(values, -1) * np.uint32(sum(3**k for k in range(6))),
    ),
    Case(
        "both_ways_wait",
        """and.b32 %r14, %r7, 1; setp.eq.u32 %p0, %r14, 0; @%p0 bra even;
        add.u32 %r15, %r13, 5; st.shared.u32 [%r10], %r15; barrier.sync 0; bra meet;
        even: xor.b32 %r15, %r13, 9; st.shared.u32 [%r10], %r15; barrier.sync 0;
        meet: sub.u32 %r14, %r8, %r7; shl.b32 %r14, %r14, 2; add.u32 %r14, %r9, %r14; ld.shared.u32 %r20, [%r14+-4];""",
        lambda values: np.where(_index(values) % 2 == 0, values ^ np.uint32(9), values + np.uint32(5))[::-1],
    ),
    Case(
        "guarded_barrier",
        """st.shared.u32 [%r10], %r13; setp.gt.u32 %p0, %r0, 1; @%p0 bar.sync 0; @!%p0 trap;
        setp.lt.u32 %p1, %r7, 2; @%p1 barrier.sync 0; @!%p1 barrier.sync 0;
        sub.u32 %r14, %r8, %r7; shl.b32 %r14, %r14, 2; add.u32 %r14, %r9, %r14; ld.shared.u32 %r20, [%r14+-4];""",
        lambda values: values[::-1],
    ),
    Case(
        "early_ends",
        """st.shared.u32 [%r10], %r13; rem.u32 %r14, %r7, 3; setp.eq.u32 %p0, %r14, 1; mov.u32 %r15, 77; @%p0 st.global.u32 [%d3], %r15;
        @%p0 ret; bar.sync 0; setp.eq.u32 %p1, %r14, 2; @%p1 st.global.u32 [%d3], %r14; @%p1 exit; bar.sync 0;
        sub.u32 %r14, %r8, %r7; shl.b32 %r14, %r14, 2; add.u32 %r14, %r9, %r14; ld.shared.u32 %r20, [%r14+-4];""",
        lambda values: np.choose(_index(values) % 3, [values[::-1], np.uint32(77), np.uint32(2)]).astype(np.uint32),
    ),
    Case(
        "an_end_before_steps",
        """mov.u32 %r14, %r0; setp.eq.u32 %p0, %r7, 1; @%p0 ret; bar.sync 0; add.u32 %r14, %r14, 1; bar.sync 0; add.u32 %r14, %r14, 1;
        bar.sync 0; add.u32 %r20, %r13, %r14;""",
        lambda values: np.where(_index(values) == 1, 0, values + np.uint32(NUMBER + 2)),
    ),
    Case(
        "ends_in_a_loop",
        """mov.u32 %r14, 0; mov.u32 %r15, 0;
        again: bar.sync 0; setp.ne.u32 %p0, %r7, %r14; @%p0 bra on; st.global.u32 [%d3], %r15; ret;
        on: bar.sync 0; add.u32 %r15, %r15, %r14; add.u32 %r14, %r14, 1; setp.lt.u32 %p1, %r14, %r0; @%p1 bra again;
        mov.u32 %r20, %r15;""",
        lambda values: _sums_of_smaller_ones(np.minimum(_index(values), NUMBER)),
    ),
    Case(
        "prefix_sums_of_a_part",
        """shr.u32 %r31, %r8, 1; add.u32 %r31, %r31, 1; setp.ge.u32 %p0, %r7, %r31; @%p0 ret;
        st.shared.u32 [%r10], %r13; mov.u32 %r14, 1; mov.u32 %r32, 0; mov.u32 %r20, %r13; bar.sync 0;
        again: setp.ge.u32 %p1, %r14, %r31; @%p1 bra ready;
        setp.ge.u32 %p2, %r7, %r14; shl.b32 %r15, %r14, 2; sub.u32 %r15, %r10, %r15; add.u32 %r15, %r15, %r32;
        @%p2 ld.shared.u32 %r16, [%r15]; @%p2 add.u32 %r20, %r20, %r16;
        xor.b32 %r32, %r32, 2048; add.u32 %r17, %r10, %r32; st.shared.u32 [%r17], %r20; shl.b32 %r14, %r14, 1; bar.sync 0; bra.uni again;
        ready:""",
        lambda values: np.where(_index(values) <= len(values) // 2, _prefix_sums(values), 0),
    ),
    Case(
        "all_end_early",
        """add.u32 %r20, %r13, 1; st.global.u32 [%d3], %r20; setp.ge.u32 %p0, %r7, 0; @%p0 ret; bar.sync 0; mov.u32 %r20, 3;""",
        lambda values: values + np.uint32(1),
    ),
    Case(
        "local_array",
        """.local .align 4 .b8 depot[64]; .reg .b64 %l<4>;
        st.local.u32 [depot], %r13; st.local.u32 [depot+60], %r7; bar.sync 0;
        and.b32 %r14, %r7, 1; mul.lo.u32 %r14, %r14, 60; mov.u64 %l0, depot; cvt.u64.u32 %l1, %r14; add.u64 %l0, %l0, %l1;
        ld.local.u32 %r20, [%l0]; bar.sync 0;""",
        lambda values: np.where(_index(values) % 2 == 0, values, _index(values)),
    ),
    Case(
        "generic_local_address",
        """.local .align 8 .b8 depot[16]; .reg .b64 %l<4>; mov.u64 %l0, depot; cvta.local.u64 %l1, %l0;
        st.u32 [%l1+8], %r13; bar.sync 0; ld.u32 %r20, [%l1+8]; add.u32 %r20, %r20, %r7; bar.sync 0;""",
        lambda values: values + _index(values),
    ),
    Case(
        "indirect_branches",
        """ways: .branchtargets one, two, three; rem.u32 %r14, %r7, 3; brx.idx %r14, ways;
        one: mov.u32 %r20, 10; bar.sync 0; bra meet; two: mov.u32 %r20, 20; bar.sync 0; bra meet; three: mov.u32 %r20, 30; bar.sync 0;
        meet: add.u32 %r20, %r20, %r13;""",
        lambda values: values + (_index(values) % 3 + 1) * np.uint32(10),
    ),
    Case(
        "carry_flag",
        """mov.u32 %r14, -1; add.cc.u32 %r15, %r14, %r7; bar.sync 0; addc.u32 %r20, %r13, 0;""",
        lambda values: values + (_index(values) > 0).astype(np.uint32),
    ),
    Case(
        "many_registers",
        "".join(f"mul.lo.u32 %m{k}, %r13, {k + 1};" for k in range(40)).join([".reg .b32 %m<40>;", ""])
        + _EXCHANGE.format(value="%r13", to="%r16")
        + "".join(f"xor.b32 %m{k}, %m{k}, %r16; add.u32 %r20, %r20, %m{k};" for k in range(40)),
        _many_registers,
    ),
    Case(
        "walking_pointer",
        """.reg .b64 %w<3>; mov.u64 %w0, %d4; mov.u32 %r14, 0;
        again: ld.global.u32 %r15, [%w0]; add.u32 %r20, %r20, %r15; bar.sync 0; add.s64 %w0, %w0, 0; add.u32 %r14, %r14, 1;
        setp.lt.u32 %p0, %r14, %r0; @%p0 bra again;""",
        lambda values: values * np.uint32(NUMBER),
    ),
    Case(
        "uneven_turns",
        """and.b32 %r14, %r7, 3; again: setp.eq.u32 %p0, %r14, 0; @%p0 bra ready; sub.u32 %r14, %r14, 1; add.u32 %r20, %r20, %r13;
        bra again; ready: """
        + _EXCHANGE.format(value="%r20", to="%r20"),
        lambda values: np.roll(values * (_index(values) & 3), -1),
    ),
    Case(
        "set_under_a_condition",
        """mov.u32 %r14, 5; setp.gt.u32 %p0, %r7, 2; @%p0 mov.u32 %r14, 6; @%p0 bra far; mov.u32 %r15, 7; bra near; far: mov.u32 %r15, 8;
        near: bar.sync 0; add.u32 %r20, %r14, %r15;""",
        lambda values: np.where(_index(values) > 2, 14, 12).astype(np.uint32),
    ),
    Case(
        "wide_registers",
        """.reg .f64 %e<3>; .reg .b16 %h<3>; cvt.rn.f64.u32 %e0, %r7; cvt.u16.u32 %h0, %r7; cvt.rn.f32.u32 %f0, %r7; mul.wide.u32 %d5, %r13, 3;
        setp.gt.u32 %p4, %r13, %r7; bar.sync 0;
        cvt.rzi.u32.f64 %r14, %e0; cvt.u32.u16 %r15, %h0; cvt.rzi.u32.f32 %r16, %f0; cvt.u32.u64 %r17, %d5; selp.u32 %r18, 1, 0, %p4;
        add.u32 %r20, %r14, %r15; add.u32 %r20, %r20, %r16; add.u32 %r20, %r20, %r17; add.u32 %r20, %r20, %r18;""",
        lambda values: 3 * _index(values) + 3 * values + (values > _index(values)),
    ),
)


@dataclass(frozen=True)
class Runner:
    """Launches kernels on a device of its own, as loops or as fibers."""

    folder: Path

    def run(self, ptx: str, launches: list[tuple[str, Block, int]], *, fibers: bool) -> list[str]:
        cache = self.folder / ("fibers" if fibers else "loops")
        cache.mkdir(mode=0o700, exist_ok=True)
        program = self.folder / "kernels.ptx"
        program.write_text(ptx)
        environment = os.environ | {
            "FAIRGV_SOFTGPU_CACHE": str(cache),
            "FAIRGV_SOFTGPU_STATE": str(self.folder / "state"),
            "FAIRGV_SOFTGPU_COMPILER": f"{sys.executable} -m softgpu.compiler",
            "FAIRGV_SOFTGPU_FIBERS": str(int(fibers)),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        command = [sys.executable, str(Path(__file__).with_name("launch_kernels.py")), str(LIBRARY), str(program)]
        done = subprocess.run(
            command,
            input=json.dumps(launches),
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    build()
    return Runner(tmp_path)


def _words(output: str) -> Words:
    return np.frombuffer(bytes.fromhex(output), dtype=np.uint32)


def _expected(case: Case, block: Block) -> Words:
    nr_threads = block[0] * block[1] * block[2]
    blocks = np.array(INPUT[: NR_BLOCKS * nr_threads], dtype=np.uint32).reshape(NR_BLOCKS, nr_threads)
    result = np.zeros(WORDS, dtype=np.uint32)
    with np.errstate(over="ignore"):
        result[: blocks.size] = np.concatenate([case.expected(values).astype(np.uint32) for values in blocks])
    return result


@pytest.mark.parametrize("fibers", [False, True], ids=["loops", "fibers"])
def test_kernels_compute_what_numpy_computes(runner: Runner, fibers: bool) -> None:
    ptx = HEADER + "".join(ENTRY.format(name=case.name, body=case.body) for case in CASES)
    cases = [(case, block) for case in CASES for block in BLOCKS]
    outputs = runner.run(ptx, [(case.name, block, NUMBER) for case, block in cases], fibers=fibers)
    assert len(outputs) == len(cases)
    wrong = [
        (case.name, block)
        for (case, block), output in zip(cases, outputs, strict=True)
        if not np.array_equal(_words(output), _expected(case, block))
    ]
    assert not wrong


def test_kernels_need_no_fibers(tmp_path: Path) -> None:
    ptx = HEADER + "".join(ENTRY.format(name=case.name, body=case.body) for case in CASES)
    kernels = compiled(ptx, tmp_path).kernels
    assert [name for name, kernel in kernels.items() if kernel.needs_threads or not kernel.context_bytes] == []


def test_random_kernels_compute_the_same_as_fibers(runner: Runner) -> None:
    ptx = HEADER + "".join(RandomKernel(f"k{seed}", seed).text for seed in range(NR_RANDOM))
    launches = [(f"k{seed}", BLOCKS[seed % len(BLOCKS)], seed % 4) for seed in range(NR_RANDOM)]
    loops, fibers = (runner.run(ptx, launches, fibers=fibers) for fibers in (False, True))
    assert len(loops) == NR_RANDOM
    assert [launch for launch, left, right in zip(launches, loops, fibers, strict=True) if left != right] == []


def test_fault_between_barriers_ends_the_launch(runner: Runner) -> None:
    body = "bar.sync 0; mov.u64 %d5, 16; setp.eq.u32 %p0, %r7, 5; @%p0 st.global.u32 [%d5], %r7; bar.sync 0;"
    ptx = HEADER + ENTRY.format(name="faulty", body=body)
    assert runner.run(ptx, [("faulty", (64, 1, 1), 0)], fibers=False) == [str(ILLEGAL_ADDRESS)]


@pytest.mark.parametrize(
    "body",
    [
        "bar.sync 0; bar.sync 1;",
        "bar.sync 0, 64;",
        "bar.sync %r0;",
        "bar.arrive 0, 64; bar.sync 0;",
        "bar.sync 0; shfl.sync.down.b32 %r1, %r2, 1, 31, -1;",
        "bar.sync 0; bar.red.popc.u32 %r1, 0, %p1;",
        "bar.sync 0; call waits, ();",
        "bar.sync 0; call ends, ();",
        ".local .b8 depot[8]; bar.sync 0; isspacep.local %p0, %d0;",
    ],
)
def test_kernels_that_wait_in_other_ways_keep_fibers(tmp_path: Path, body: str) -> None:
    functions = ".func waits () { bar.sync 0; ret; } .func ends () { exit; } "
    kernel = compiled(HEADER + functions + ENTRY.format(name="k", body=body), tmp_path).kernels["k"]
    assert kernel.needs_threads == 1
    assert kernel.context_bytes == 0


def test_large_code_keeps_fibers() -> None:
    """Barriers in the ways of a loop, whose rest each of them would have to repeat."""
    ways = "".join(
        f"setp.eq.u32 %p0, %r13, {k}; @%p0 bar.sync 0; " + "mad.lo.u32 %r20, %r20, %r13, 7; " * 20 for k in range(60)
    )
    assert "@thread.k" in llvm_text(HEADER + ENTRY.format(name="k", body=ways)).replace('"', "")
