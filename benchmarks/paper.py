"""The paper's figures, from paper.toml, and what is measured here beside them."""

import functools
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.build import NAMES

ABOUT = 0.02
"""'about' a value: within this part of it."""


@functools.cache
def paper() -> dict[str, Any]:
    """Everything in paper.toml."""
    return tomllib.loads(Path(__file__).with_name("paper.toml").read_text())


def is_of_the_paper(workload: str) -> bool:
    """False for benchmark programs that Table 3 lacks: no claim is about them. True for its programs, and for kernels of a given length."""
    return workload in paper()["table3"] or workload not in NAMES


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper in numbers. `relation` is 'at least', 'at most' or 'about'; without a value the paper has a drawing only.

    `better` is the side of 'about' that is as good as being near: 'less', 'more' or none.
    """

    source: str
    what: str
    relation: str = "about"
    value: float = math.nan
    better: str = ""

    def text(self) -> str:
        """As a cell."""
        return "drawn only" if math.isnan(self.value) else f"{self.relation} {self.value:g}"

    def worst(self, findings: Sequence["Finding"]) -> "Finding":
        """The one that is farthest from what the paper says, on its worse side where it has one; of a drawing the least."""

        def badness(finding: Finding) -> float:
            if self.relation == "about" and not self.better and not math.isnan(self.value):
                return abs(finding.ours - self.value)
            return finding.ours if self.relation == "at most" or self.better == "less" else -finding.ours

        return max(findings, key=badness)

    def verdict(self, ours: float) -> str:
        """Reached, better or behind; '-' where there is nothing to compare."""
        if math.isnan(self.value) or math.isnan(ours):
            return "-"
        if self.relation == "about":
            if abs(ours - self.value) <= ABOUT * self.value:
                return "reached"
            return "better" if self.better == ("less" if ours < self.value else "more") else "behind"
        return "reached" if (ours >= self.value if self.relation == "at least" else ours <= self.value) else "behind"


def claims() -> dict[str, Claim]:
    """By name."""
    return {name: Claim(**fields) for name, fields in paper()["claims"].items()}


@dataclass(frozen=True)
class Finding:
    """What one document has to say about a claim, `name` of it."""

    name: str
    detail: str
    ours: float

    def cells(self) -> tuple[str, ...]:
        """Source, what, the paper's, ours, the verdict."""
        claim = claims()[self.name]
        what = f"{claim.what}{', ' if self.detail else ''}{self.detail}"
        return (claim.source, what, claim.text(), f"{self.ours:.3f}", claim.verdict(self.ours))
