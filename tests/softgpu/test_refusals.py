"""softgpu says once, on the program's standard error, what it cannot run: machine code, unknown instructions; why its compiler fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.nvcc import find_nvcc
from tests.softgpu.driver_harness import Device, build

LOADS = """
import ctypes, sys
cuda, context, module = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
text, options, values = ctypes.create_string_buffer(1000), (ctypes.c_int * 2)(5, 6), (ctypes.c_void_p * 2)()
for path in sys.argv[1:]:
    values[0], values[1] = ctypes.addressof(text), 1000
    image = open(path, "rb").read() + bytes(1)
    print(cuda.cuModuleLoadDataEx(ctypes.byref(module), image, 2, options, values), text.value.decode(), sep="|")
"""
"""Prints result and error log of each load."""
KERNEL = "__global__ void kernel(int *word) { *word = 42; }\n"
NO_BINARY, COMPILER_NOT_FOUND, NOT_SUPPORTED = 209, 221, 801


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    build()
    device = Device(tmp_path)
    (tmp_path / "kernel.cu").write_text(KERNEL)
    yield device
    device.close()


def _image(device: Device, name: str, *options: str) -> Path:
    output = device.folder / name
    subprocess.run([find_nvcc().path, *options, "-o", output, device.folder / "kernel.cu"], check=True)
    return output


def _load(device: Device, *images: Path, script: str = LOADS) -> tuple[list[list[str]], list[str]]:
    """Result and error log of each, and the lines on standard error."""
    command: list[str | Path] = [sys.executable, "-c", script, *images]
    done = subprocess.run(command, env=device.environment(), capture_output=True, text=True, check=True, timeout=100)
    return [line.split("|") for line in done.stdout.splitlines()], done.stderr.splitlines()


def test_machine_code_is_named_once(device: Device) -> None:
    cubin = _image(device, "cubin", "-cubin", "-arch=sm_86")
    both = ["-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=sm_90"]
    container = _image(device, "fatbin", "-fatbin", *both)
    loads, errors = _load(device, container, cubin, container)
    assert [int(result) for result, _ in loads] == [NO_BINARY] * 3
    assert loads[0][1] == loads[2][1] == "an image has machine code for sm_80, sm_90 and no PTX"
    assert loads[1][1] == "an image has machine code for sm_86 and no PTX"
    (line,) = errors
    assert "sm_80, sm_90" in line
    assert all(word in line for word in ("softgpu runs PTX", "code=compute_80", "CUPY_COMPILE_WITH_PTX=1", "Numba"))


def test_ptx_for_newer_devices_runs_as_far_as_it_is_known(device: Device) -> None:
    newer = _image(device, "newer", "-fatbin", "-gencode=arch=compute_100,code=compute_100")
    both = ["-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_120,code=compute_120"]
    other = _image(device, "other", "-fatbin", *both)
    text = _image(device, "ptx", "-ptx", "-arch=compute_90")
    unknown = device.folder / "unknown"
    unknown.write_text(text.read_text().replace("ret;", "wgmma.fence.sync.aligned;\n ret;"))
    loads, errors = _load(device, newer, other, text, unknown)
    assert [int(result) for result, _ in loads] == [0, 0, 0, NOT_SUPPORTED]
    assert "instruction 'wgmma.fence.sync.aligned' is not supported" in loads[3][1]
    (line,) = errors
    assert "wgmma.fence.sync.aligned" in line


def test_of_several_newer_ones_the_oldest_is_taken(device: Device) -> None:
    options = [f"-gencode=arch=compute_{number},code=compute_{number}" for number in (90, 100)]
    image = _image(device, "both", "-fatbin", *options)
    logging = device.with_settings(FAIRGV_SOFTGPU_COMPILER=f"{sys.executable} {device.folder / 'spy.py'}")
    (device.folder / "spy.py").write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from cuda_api.fatbin import select_ptx\n"
        "image = open(sys.argv[2], 'rb').read()\n"
        "print('CUDA_ERROR_UNKNOWN', *[line for line in select_ptx(image, 80, takes_newer=True).splitlines() if '.target' in line])\n"
        "sys.exit(1)\n"
    )
    loads, _ = _load(logging, image)
    assert loads[0][1] == "CUDA_ERROR_UNKNOWN .target sm_90"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("/nowhere/python", "No such file or directory"),
        ("{folder}/closed", "Permission denied"),
        (f"{sys.executable} -S -P -m nowhere", "No module named nowhere"),
    ],
)
def test_a_compiler_that_cannot_be_started(device: Device, command: str, reason: str) -> None:
    (device.folder / "closed").write_text("#!/bin/sh\n")
    command = command.format(folder=device.folder)
    text = _image(device, "ptx", "-ptx", "-arch=compute_80")
    loads, errors = _load(device.with_settings(FAIRGV_SOFTGPU_COMPILER=command), text, text)
    assert [int(result) for result, _ in loads] == [COMPILER_NOT_FOUND] * 2
    (line,) = errors
    assert command.split(maxsplit=1)[0] in line
    assert reason in line


def test_a_program_without_an_environment(device: Device) -> None:
    """As clearenv leaves it. The image is new to whatever cache is found then."""
    text = _image(device, "ptx", "-ptx", "-arch=compute_80")
    text.write_text(f"{text.read_text()}// {device.folder}\n")
    loads, _ = _load(device, text, script=LOADS.replace("for path", "ctypes.CDLL(None).clearenv()\nfor path"))
    assert loads == [["0", ""]]


def test_the_compiler_is_found_where_the_library_is(device: Device) -> None:
    """A checkout that was moved: its library finds the compiler beside itself, and Python where this user has one."""
    root = Path(__file__).parents[2]
    moved = device.folder / "moved"
    (moved / "build" / "softgpu").mkdir(parents=True)
    library = moved / "build" / "softgpu" / "libcuda.so.1"
    library.write_bytes((root / "build" / "softgpu" / "libcuda.so.1").read_bytes())
    (moved / "softgpu").mkdir()
    (moved / "softgpu" / "__init__.py").touch()
    (moved / "softgpu" / "compiler").mkdir()
    (moved / "softgpu" / "compiler" / "__init__.py").touch()
    (moved / "softgpu" / "compiler" / "__main__.py").write_text(
        "import sys\nprint('CUDA_ERROR_UNKNOWN', __file__)\nsys.exit(1)\n"
    )
    text = _image(device, "ptx", "-ptx", "-arch=compute_80")
    loads, _ = _load(device.with_settings(LD_LIBRARY_PATH=str(library.parent)), text)
    assert loads[0][1] == f"CUDA_ERROR_UNKNOWN {moved / 'softgpu' / 'compiler' / '__main__.py'}"
