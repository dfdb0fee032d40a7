"""
What the loop of the persistent variant costs, and what the split word adds: `python -m tests.slicing.cost [--library libcuda.so.1]`.

Kernels whose blocks take 5, 20 and 100 us, in two kinds: blocks that watch the clock, so that all that the loop does is added to them, and
blocks that calculate, beside which others calculate meanwhile. Each runs whole and persistently: by the variant without its look at the split
(`no look`), by the variant when there is no split word (`no word`), with a word that says none (`word 0`), and with one that has all blocks
look at the counts, of which none has to go (`word`). Prints the time of each over that of `no look`, and of whole; medians of rounds in
which all ways take turns. Some seconds on a GPU.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from cuda_api.generated.values import PERSISTENT_STATE_NAME, SPLIT_K_SHIFT, PersistentState
from cuda_api.ptx import format_module, parse
from cuda_api.ptx.variants import persist_kernel
from tests.slicing.changes import NO_LIMIT
from tests.slicing.three_ways import Launch, PackedDevice, persistent_descriptor
from tests.softgpu.arithmetic.cuda import CudaError

BLOCKS_US = (5.0, 20.0, 100.0)
NR_THREADS = 256
_LIVE_BYTES = PersistentState.SIZE - PersistentState.LIVE
WAYS = ("whole", "no look", "no word", "word 0", "word")
TEXT = """.version 7.0
.target sm_70
.address_size 64
.visible .entry clock(.param .u64 out, .param .u32 length)
{
    .reg .b64 %rd<5>; .reg .b32 %r<3>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [length]; cvt.u64.u32 %rd2, %r1;
    mov.u64 %rd3, %clock64;
again:
    mov.u64 %rd4, %clock64; sub.u64 %rd4, %rd4, %rd3; setp.lt.u64 %p1, %rd4, %rd2;
    @%p1 bra again;
    mov.u32 %r2, %tid.x; setp.ne.u32 %p1, %r2, 0;
    @!%p1 red.global.add.u32 [%rd1], 1;
    ret;
}
.visible .entry arithmetic(.param .u64 out, .param .u32 length)
{
    .reg .b64 %rd<2>; .reg .b32 %r<3>; .reg .f32 %f<3>; .reg .pred %p<3>;
    ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [length];
    mov.u32 %r2, %tid.x; setp.ne.u32 %p1, %r2, 0; cvt.rn.f32.u32 %f1, %r2;
again:
    fma.rn.f32 %f1, %f1, 0f3F7FFFFF, 0f3F800000; fma.rn.f32 %f1, %f1, 0f3F7FFFFF, 0f3F800000;
    fma.rn.f32 %f1, %f1, 0f3F7FFFFF, 0f3F800000; fma.rn.f32 %f1, %f1, 0f3F7FFFFF, 0f3F800000;
    sub.u32 %r1, %r1, 1; setp.ne.u32 %p2, %r1, 0;
    @%p2 bra again;
    setp.lt.f32 %p2, %f1, 0f00000000;
    @%p2 st.global.u32 [%rd1+4], %r1;
    @!%p1 red.global.add.u32 [%rd1], 1;
    ret;
}
"""


@dataclass(frozen=True)
class Cost:
    """`over_no_look`: of each way."""

    kind: str
    block_us: float
    nr_blocks: int
    over_no_look: dict[str, float]


class Measured:
    """One kernel of TEXT on a device, in all ways."""

    def __init__(self, device: PackedDevice, kind: str) -> None:
        self._device, self._kind = device, kind
        tree = parse(TEXT)
        text = format_module(persist_kernel(tree, kind, {}))
        self._modules = [device.load(module) for module in (TEXT, without_look(text), text)]
        self._functions = [module.function(kind) for module in self._modules]
        self._states = [device.variable(module, PERSISTENT_STATE_NAME)[0] for module in self._modules[1:]]
        self._out = device.allocate(8)
        self._word = device.allocate(4)
        self.most_each = min(device.nr_resident_each(function, NR_THREADS, 0) for function in self._functions)
        self.nr_resident = self.most_each * device.nr_multiprocessors

    def close(self) -> None:
        for module in self._modules:
            module.close()
        self._device.free(self._out)
        self._device.free(self._word)

    def length(self, block_us: float) -> int:
        """What the kernel is to be told, for blocks that take so long when the device is full of them."""
        if self._kind == "clock":
            return max(1, int(self._device.clock_khz * block_us / 1000))
        tried = 2000
        times_s = [self._time_s(0, tried, self.nr_resident, (self.nr_resident, b"")) for _ in range(5)]
        return max(1, int(tried * block_us / (1e6 * min(times_s))))

    def round(self, length: int, nr_blocks: int) -> dict[str, float]:
        """Seconds of each way."""
        one_fewer = self._device.nr_multiprocessors | 1 << SPLIT_K_SHIFT
        looks = ((1, 0, 0), (2, 0, 0), (2, self._word, 0), (2, self._word, one_fewer))
        times = {"whole": self._time_s(0, length, nr_blocks, (nr_blocks, b""))}
        for way, (number, address, word) in zip(WAYS[1:], looks, strict=True):
            self._device.write(self._word, struct.pack("<I", word))
            self._device.write(self._states[number - 1], struct.pack("<2Q", 0, NO_LIMIT) + bytes(_LIVE_BYTES))
            times[way] = self._time_s(number, length, nr_blocks, self._persistent(nr_blocks, address, word))
        return times

    def _time_s(self, number: int, length: int, nr_blocks: int, shape: tuple[int, bytes]) -> float:
        """`shape`: blocks that are launched, and what they are told beside."""
        nr_launched, more = shape
        parameters = struct.pack("<QI", self._out, length) + more
        self._device.write(self._out, bytes(8))
        begun_s = time.perf_counter()
        self._device.launch_packed(self._functions[number], (nr_launched, 1, 1), (NR_THREADS, 1, 1), 0, parameters)
        self._device.wait(None)
        took_s = time.perf_counter() - begun_s
        [seen] = struct.unpack("<I", self._device.read(self._out, 4))
        if seen != nr_blocks:
            raise RuntimeError(f"{self._kind}: {seen} blocks ran and not {nr_blocks}")
        return took_s

    def _persistent(self, nr_blocks: int, address: int, word: int) -> tuple[int, bytes]:
        """One fewer may be on each multiprocessor than are said to fit, so that the word takes none away."""
        launch = Launch((nr_blocks, 1, 1), (NR_THREADS, 1, 1), 0)
        most_each = self.most_each + (word >> SPLIT_K_SHIFT)
        return min(self.nr_resident, nr_blocks), bytes(4) + persistent_descriptor(launch, most_each, address)


def without_look(text: str) -> str:
    """The variant as it would be without splits: from its loads of limit and counter it goes on with the next number."""
    loads = list(re.finditer(r"ld\.volatile\.global\.u64 .*;\n", text))
    taking = text.index("fgv_take:")
    assert len(loads) == 2 and loads[1].end() < taking
    return text[: loads[1].end()] + text[taking:]


def costs(library: str, blocks_us: Sequence[float], busy_ms: float, nr_rounds: int) -> list[Cost]:
    """Each launch takes about so long."""
    found = []
    with PackedDevice(library) as device:
        for kind in ("clock", "arithmetic"):
            measured = Measured(device, kind)
            for block_us in blocks_us:
                length = measured.length(block_us)
                nr_blocks = measured.nr_resident * max(1, int(1000 * busy_ms / block_us))
                measured.round(length, nr_blocks)
                rounds = [measured.round(length, nr_blocks) for _ in range(nr_rounds)]
                over = {way: statistics.median(times[way] / times["no look"] for times in rounds) for way in WAYS}
                found.append(Cost(kind, block_us, nr_blocks, over))
            measured.close()
    return found


def show(found: Sequence[Cost]) -> None:
    """As a table."""
    table = Table("blocks", "us each", "nr", *(f"{way} / no look" for way in WAYS))
    for cost in found:
        ratios = (f"{cost.over_no_look[way]:.4f}" for way in WAYS)
        table.add_row(cost.kind, f"{cost.block_us:g}", str(cost.nr_blocks), *ratios)
    Console(width=144).print(table)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="cost", description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--library", default="libcuda.so.1", help="a libcuda.so.1, by path or as the loader finds it")
    parser.add_argument(
        "--blocks-us", type=float, nargs="+", default=BLOCKS_US, metavar="US", help="of a block (default 5 20 100)"
    )
    parser.add_argument("--busy-ms", type=float, default=30, metavar="MS", help="of each launch, about (default 30)")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="of each length (default 15)")
    parser.add_argument("--json", action="store_true", help="print the ratios as JSON instead")
    options = parser.parse_args()
    try:
        found = costs(options.library, options.blocks_us, options.busy_ms, options.rounds)
    except (CudaError, OSError, RuntimeError) as error:
        print(f"cost: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps([asdict(cost) for cost in found]))
    else:
        show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
