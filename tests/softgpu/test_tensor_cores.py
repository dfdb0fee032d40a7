"""
wmma, mma, ldmatrix and their kin against numpy, every form that is known.

The elements are small whole numbers, so that no sum is rounded, and tell each other apart as far as their type can. For mma, words and
matrices are brought together by the manual's figures (matrix_layouts.py); what wmma loads and stores are whole matrices.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from softgpu.compiler.base.errors import CompileError
from softgpu.compiler.command import llvm_text
from tests.softgpu import driver_harness
from tests.softgpu.driver_harness import LIBRARY, Device
from tests.softgpu.matrix_kernels import (
    BITS,
    HEADER,
    MMA,
    MOVES,
    MOVMATRIX,
    WARP,
    WMMA,
    Product,
    kernel,
    mma_kernel,
    move_kernel,
    nr_words_of,
    packed,
    stored,
    unpacked,
    wmma_kernel,
)
from tests.softgpu.matrix_layouts import places

# What f32 and f16 accumulators make of what does not fit: one product for each rule.
ROUNDING = Product("m16n8k8", "f16", "f16", "f32", "f32")
NARROW = Product("m16n8k8", "f16", "f16", "f16", "f16")


def _rounded_matrices() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums that lose bits when each addition is rounded, infinities, NaNs, subnormal numbers."""
    a, b, c = np.zeros((16, 8)), np.zeros((8, 8)), np.zeros((16, 8))
    a[0, :3] = (2048, 2**-14, -2048)
    b[:3, 0] = (2048, 2**-10, 2048)
    a[1, 0], b[0, 1], c[1, 1] = 65504, 65504, -(2.0**24)
    a[2, 0] = np.inf
    a[3, 0], c[3, :] = 2**-24, 2.0**-149
    c[4, :4] = (65519, 65520, 2**-25, 3 * 2.0**-26)
    c[5, 0] = np.nan
    return a, b, c


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    driver_harness.build()
    made = Device(tmp_path_factory.mktemp("device"))
    yield made
    made.close()


def _run(device: Device, name: str, text: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    folder = device.folder / name
    folder.mkdir()
    (folder / "kernels.ptx").write_text(HEADER + text)
    np.savez(folder / "in.npz", **inputs)  # type: ignore[arg-type]
    program = Path(__file__).parent / "run_kernels.py"
    command: list[str | Path] = [
        sys.executable,
        program,
        LIBRARY,
        folder / "kernels.ptx",
        folder / "in.npz",
        folder / "out.npz",
    ]
    done = subprocess.run(command, env=device.environment(), capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(np.load(folder / "out.npz"))


def _of_lanes(product: Product, role: str, matrix: np.ndarray) -> np.ndarray:
    """A lane's words, row after row."""
    kind = {"a": product.a, "b": product.b}.get(role, product.c)
    at = places(role, BITS[kind], product.shape, matrix.size // WARP)
    return packed(kind, matrix[at[..., 0], at[..., 1]])


def _result_of_lanes(product: Product, words: np.ndarray) -> np.ndarray:
    m, n, _ = product.dimensions
    nr = m * n // WARP
    values = unpacked(product.d, words[: WARP * nr_words_of(product.d, nr)].reshape(WARP, -1))
    at = places("c", 32, product.shape, nr)
    result = np.zeros((m, n), values.dtype)
    result[at[..., 0], at[..., 1]] = values
    return result


def _mma_words(product: Product, matrices: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    return np.hstack([_of_lanes(product, role, matrix) for role, matrix in zip("abc", matrices, strict=True)]).ravel()


@pytest.mark.parametrize("picking", ["a", "b"])
def test_mma(device: Device, picking: str) -> None:
    generator = np.random.default_rng(1)
    matrices = {f"mma_{product.name}": product.matrices(generator, picking) for product in MMA}
    inputs = {f"mma_{product.name}": _mma_words(product, matrices[f"mma_{product.name}"]) for product in MMA}
    outputs = _run(device, f"mma_{picking}", "".join(mma_kernel(product) for product in MMA), inputs)
    for product in MMA:
        name = f"mma_{product.name}"
        result = _result_of_lanes(product, outputs[name])
        np.testing.assert_array_equal(result, product.expected(*matrices[name]), err_msg=name)


@pytest.mark.parametrize("picking", ["a", "b"])
def test_wmma(device: Device, picking: str) -> None:
    generator = np.random.default_rng(2)
    inputs, wanted = {}, {}
    for whole in WMMA:
        matrices = whole.product.matrices(generator, picking)
        kinds = (whole.product.a, whole.product.b, whole.product.c)
        places_of = zip(kinds, matrices, whole.orders, whole.strides(), strict=False)
        inputs[whole.name] = np.concatenate([stored(*one) for one in places_of])
        wanted[whole.name] = whole.product.expected(*matrices)
    outputs = _run(device, f"wmma_{picking}", "".join(wmma_kernel(whole) for whole in WMMA), inputs)
    for whole in WMMA:
        m, n, _ = whole.product.dimensions
        order, stride = whole.orders[3], whole.strides()[3]
        nr_lines, length = (m, n) if order == "row" else (n, m)
        values = unpacked(whole.product.d, outputs[whole.name])[: nr_lines * stride]
        room = np.append(values, np.zeros(nr_lines * stride - values.size, values.dtype)).reshape(nr_lines, stride)
        result = room[:, :length] if order == "row" else room[:, :length].T
        np.testing.assert_array_equal(result, wanted[whole.name], err_msg=whole.name)
        gaps = np.ascontiguousarray(room[:-1, length:]).view(np.uint8)
        assert (gaps == 0xFF).all(), f"{whole.name} wrote between its lines"


def test_matrices_move_between_rows_and_registers(device: Device) -> None:
    halves = np.arange(32 * 8, dtype=np.uint16).reshape(4, 8, 8)  # four matrices, each row at a lane's address
    text, inputs = MOVMATRIX, {"movmatrix": np.ascontiguousarray(halves[0]).view(np.uint32).ravel()}
    for number, transposes in MOVES:
        for is_load in (True, False):
            name = f"{'ld' if is_load else 'st'}{number}{transposes.replace('.', '_')}"
            text += move_kernel(name, number, transposes, is_load=is_load)
            tiles = halves.transpose(0, 2, 1) if transposes and not is_load else halves
            in_rows = np.ascontiguousarray(halves).view(np.uint32).reshape(-1)
            in_registers = np.ascontiguousarray(tiles[:number]).view(np.uint32).reshape(number, WARP).T.ravel()
            inputs[name] = in_rows if is_load else np.ascontiguousarray(in_registers)
    outputs = _run(device, "moves", text, inputs)
    moved = outputs["movmatrix"][:WARP].reshape(8, 4)
    np.testing.assert_array_equal(np.ascontiguousarray(moved).view(np.uint16), halves[0].T)
    for number, transposes in MOVES:
        loaded = outputs[f"ld{number}{transposes.replace('.', '_')}"][: WARP * number].reshape(WARP, number).T
        wanted = halves.transpose(0, 2, 1) if transposes else halves
        got = np.ascontiguousarray(loaded).view(np.uint16).reshape(number, 8, 8)
        np.testing.assert_array_equal(got, wanted[:number], err_msg=f"ldmatrix x{number}{transposes}")
        stored = outputs[f"st{number}{transposes.replace('.', '_')}"][: 32 * number]
        got = np.ascontiguousarray(stored).view(np.uint16).reshape(number, 8, 8)
        np.testing.assert_array_equal(got, halves[:number], err_msg=f"stmatrix x{number}{transposes}")


def test_a_sum_is_rounded_once(device: Device) -> None:
    a, b, c = _rounded_matrices()
    text = mma_kernel(ROUNDING) + mma_kernel(NARROW)
    with np.errstate(all="ignore"):
        half_c = c.astype(np.float16).astype(np.float64)
        inputs = {
            f"mma_{ROUNDING.name}": _mma_words(ROUNDING, (a, b, c)),
            f"mma_{NARROW.name}": _mma_words(NARROW, (a, b, half_c)),
        }
        outputs = _run(device, "rounding", text, inputs)
        # Each column of A @ B for itself: numpy must not leave out what is 0 times infinity.
        exact = sum(np.outer(a[:, k], b[k]) for k in range(8))
        wide, narrow = (exact + c).astype(np.float32), (exact + half_c).astype(np.float16)
    got_wide = _result_of_lanes(ROUNDING, outputs[f"mma_{ROUNDING.name}"])
    got_narrow = _result_of_lanes(NARROW, outputs[f"mma_{NARROW.name}"])
    assert wide[0, 0] == 2.0**-24  # in f32, step by step, it would be 0
    np.testing.assert_array_equal(got_wide, wide)
    np.testing.assert_array_equal(got_narrow, narrow)
    assert {hex(word) for word in got_wide.view(np.uint32)[np.isnan(got_wide)]} == {"0x7fffffff"}
    assert {hex(word) for word in got_narrow.view(np.uint16)[np.isnan(got_narrow)]} == {"0x7fff"}


REFUSED = """
mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}, {%r0,%r1}, {%r2,%r3}, {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}
mma.sync.aligned.m16n8k8.col.row.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1}, {%r2}, {%f0,%f1,%f2,%f3}
mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%f0,%f1,%f2,%f3}
mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%f0,%f1,%f2,%f3}
mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1}, {%r0,%r1}, {%r2}, {%f0,%f1,%f2,%f3}
mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1}, {%r2,%r3}, {%f0,%f1,%f2,%f3}, %r4, 0
wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%r0}, [%x0], 32
wmma.load.a.sync.aligned.row.m8n8k16.global.f16 {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, [%x0]
wmma.mma.rz.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64 {%d0,%d1}, {%d2}, {%d3}, {%d0,%d1}
ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0,%r1}, [%x0]
stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%x0], {%r0}
""".strip().splitlines()


@pytest.mark.parametrize("instruction", REFUSED, ids=lambda text: text.split()[0])
def test_what_is_not_known_is_refused_by_name(instruction: str) -> None:
    body = f"  .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .f64 %d<9>; .reg .b64 %x<2>;\n  {instruction};"
    with pytest.raises(CompileError) as caught:
        llvm_text(HEADER + kernel("k", [body]))
    assert instruction.split(maxsplit=1)[0] in str(caught.value)
