"""Votes and shuffles of PTX for GPUs before sm_70, which name no members: those that come along take part."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.softgpu import driver_harness
from tests.softgpu.driver_harness import LIBRARY, Device

TEXT = """.version 4.3
.target sm_30
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in) {
  .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %d<9>;
  ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; mov.u32 %r0, %tid.x; mul.wide.u32 %d2, %r0, 4;
  add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2; ld.global.u32 %r1, [%d4]; mov.u32 %r2, %r1; mov.u32 %r3, 16;
SUM:
  shfl.bfly.b32 %r4, %r2, %r3, 0x1f; add.u32 %r2, %r2, %r4; shr.u32 %r3, %r3, 1; setp.ne.u32 %p1, %r3, 0;
  @%p1 bra SUM;
  st.global.u32 [%d3], %r2;
  shfl.up.b32 %r5|%p2, %r1, 1, 0; selp.u32 %r5, %r5, 999, %p2; st.global.u32 [%d3+128], %r5;
  and.b32 %r6, %r1, 1; setp.eq.u32 %p3, %r6, 1; vote.ballot.b32 %r7, %p3; st.global.u32 [%d3+256], %r7;
  mov.u32 %r8, 0;
  setp.lt.u32 %p4, %r0, 16;
  @!%p4 bra.uni UPPER;
  shfl.idx.b32 %r8, %r1, 3, 0x1f; setp.ge.u32 %p5, %r0, 16; vote.any.pred %p6, %p5; selp.u32 %r9, 1000, 0, %p6; add.u32 %r8, %r8, %r9;
  bra JOIN;
UPPER:
  vote.ballot.b32 %r8, !%p4;
JOIN:
  st.global.u32 [%d3+384], %r8;
  mov.u32 %r10, 7;
  @%p4 vote.ballot.b32 %r10, %p3;
  st.global.u32 [%d3+512], %r10;
  ret;
}
"""


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    driver_harness.build()
    made = Device(tmp_path_factory.mktemp("device"))
    yield made
    made.close()


def test_votes_and_shuffles_without_members(device: Device) -> None:
    """Of the whole warp, of one side of a branch each, and under a guard."""
    given = np.array([7 * lane * lane % 23 for lane in range(32)], np.uint32)
    (device.folder / "k.ptx").write_text(TEXT)
    np.savez(device.folder / "in.npz", k=given)
    program = Path(__file__).parent / "run_kernels.py"
    files = [device.folder / name for name in ("k.ptx", "in.npz", "out.npz")]
    command: list[str | Path] = [sys.executable, program, LIBRARY, *files]
    subprocess.run(command, env=device.environment(), check=True, timeout=250)
    total, before, ballot, sides, guarded = np.load(device.folder / "out.npz")["k"][:160].reshape(5, 32)
    odd = sum(1 << lane for lane in range(32) if given[lane] & 1)
    assert list(total) == [given.sum()] * 32
    assert list(before) == [999, *given[:31]]
    assert list(ballot) == [odd] * 32
    assert list(sides) == [given[3]] * 16 + [0xFFFF0000] * 16
    assert list(guarded) == [odd & 0xFFFF] * 16 + [7] * 16
