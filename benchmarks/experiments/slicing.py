"""Kernel slicing (Table 4 of the paper): refused until FairGV slices kernels."""

import argparse
from collections.abc import Iterator

from benchmarks.document import Document, Record
from benchmarks.errors import NotMeasurableError
from benchmarks.experiment import Experiment, Reporter
from benchmarks.grid import Grid

REFUSAL = (
    "slicing cannot be measured: FairGV does not slice kernels yet (SPECIFICATION.md: a kernel of any length, pending)"
)


class Slicing(Experiment):
    """`fairgv-bench slicing`."""

    name = "slicing"
    summary = "slowdown by kernel slicing (Table 4); refused: FairGV does not slice kernels yet"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """None of its own."""

    def check(self, options: argparse.Namespace) -> None:
        """Always refused."""
        raise NotMeasurableError(REFUSAL)

    def nr_records(self, options: argparse.Namespace) -> int:
        """None."""
        return 0

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Nothing: `check` refuses."""
        yield from ()

    def grids(self, document: Document) -> list[Grid]:
        """None."""
        return []
