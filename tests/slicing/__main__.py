"""
Variants of kernels against the kernels themselves, on a device: `python -m tests.slicing [--library PATH] [--random N] [--changes N]`.

Prints a line for each kernel of kernels.cu and the sum for N random ones: how many runs of each variant left the same bytes as the kernel run
whole, or why the kernel has no such variant; and a line for each persistent kernel whose split changed so often while it ran (changes.py).
Exit status 1 when any differed. On a GPU most of the time goes into the driver's compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from multiprocessing import get_context

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.slicing.changes import Changed
from tests.slicing.comparing import Row, changes_of_source, rows_of_module, rows_of_source
from tests.slicing.three_ways import PackedDevice
from tests.softgpu.arithmetic.cuda import CudaError

RANDOM_IN_A_MODULE = 10
NR_PROCESSES = min(8, os.cpu_count() or 1)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="slicing", description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--library", default="libcuda.so.1", help="a libcuda.so.1, by path or as the loader finds it")
    parser.add_argument("--random", type=int, default=200, metavar="N", help="random kernels (default 200)")
    parser.add_argument(
        "--changes", type=int, default=1000, metavar="N", help="of the split of each kernel (default 1000)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print all as JSON instead, and leave judging to the reader"
    )
    options = parser.parse_args()
    try:
        with PackedDevice(options.library) as device:
            source = list(rows_of_source(device))
            changes = list(changes_of_source(device, options.changes)) if options.changes else []
            name = f"{device.name}, sm_{device.capability}"
        randoms = list(random_rows(options.library, options.random))
    except (CudaError, BrokenProcessPool, OSError) as error:
        print(f"slicing: {error}", file=sys.stderr)
        return 1
    if options.json:
        rows = [asdict(row) for row in (*source, *randoms)]
        print(json.dumps({"rows": rows, "changes": [asdict(changed) for changed in changes]}))
        return 0
    print(name)
    return report(source, randoms, changes)


def random_rows(library: str, nr_kernels: int) -> Iterator[Row]:
    """In modules of a few kernels, several processes at a time: most of it is the driver's compiler, one at a time in a process."""
    starts = range(0, nr_kernels, RANDOM_IN_A_MODULE)
    modules = [(library, range(start, min(start + RANDOM_IN_A_MODULE, nr_kernels))) for start in starts]
    with ProcessPoolExecutor(NR_PROCESSES, get_context("spawn")) as pool:
        done = pool.map(rows_of_module, modules)
        for rows in track(done, "random kernels", len(modules), console=Console(stderr=True)):
            yield from rows


def report(source: list[Row], randoms: list[Row], changes: list[Changed]) -> int:
    """Prints; returns the exit status."""
    table = Table("kernel", "in boxes", "persistent", "")
    for row in source:
        table.add_row(row.kernel, row.sliced, row.persistent, "DIFFERS" if row.wrong else "")
    for outcome, nr_kernels in sorted(Counter((row.sliced, row.persistent) for row in randoms).items()):
        table.add_row(f"{nr_kernels} random ones", *outcome, "")
    Console(width=120).print(table)
    table = Table("kernel", "changes of its split", "blocks gone", "runs", "begun again", "brought back")
    for each in changes:
        numbers = (each.nr_changes, each.nr_gone, each.nr_runs, each.nr_begun_again, each.nr_brought_back)
        table.add_row(each.kernel, *map(str, numbers))
    Console(width=120).print(table)
    told: list[Row | Changed] = [*source, *randoms, *changes]
    wrong = [f"{each.kernel}: {text}" for each in told for text in each.wrong]
    for text in wrong:
        print(text)
    print("all the same" if not wrong else f"{len(wrong)} runs differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
