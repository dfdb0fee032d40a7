"""
Compares what two devices answered.

Bit for bit, but for two things: which NaN an instruction gives is open unless its form says otherwise, and an approximation may be anything
within the manual's bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.softgpu.arithmetic.answers import Answers, FamilyAnswers
from tests.softgpu.arithmetic.bounds import bounds_of, is_within
from tests.softgpu.arithmetic.forms import Family, Form
from tests.softgpu.arithmetic.numbers import FORMATS, elements, is_nan
from tests.softgpu.arithmetic.operands import Bits, base_type, checksum, tuples

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A form of which `nr_wrong` tuples differ; the first of them, or why there is nothing to compare, in words."""

    form: Form
    nr_wrong: int
    example: str

    def __str__(self) -> str:
        return f"{self.form.text}: {self.nr_wrong} wrong, {self.example}"


def _same(kind: str, left: Bits, right: Bits, *, is_nan_exact: bool) -> Mask:
    kind = base_type(kind)
    element = kind.removesuffix("x2")
    if is_nan_exact or element not in FORMATS:
        return np.asarray(left == right)
    same = np.ones(left.shape, dtype=np.bool_)
    for one, other in zip(elements(kind, left), elements(kind, right), strict=True):
        same &= (one == other) | (is_nan(element, one) & is_nan(element, other))
    return same


def agreement(form: Form, columns: list[Bits], got: list[Bits], expected: list[Bits]) -> Mask:
    """For each tuple, whether `got` is right when `expected` is what the GPU says."""
    right = np.ones(got[0].shape, dtype=np.bool_)
    for kind, mine, theirs in zip(form.results, got, expected, strict=True):
        right &= _same(kind, mine, theirs, is_nan_exact=form.is_nan_exact)
    if bounds_of(form):
        right |= is_within(form, columns, got[0])
    return right


def _example(form: Form, columns: list[Bits], got: list[Bits], expected: list[Bits], index: int) -> str:
    operands = " ".join(f"{int(column[index]):#x}" for column in columns)
    mine, theirs = (" ".join(f"{int(column[index]):#x}" for column in answer) for answer in (got, expected))
    return f"operands {operands}: got {mine}, expected {theirs}"


def _compare(form: Form, got: FamilyAnswers, expected: FamilyAnswers) -> Mismatch | None:
    if form.text in expected.refused:
        return None
    if form.text not in expected.results:
        return Mismatch(form, 0, "the kept answers do not have it: record them again")
    if form.text not in got.results:
        return Mismatch(form, 0, f"refused: {got.refused.get(form.text, 'not recorded')}")
    columns = tuples(form.sources)
    if expected.checksums[form.text] != checksum(columns):
        return Mismatch(form, 0, "the kept answers are for other operands: record them again")
    mine, theirs = got.results[form.text], expected.results[form.text]
    wrong = np.flatnonzero(~agreement(form, columns, mine, theirs))
    if not len(wrong):
        return None
    return Mismatch(form, len(wrong), _example(form, columns, mine, theirs, int(wrong[0])))


def mismatches(family: Family, got: Answers, expected: Answers) -> Iterator[Mismatch]:
    """The forms of a family of which `got` is not right. A form that the GPU refuses is not compared."""
    empty = FamilyAnswers()
    for form in family.forms:
        found = _compare(form, got.families.get(family.name, empty), expected.families.get(family.name, empty))
        if found:
            yield found


def beyond_bounds(family: Family, answers: Answers) -> Iterator[Mismatch]:
    """Approximations that are outside the manual's bound on the device that was recorded: our reading of the manual is wrong there."""
    known = answers.families.get(family.name, FamilyAnswers()).results
    for form in family.forms:
        if not bounds_of(form) or form.text not in known:
            continue
        columns, results = tuples(form.sources), known[form.text]
        wrong = np.flatnonzero(~is_within(form, columns, results[0]))
        if len(wrong):
            yield Mismatch(form, len(wrong), _example(form, columns, results, results, int(wrong[0])))
