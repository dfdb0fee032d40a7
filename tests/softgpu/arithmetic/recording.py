"""Runs families of forms on a device. A form that its compiler refuses is found by halving, and the others still run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.softgpu.arithmetic.answers import Answers, FamilyAnswers
from tests.softgpu.arithmetic.cuda import Bytes, CudaError, Device, Module
from tests.softgpu.arithmetic.forms import Family, Form
from tests.softgpu.arithmetic.kernels import BLOCK, COLUMN_BYTES_PER_TUPLE, Kernel, kernels_of, module_text, stored_bits
from tests.softgpu.arithmetic.operands import NR_TUPLES, Bits, bits_of, checksum, tuples

Loaded = list[tuple[Module, list[Kernel]]]
COLUMN_BYTES = NR_TUPLES * COLUMN_BYTES_PER_TUPLE


def record(device: Device, families: Sequence[Family]) -> Answers:
    """What the device gives for all forms. Raises CudaError when more than a form fails."""
    answers = Answers(device.name, device.driver_version, NR_TUPLES)
    for family in families:
        answers.families[family.name] = _record_family(device, family)
    return answers


def _record_family(device: Device, family: Family) -> FamilyAnswers:
    answers = FamilyAnswers()
    for module, kernels in _loaded(device, family.forms, answers.refused):
        _run(device, module, kernels, answers)
        module.close()
    return answers


def _loaded(device: Device, forms: Sequence[Form], refused: dict[str, str]) -> Loaded:
    """Modules that hold all forms but the refused ones; forms of different targets are kept apart."""
    loaded: Loaded = []
    for target in sorted({form.target for form in forms}):
        loaded += _load(device, [form for form in forms if form.target == target], refused)
    return loaded


def _load(device: Device, forms: Sequence[Form], refused: dict[str, str]) -> Loaded:
    kernels = kernels_of(forms)
    try:
        return [(device.load(module_text(kernels, device.capability, NR_TUPLES)), kernels)]
    except CudaError as error:
        if len(forms) == 1:
            refused[forms[0].text] = f"{error.error}: {error.log}"
            return []
    middle = len(forms) // 2
    return _load(device, forms[:middle], refused) + _load(device, forms[middle:], refused)


def _run(device: Device, module: Module, kernels: Sequence[Kernel], answers: FamilyAnswers) -> None:
    """All kernels of a module, between one copy there and one back."""
    columns = {kernel.sources: tuples(kernel.sources) for kernel in kernels}
    places, nr_columns = _places(kernels)
    packed = np.concatenate([_packed(sources, columns[sources]) for sources in columns])
    offsets = np.cumsum([0, *(len(sources) for sources in columns)]) * COLUMN_BYTES
    operand_offsets = dict(zip(columns, offsets.tolist(), strict=False))
    operands, results = device.allocate(packed.nbytes), device.allocate(nr_columns * COLUMN_BYTES)
    device.upload(operands, packed)
    for kernel, place in zip(kernels, places, strict=True):
        arguments = (operands + operand_offsets[kernel.sources], results + place * COLUMN_BYTES)
        device.launch(module.function(kernel.name), NR_TUPLES // BLOCK, BLOCK, arguments)
    data = device.download(results, nr_columns * COLUMN_BYTES).reshape(nr_columns, COLUMN_BYTES)
    device.free(operands)
    device.free(results)
    for kernel, place in zip(kernels, places, strict=True):
        _keep(kernel, data[place:], checksum(columns[kernel.sources]), answers)


def _places(kernels: Sequence[Kernel]) -> tuple[list[int], int]:
    """The first column of each kernel's results, and the number of all."""
    ends = np.cumsum([kernel.nr_columns for kernel in kernels]).tolist()
    return [0, *ends[:-1]], ends[-1]


def _keep(kernel: Kernel, data: Bytes, operands_checksum: int, answers: FamilyAnswers) -> None:
    at = 0
    for form in kernel.forms:
        parts = data[at : at + len(form.results)]
        answers.results[form.text] = [_column(part, kind) for part, kind in zip(parts, form.results, strict=True)]
        answers.checksums[form.text] = operands_checksum
        at += len(form.results)


def _packed(sources: Sequence[str], columns: Sequence[Bits]) -> Bytes:
    """Columns of natural width, each where the kernel looks for it."""
    data = np.zeros((len(columns), COLUMN_BYTES), dtype=np.uint8)
    for row, kind, column in zip(data, sources, columns, strict=True):
        size = bits_of(kind) // 8
        row[: size * NR_TUPLES] = column.astype(f"<u{size}").view(np.uint8)
    return data


def _column(part: Bytes, kind: str) -> Bits:
    size = stored_bits(kind) // 8
    return np.ascontiguousarray(part[: size * NR_TUPLES]).view(f"<u{size}").astype(np.uint64)
