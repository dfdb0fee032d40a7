"""
The file of answers: what one device gave for every form, operands left out.

An .npz with one array of bytes for each family, its forms' results one after another, and `metadata`, JSON: the device, the seed, each form's
name and checksum of operands in the order of the bytes, and the forms that the device's driver refused, each with the line that says why.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.softgpu.arithmetic.forms import Form
from tests.softgpu.arithmetic.kernels import stored_bits
from tests.softgpu.arithmetic.operands import SEED, Bits

KEPT = Path(__file__).with_name("answers.npz")
VERSION = 1


class AnswersError(Exception):
    """There is no file of answers, or not one that this code can read."""


@dataclass
class FamilyAnswers:
    """`results` has a column for each result of a form, as unsigned numbers; `checksums` are those of the operands."""

    results: dict[str, list[Bits]] = field(default_factory=dict)
    checksums: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass
class Answers:
    """What one device said; `driver_version` is 13000 for 13.0."""

    device: str
    driver_version: int
    nr_tuples: int
    families: dict[str, FamilyAnswers] = field(default_factory=dict)


def result_bytes(form: Form) -> list[int]:
    """The width of each result in the file; a predicate takes a byte."""
    return [1 if kind == "pred" else stored_bits(kind) // 8 for kind in form.results]


def save(answers: Answers, forms: dict[str, tuple[Form, ...]], path: Path) -> None:
    """Writes the file in one step. `forms` gives the families' forms, which know the widths."""
    arrays: dict[str, npt.NDArray[np.uint8]] = {}
    families = {}
    for name, family in answers.families.items():
        known = [form for form in forms[name] if form.text in family.results]
        columns = [
            column.astype(f"<u{size}").view(np.uint8)
            for form in known
            for column, size in zip(family.results[form.text], result_bytes(form), strict=True)
        ]
        arrays[name] = np.concatenate(columns) if columns else np.zeros(0, np.uint8)
        entries = [[form.text, family.checksums[form.text], result_bytes(form)] for form in known]
        families[name] = {"forms": entries, "refused": family.refused}
    head = {"version": VERSION, "seed": SEED, "device": answers.device, "driver_version": answers.driver_version}
    text = json.dumps(head | {"nr_tuples": answers.nr_tuples, "families": families}, separators=(",", ":"))
    arrays["metadata"] = np.frombuffer(text.encode(), dtype=np.uint8)
    unfinished = path.with_name(f"{path.stem}.unfinished.npz")
    np.savez_compressed(unfinished, **arrays)  # type: ignore[arg-type]
    unfinished.replace(path)


def load(path: Path = KEPT) -> Answers:
    """Raises AnswersError with a sentence that says how to make the file."""
    if not path.exists():
        raise AnswersError(
            f"{path.name} is missing: on a machine with an H200, "
            "python -m tests.softgpu.arithmetic.record --library libcuda.so.1 --output answers.npz"
        )
    with np.load(path) as arrays:
        head = json.loads(arrays["metadata"].tobytes())
        if (head["version"], head["seed"]) != (VERSION, SEED):
            raise AnswersError(f"{path.name} was made by other code: record it again")
        answers = Answers(head["device"], head["driver_version"], head["nr_tuples"])
        for name, family in head["families"].items():
            answers.families[name] = _family(family, arrays[name], answers.nr_tuples)
    return answers


def _family(head: dict[str, object], data: npt.NDArray[np.uint8], nr_tuples: int) -> FamilyAnswers:
    family = FamilyAnswers(refused=dict(head["refused"]))  # type: ignore[call-overload]
    at = 0
    for text, checksum, sizes in head["forms"]:  # type: ignore[attr-defined]
        columns = []
        for size in sizes:
            part = data[at : at + size * nr_tuples]
            columns.append(part.view(f"<u{size}").astype(np.uint64))
            at += size * nr_tuples
        family.results[text], family.checksums[text] = columns, checksum
    return family
