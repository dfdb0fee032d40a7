"""What an experiment of several parts is made of."""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.document import Document, Record
from benchmarks.experiment import Reporter
from benchmarks.guests import Setting
from benchmarks.sheet import Sheet


@dataclass(frozen=True)
class Part:
    """One part of the measurement. `nr_records` is of one repetition; sheets and figures are of a document alone."""

    name: str
    nr_records: Callable[[argparse.Namespace], int]
    measure: Callable[[argparse.Namespace, Setting, Reporter], Iterator[Record]]
    sheet: Callable[[Document], Sheet | None]
    figures: Callable[[Document], dict[str, float]]
    draw: Callable[[Any, Document], str | None]
    """Into axes; the finding, or None where there is nothing to draw."""
