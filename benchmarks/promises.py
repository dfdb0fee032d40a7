"""What FairGV promises, from promises.toml, each with the figure that was measured last, and whether that keeps the promise."""

import functools
import json
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from backend_host.config import PACKAGE_ROOT
from benchmarks.document import Document
from benchmarks.experiments import EXPERIMENTS
from benchmarks.frameworks.sheet import framework_figures
from benchmarks.ratios import geometric_mean

RESULTS = PACKAGE_ROOT / "benchmarks/results"
SIGNS = {"at least": "≥", "at most": "≤"}
LEAST_DIGITS = 3


@dataclass(frozen=True)
class Figure:
    """One number, the device that it was measured on, and when."""

    value: float
    device: str
    date: str


@dataclass(frozen=True)
class Promise:
    """One row, see promises.toml: a claim, the `value` that bounds it in its `unit`, what holds it, where its figures are."""

    number: str
    claim: str
    relation: str = ""
    value: float = math.nan
    unit: str = ""
    held: tuple[str, ...] = ()
    command: str = ""
    figures: tuple[str, ...] = ()
    combine: str = ""

    @property
    def has_bound(self) -> bool:
        """Whether it is kept by a figure."""
        return self.relation != ""

    def keeps(self, value: float) -> bool:
        """Whether such a figure is within the bound."""
        return value >= self.value if self.relation == "at least" else value <= self.value

    def bound(self) -> str:
        """As a cell."""
        return f"{SIGNS[self.relation]} {_with_unit(f'{self.value:g}', self.unit)}" if self.has_bound else ""

    def cell(self, value: float) -> str:
        """A figure in its unit, with as many digits as it takes not to seem better or worse than it is."""
        texts = (f"{value:.{digits}g}" for digits in range(LEAST_DIGITS, 18))
        return _with_unit(next(text for text in texts if self.keeps(float(text)) == self.keeps(value)), self.unit)

    def figure(self, folder: Path = RESULTS) -> Figure | None:
        """The last one; None while there is none. LookupError for a file or a name that is not there."""
        found = [figure for reference in self.figures for figure in _named(reference, folder)]
        if not found:
            return None
        if self.combine:
            newest = max(found, key=lambda figure: figure.date)
            return Figure(geometric_mean([figure.value for figure in found]), newest.device, newest.date)
        return (min if self.relation == "at least" else max)(found, key=lambda figure: figure.value)


@functools.cache
def groups() -> dict[str, str]:
    """Titles by their letters."""
    return dict(_table()["groups"])


@functools.cache
def promises() -> tuple[Promise, ...]:
    """All of them, in the order of the file."""
    return tuple(_promise(number, row) for number, row in _table().items() if number != "groups")


def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("promises.toml").read_text())


def _promise(number: str, row: dict[str, Any]) -> Promise:
    lists = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
    return Promise(number, **{**row, **lists})


def _named(reference: str, folder: Path) -> Sequence[Figure]:
    """All figures that one reference means, FILE: PATTERN."""
    stem, _, pattern = reference.partition(": ")
    path = folder / f"{stem}.json"
    if not path.exists():
        raise LookupError(f"{reference}: there is no {path}")
    document = json.loads(path.read_text())
    device = document["device"].removeprefix("NVIDIA ")
    found = [
        Figure(value, device, document["date"])
        for name, value in figures_of(document).items()
        if fnmatchcase(name, pattern)
    ]
    if not found:
        raise LookupError(f"{reference}: there is no such figure")
    return found


def figures_of(document: Document) -> dict[str, float]:
    """By name, of any document that has some."""
    kind = document["experiment"]
    return EXPERIMENTS[kind].figures(document) if kind in EXPERIMENTS else framework_figures(document)


def _with_unit(number: str, unit: str) -> str:
    return f"{number} {unit}".rstrip()
