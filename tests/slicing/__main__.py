"""
Variants of kernels against the kernels themselves, on a device: `python -m tests.slicing [--library PATH] [--random N]`.

Prints a line for each kernel of kernels.cu and the sum for N random ones: how many runs of each variant left the same bytes as the kernel run
whole, or why the kernel has no such variant. Exit status 1 when any differed. On a GPU it takes a minute, most of it in the driver's
compiler.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from tests.slicing.comparing import Row, rows_of_random, rows_of_source
from tests.slicing.three_ways import PackedDevice
from tests.softgpu.arithmetic.cuda import CudaError

RANDOM_IN_A_MODULE = 10


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="slicing", description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--library", default="libcuda.so.1", help="a libcuda.so.1, by path or as the loader finds it")
    parser.add_argument("--random", type=int, default=200, metavar="N", help="random kernels (default 200)")
    parser.add_argument(
        "--json", action="store_true", help="print the rows as JSON instead, and leave judging to the reader"
    )
    options = parser.parse_args()
    try:
        with PackedDevice(options.library) as device:
            source, randoms = list(rows_of_source(device)), random_rows(device, options.random)
            if options.json:
                print(json.dumps([asdict(row) for row in (*source, *randoms)]))
                return 0
            print(f"{device.name}, sm_{device.capability}")
            return report(source, randoms)
    except (CudaError, OSError) as error:
        print(f"slicing: {error}", file=sys.stderr)
        return 1


def random_rows(device: PackedDevice, nr_kernels: int) -> list[Row]:
    """In modules of a few kernels."""
    starts = range(0, nr_kernels, RANDOM_IN_A_MODULE)
    return [
        row
        for start in starts
        for row in rows_of_random(device, range(start, min(start + RANDOM_IN_A_MODULE, nr_kernels)))
    ]


def report(source: list[Row], randoms: list[Row]) -> int:
    """Prints; returns the exit status."""
    table = Table("kernel", "in boxes", "persistent", "")
    for row in source:
        table.add_row(row.kernel, row.sliced, row.persistent, "DIFFERS" if row.wrong else "")
    for outcome, nr_kernels in sorted(Counter((row.sliced, row.persistent) for row in randoms).items()):
        table.add_row(f"{nr_kernels} random ones", *outcome, "")
    Console(width=120).print(table)
    wrong = [f"{row.kernel}: {text}" for row in (*source, *randoms) for text in row.wrong]
    for text in wrong:
        print(text)
    print("all the same" if not wrong else f"{len(wrong)} runs differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
