"""The handshake against NVIDIA's runtimes: each starts, finds the device, allocates, copies, launches and reads back.

Shared runtimes come from wheels and are loaded into a fresh Python. Static ones: nvcc's own, and those of the wheels
that have libcudart_static.a (CUDA 13). No wheel has the static runtime of CUDA 12 by itself, but nvJPEG's carry it
inside; those start, find the device and allocate.

Devices: softgpu directly, and FairGV's guest library before a daemon on softgpu. FAIRGV_TEST_LIBCUDA=FOLDER adds the
libcuda.so.1 of that folder, NVIDIA's for instance.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.nvcc import find_nvcc
from tests.cuda_api.wheels import library, unpacked
from tests.programs.build import HERE as PROGRAM_SOURCES
from tests.programs.build import build_one

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "tests" / "cuda_api"
TIMEOUT_S = 120

# The only table that is asked for and refused; see cuda_api/handshake.h.
REFUSABLE = "f8cff951-2146-8b4e-b9e2-fb469e7c0dd9"

SHARED = [
    ("nvidia-cuda-runtime-cu12", "12.4.127", "runtime 12040, 0 wrong"),
    ("nvidia-cuda-runtime-cu12", "12.8.90", "runtime 12080, 0 wrong"),
    ("nvidia-cuda-runtime", "13.0.96", "runtime 13000, 0 wrong"),
    ("nvidia-cuda-runtime", None, "runtime 1"),
]
STATIC = [("nvidia-cuda-runtime", "13.0.96"), ("nvidia-cuda-runtime", None)]
STATIC_INSIDE = [
    ("nvidia-nvjpeg-cu12", "12.3.1.117", "runtime 12.4"),
    ("nvidia-nvjpeg-cu12", "12.3.5.92", "runtime 12.8"),
]


@dataclass(frozen=True)
class Device:
    """How a program is brought before the libcuda.so.1 under test."""

    prefix: tuple[str, ...] = ()
    folder: Path | None = None
    """Where its libcuda.so.1 is; None when the prefix sees to that."""

    def run(self, *command: str | Path, libraries: Path | None = None) -> str:
        """The program's output. It must have said PASS, and nothing of the handshake may have been new to us."""
        search = [str(folder) for folder in (self.folder, libraries) if folder]
        environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(search), "FAIRGV_LOG": "handshake"}
        done = subprocess.run(
            [*self.prefix, *map(str, command)],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1] == "PASS", done.stdout + done.stderr
        said = [line for line in done.stderr.splitlines() if line.startswith("fairgv: handshake:")]
        assert [line for line in said if line != f"fairgv: handshake: table refused {REFUSABLE}"] == []
        return done.stdout


def devices() -> list[str]:
    return ["softgpu", "guest", *(["other"] if os.environ.get("FAIRGV_TEST_LIBCUDA") else [])]


@pytest.fixture(scope="module", params=devices())
def device(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    if request.param == "guest":
        # Here, because it needs the worker to be built; the rest of these tests does not.
        from tests.end_to_end.host import start_host, stop_host  # noqa: PLC0415

        host = start_host(tmp_path_factory.mktemp("host"))
        command = (sys.executable, "-m", "backend_host.run", "--state-dir", str(host.state_dir), "--")
        yield Device(prefix=command)
        stop_host(host)
        return
    folder = Path(os.environ["FAIRGV_TEST_LIBCUDA"]) if request.param == "other" else ROOT / "build" / "softgpu"
    assert (folder / "libcuda.so.1").exists(), f"{folder}/libcuda.so.1 is not built"
    yield Device(folder=folder)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One kernel as a fat binary, under its plain name."""
    folder = tmp_path_factory.mktemp("kernel")
    source = folder / "vector_add.cu"
    source.write_text(
        """
extern "C" __global__ void vector_add(const float *a, const float *b, float *sum, int nr)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < nr)
        sum[i] = a[i] + b[i];
}
"""
    )
    image = folder / "vector_add.fatbin"
    subprocess.run(
        [find_nvcc().path, "-fatbin", "-gencode=arch=compute_75,code=compute_75", "-o", image, source], check=True
    )
    return image


@pytest.mark.parametrize(("distribution", "version", "expected"), SHARED)
def test_shared_runtimes(device: Device, kernel: Path, distribution: str, version: str | None, expected: str) -> None:
    runtime = library(unpacked(distribution, version), "libcudart.so.1?")
    assert device.run(sys.executable, CLIENTS / "runtime_client.py", runtime, kernel).startswith(expected)


@pytest.mark.parametrize(("distribution", "version"), STATIC)
def test_static_runtimes(device: Device, tmp_path: Path, distribution: str, version: str | None) -> None:
    folder = library(unpacked(distribution, version), "libcudart_static.a").parent
    program = tmp_path / "vector_add"
    source = PROGRAM_SOURCES / "vector_add.cu"
    # -L comes before the folders that nvcc adds itself: this libcudart_static.a is the one that is linked.
    subprocess.run([find_nvcc().path, "-O2", "-L", folder, "-o", program, source], check=True)
    device.run(program)


@pytest.mark.parametrize(("distribution", "version", "expected"), STATIC_INSIDE)
def test_static_runtimes_of_cuda_12(device: Device, distribution: str, version: str, expected: str) -> None:
    nvjpeg = library(unpacked(distribution, version), "libnvjpeg.so.12")
    assert device.run(sys.executable, CLIENTS / "nvjpeg_client.py", nvjpeg).startswith(expected)


@pytest.mark.parametrize("program", ["vector_add", "device_query"])
def test_nvccs_own_runtimes(device: Device, program: str) -> None:
    static = device.run(build_one(program))
    assert device.run(build_one(program, is_shared=True)) == static


def test_a_program_of_one_runtime_starts_with_the_newest(device: Device) -> None:
    """What a user's machine does: built with 13.0, and the loader finds a later libcudart.so.13."""
    newest = library(unpacked("nvidia-cuda-runtime", None), "libcudart.so.13").parent
    device.run(build_one("vector_add", is_shared=True), libraries=newest)
