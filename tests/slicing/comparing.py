"""Which kernels are compared, with which launches, and what came out. `python -m tests.slicing` prints it; the tests assert it."""

from __future__ import annotations

import contextlib
import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.nvcc import find_nvcc
from cuda_api.ptx import parse
from cuda_api.ptx.variants import RunsWholeError
from tests.slicing.changes import Changed, Changing
from tests.slicing.three_ways import Kernels, Launch, PackedDevice
from tests.softgpu.random_kernels import RandomKernel

SOURCE = Path(__file__).with_name("kernels.cu")
HEADER = ".version 8.0\n.target sm_70\n.address_size 64\n"
GRIDS = ((37, 1, 1), (5, 4, 3), (1, 9, 2), (2, 1, 8))
BLOCKS = ((64, 1, 1), (8, 8, 1))
CHANGING = Launch((500, 4, 3), (64, 1, 1), 500, 64)
RANDOM_BLOCKS = ((33, 1, 1), (64, 1, 1), (8, 3, 2), (96, 1, 1))
NR_RESIDENT = (1, 3, 7)
FACTORS = bytes(range(32))
"""What is written to the constants of the original after it was loaded."""


@dataclass(frozen=True)
class Row:
    """One kernel: how often each variant was compared, or why it has none; `wrong` names what differed."""

    kernel: str
    sliced: str
    persistent: str
    wrong: tuple[str, ...]


def compiled(architecture: str) -> str:
    """PTX of kernels.cu."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "kernels.ptx"
        command = [str(find_nvcc().path), "-ptx", f"-arch={architecture}", "-o", str(output), str(SOURCE)]
        subprocess.run(command, check=True)
        return output.read_text()


def random_text(seeds: range) -> tuple[str, list[str]]:
    """A module of random kernels (see tests/softgpu/random_kernels.py) for grids of three dimensions, and their names."""
    names = [f"random_{seed}" for seed in seeds]
    text = "".join(RandomKernel(name, seed, may_part=False).text for name, seed in zip(names, seeds, strict=True))
    linear = """mov.u32 %tmp11, %ctaid.z; mov.u32 %tmp12, %nctaid.y; mov.u32 %tmp13, %ctaid.y;
  mad.lo.u32 %tmp11, %tmp11, %tmp12, %tmp13; mov.u32 %tmp12, %nctaid.x; mov.u32 %tmp13, %ctaid.x;
  mad.lo.u32 %block, %tmp11, %tmp12, %tmp13;"""
    return HEADER + text.replace("mov.u32 %block, %ctaid.x;", linear), names


def rows_of_source(device: PackedDevice, architecture: str = "sm_75") -> Iterator[Row]:
    """The kernels of kernels.cu."""
    text = compiled(architecture)
    kernels = Kernels(device, text)
    kernels.set_constant("factors", FACTORS)
    launches = [
        Launch(grid, block, 3 * 64 + grid[0], 64) for grid in GRIDS[:3] for block in BLOCKS[: 1 + (grid[0] > 1)]
    ]
    for function in parse(text).functions:
        if function.is_entry and len(function.parameters) == 3:
            yield compare(kernels, function.name, launches)
    kernels.close()


def changes_of_source(device: PackedDevice, nr_changes: int, architecture: str = "sm_75") -> Iterator[Changed]:
    """The kernels of kernels.cu that have a persistent variant, under so many random changes of the split each."""
    text = compiled(architecture)
    kernels = Kernels(device, text)
    kernels.set_constant("factors", FACTORS)
    for number, function in enumerate(parse(text).functions):
        if function.is_entry and len(function.parameters) == 3:
            with contextlib.suppress(RunsWholeError), Changing(device, kernels, function.name, CHANGING) as changing:
                yield changing.run(nr_changes, seed=number)
    with Changing(device, kernels, "indices", CHANGING, moves=True) as changing:
        yield changing.run(nr_changes, seed=0)
    kernels.close()


def rows_of_random(device: PackedDevice, seeds: range) -> Iterator[Row]:
    """Random kernels, each in two shapes of its own."""
    text, names = random_text(seeds)
    kernels = Kernels(device, text)
    for name, seed in zip(names, seeds, strict=True):
        chance = random.Random(seed)
        shapes = [(chance.choice(GRIDS), chance.choice(RANDOM_BLOCKS)) for _ in range(2)]
        yield compare(kernels, name, [Launch(grid, block, 2 + seed % 3) for grid, block in shapes])
    kernels.close()


def rows_of_module(module: tuple[str, range]) -> list[Row]:
    """The same of a library and seeds, on a device of this process."""
    library, seeds = module
    with PackedDevice(library) as device:
        return list(rows_of_random(device, seeds))


def compare(kernels: Kernels, name: str, launches: list[Launch]) -> Row:
    """One kernel in all launches, three ways."""
    wrong: list[str] = []
    outcome = {}
    for way, run in (("boxes", kernels.in_boxes), ("persistent", kernels.persistently)):
        try:
            outcome[way] = f"{_count(kernels, run, name, launches, wrong)} same"
        except RunsWholeError as error:
            outcome[way] = error.reason.text
    return Row(name, outcome["boxes"], outcome["persistent"], tuple(wrong))


def _count(kernels: Kernels, run: Callable[..., bytes], name: str, launches: list[Launch], wrong: list[str]) -> int:
    nr_same = 0
    for launch in launches:
        wanted: bytes | None = None
        for turn in range(2):
            seed = launch.nr_blocks + turn
            arguments = (seed,) if run == kernels.in_boxes else (NR_RESIDENT[seed % len(NR_RESIDENT)], 3 * turn)
            found = run(name, launch, *arguments)
            wanted = kernels.whole(name, launch) if wanted is None else wanted
            if found == wanted:
                nr_same += 1
            else:
                wrong.append(f"{run.__name__}{arguments} of {launch}: {_first_difference(found, wanted)}")
    return nr_same


def _first_difference(found: bytes, wanted: bytes) -> str:
    word = next(i for i in range(0, len(wanted), 4) if found[i : i + 4] != wanted[i : i + 4])
    values = (int.from_bytes(content[word : word + 4], "little") for content in (found, wanted))
    return "word {}: {} and not {}".format(word // 4, *values)
