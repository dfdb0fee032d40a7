"""
Shows where a library computes something else than the kept answers, or than another library.

    python -m tests.softgpu.arithmetic.compare --library build/softgpu/libcuda.so.1
    python -m tests.softgpu.arithmetic.compare --library build/softgpu/libcuda.so.1 --against libcuda.so.1

A line for each form: how many tuples differ, and the first of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.softgpu.arithmetic.answers import KEPT, Answers, AnswersError, load
from tests.softgpu.arithmetic.catalogue import FAMILIES
from tests.softgpu.arithmetic.comparison import beyond_bounds, mismatches
from tests.softgpu.arithmetic.process import RecordingError, recorded


def _show(got: Answers, expected: Answers, names: list[str]) -> int:
    print(f"{got.device} beside {expected.device}")
    nr_wrong = nr_forms = 0
    for name in names:
        nr_forms += len(FAMILIES[name].forms)
        for mismatch in mismatches(FAMILIES[name], got, expected):
            nr_wrong += 1
            print(f"{name}: {mismatch}")
        for mismatch in beyond_bounds(FAMILIES[name], expected):
            print(f"{name}: beyond the manual's bound on {expected.device}: {mismatch}")
    print(f"{nr_wrong} of {nr_forms} forms differ")
    return nr_wrong


def main(arguments: list[str]) -> int:
    """The command line; returns the exit code: 1 where something differs."""
    parser = argparse.ArgumentParser(prog="compare", description="Compares what a library computes with kept answers.")
    parser.add_argument("--library", required=True, help="a libcuda.so.1")
    parser.add_argument("--answers", type=Path, default=KEPT, metavar="FILE.npz", help="compare with this file")
    parser.add_argument("--against", metavar="LIBRARY", help="compare with another libcuda.so.1 instead")
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES), help="only this one; may be repeated")
    options = parser.parse_args(arguments)
    names = options.family or list(FAMILIES)
    try:
        with tempfile.TemporaryDirectory() as folder:
            got = recorded(options.library, names, Path(folder))
            expected = recorded(options.against, names, Path(folder)) if options.against else load(options.answers)
    except (RecordingError, AnswersError) as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    return 1 if _show(got, expected, names) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
