"""Which loops wait for another thread, and which only look like it."""

from __future__ import annotations

import pytest

from cuda_api.ptx import parse
from softgpu.compiler.flow.analysis import Traits
from softgpu.compiler.flow.pressure import nr_registers
from softgpu.compiler.module.translation import Translation
from tests.softgpu.compiler_harness import HEADER

FUNCTIONS = """
.func (.param .b32 r) poll(.param .b64 a) { .reg .b64 %x; .reg .b32 %r; ld.param.u64 %x, [a]; ld.volatile.u32 %r, [%x];
  st.param.b32 [r], %r; ret; }
.func fence() { membar.gl; ret; }
"""
KERNEL = """.visible .entry k(.param .u64 cells, .param .u32 n) {{
  .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %x<9>; .shared .align 4 .b8 cell[4];
  ld.param.u64 %x0, [cells]; ld.param.u32 %r0, [n]; mov.u32 %r9, 0;
  {body}
  ret;
}}
"""

WAITING = {
    "volatile flag": "L: ld.volatile.global.u32 %r1, [%x0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;",
    "acquire": "L: ld.acquire.gpu.u32 %r1, [%x0]; and.b32 %r2, %r1, 1; setp.ne.u32 %p1, %r2, 0; @!%p1 bra L;",
    "header below": "bra H; B: nanosleep.u32 9; H: ld.relaxed.gpu.u32 %r1, [%x0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra B;",
    "lock": "L: atom.global.cas.b32 %r1, [%x0], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;",
    "decided by a branch": """mov.u32 %r2, 0; L: atom.global.exch.b32 %r1, [%x0], 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra N;
      mov.u32 %r2, 1; N: setp.eq.u32 %p2, %r2, 0; @%p2 bra L;""",
    "by a call": """L: { .param .b64 a; .param .b32 v; st.param.b64 [a], %x0; call.uni (v), poll, (a); ld.param.b32 %r1, [v]; }
      setp.eq.u32 %p1, %r1, 0; @%p1 bra L;""",
    "fence": "L: ld.global.u32 %r1, [%x0]; membar.gl; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;",
    "fence by a call": "L: ld.global.u32 %r1, [%x0]; call.uni fence, (); setp.eq.u32 %p1, %r1, 0; @%p1 bra L;",
    "through shared memory": """L: ld.volatile.global.u32 %r1, [%x0]; st.shared.u32 [cell], %r1; bar.sync 0; ld.shared.u32 %r2, [cell];
      setp.eq.u32 %p1, %r2, 0; @%p1 bra L;""",
    "ends by return": "L: ld.volatile.global.u32 %r1, [%x0]; setp.ne.u32 %p1, %r1, 0; @%p1 ret; bra L;",
    "inner loop": """O: add.u32 %r9, %r9, 1; L: ld.volatile.global.u32 %r1, [%x0]; setp.lt.u32 %p1, %r1, %r9; @%p1 bra L;
      setp.lt.u32 %p2, %r9, %r0; @%p2 bra O;""",
    "barrier object": "L: mbarrier.test_wait.shared.b64 %p1, [cell], %x1; @!%p1 bra L;",
}
GOING_ON = {
    "counted": "L: ld.volatile.global.u32 %r1, [%x0]; add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, %r0; @%p1 bra L;",
    "histogram": """L: atom.global.add.u32 %r1, [%x0], 1; setp.lt.u32 %p2, %r1, 5; @%p2 bra N; st.global.u32 [%x0+8], %r1;
      N: add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, %r0; @%p1 bra L;""",
    "retry": "L: mov.u32 %r1, %r2; add.u32 %r3, %r1, 7; atom.global.cas.b32 %r2, [%x0], %r1, %r3; setp.ne.u32 %p1, %r2, %r1; @%p1 bra L;",
    "work queue": "L: atom.global.add.u32 %r1, [%x0], 1; setp.lt.u32 %p1, %r1, %r0; @%p1 bra L;",
    "list": "L: ld.global.u32 %r1, [%x0]; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;",
    "clock": "mov.u64 %x1, %clock64; L: mov.u64 %x2, %clock64; sub.u64 %x3, %x2, %x1; setp.lt.u64 %p1, %x3, 99; @%p1 bra L;",
    "no loop": "ld.volatile.global.u32 %r1, [%x0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra N; membar.gl; N: nanosleep.u32 5;",
}


def _traits(body: str) -> Traits:
    return Translation(parse(HEADER + FUNCTIONS + KERNEL.format(body=body))).traits["k"]


@pytest.mark.parametrize("body", WAITING.values(), ids=WAITING.keys())
def test_waits(body: str) -> None:
    found = _traits(body)
    assert found.spins and found.waits and len(found.spin_edges) == 1


@pytest.mark.parametrize("body", GOING_ON.values(), ids=GOING_ON.keys())
def test_does_not_wait(body: str) -> None:
    found = _traits(body)
    assert not found.spins and not found.waits


def test_registers_are_those_alive_together() -> None:
    lines = [f"add.u32 %r{i}, %r0, {i};" for i in range(1, 9)]
    sums = [f"add.u32 %r9, %r9, %r{i};" for i in range(1, 9)]
    one_by_one = "".join(line + total for line, total in zip(lines, sums, strict=True))
    at_once = "".join(lines + sums)
    flats = [Translation(parse(HEADER + KERNEL.format(body=body))).flats["k"] for body in (one_by_one, at_once)]
    assert [nr_registers(flat) for flat in flats] == [8 + 3, 8 + 9]
