"""
Records what a device computes.

    python -m tests.softgpu.arithmetic.record --library libcuda.so.1 --output answers.npz

Needs numpy and a libcuda.so.1 with a device; on a GPU it takes seconds, most of them in the driver's compiler. It writes the file and a short
table, nothing else.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.softgpu.arithmetic.answers import Answers, save
from tests.softgpu.arithmetic.catalogue import FAMILIES
from tests.softgpu.arithmetic.cuda import CudaError, Device
from tests.softgpu.arithmetic.recording import record


def _table(answers: Answers) -> None:
    print(f"{answers.device}, driver {answers.driver_version // 1000}.{answers.driver_version % 1000 // 10}")
    for name, family in answers.families.items():
        print(f"{name:22} {len(family.results):5} forms {len(family.refused):4} refused")
    for name, family in answers.families.items():
        for text, why in family.refused.items():
            print(f"refused in {name}: {text}: {why}")


def main(arguments: list[str]) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="record", description="Records what a device computes.")
    parser.add_argument("--library", default="libcuda.so.1", help="a libcuda.so.1, by path or as the loader finds it")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE.npz")
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES), help="only this one; may be repeated")
    options = parser.parse_args(arguments)
    start_s = time.monotonic()
    families = [FAMILIES[name] for name in options.family or FAMILIES]
    try:
        with Device(options.library) as device:
            answers = record(device, families)
    except (CudaError, OSError) as error:
        print(f"record: {error}", file=sys.stderr)
        return 1
    save(answers, {family.name: family.forms for family in families}, options.output)
    _table(answers)
    print(f"{options.output}: {options.output.stat().st_size} bytes, {time.monotonic() - start_s:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
