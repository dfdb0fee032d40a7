"""On a real GPU: programs of NVIDIA's libraries print as guests what they print natively, each call's status and results to the last bit."""

import subprocess
from difflib import unified_diff
from pathlib import Path

import pytest

from benchmarks.nvcc import find_nvcc
from tests.end_to_end.host import Host

pytestmark = pytest.mark.gpu
SOURCES = Path(__file__).parent / "libraries"
LIBRARIES = {
    "cufft": ["cufft"],
    "curand": ["curand"],
    "cusolver": ["cusolver", "cublas"],
    "cusparse": ["cusparse"],
    "npp": ["nppif", "nppig", "nppist", "nppc"],
    "nvjpeg": ["nvjpeg"],
    "nvrtc": ["nvrtc", "nvJitLink", "cuda"],
}
"""Programs, with what each is linked with."""


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_does_the_same(gpu_host: Host, name: str, tmp_path: Path) -> None:
    program = tmp_path / name
    linked = [f"-l{library}" for library in LIBRARIES[name]]
    command = [str(find_nvcc().path), "-O1", "-std=c++17", "-o", str(program), str(SOURCES / f"{name}.cu"), *linked]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find -l" in compiled.stderr or "No such file" in compiled.stderr:
        pytest.skip(f"this toolkit lacks it: {compiled.stderr.splitlines()[0]}")
    assert compiled.returncode == 0, compiled.stderr
    native = gpu_host.native(str(program))
    guest = gpu_host.guest(program)
    assert native.returncode == 0, native.stderr
    difference = unified_diff(native.stdout.splitlines(), guest.stdout.splitlines(), "natively", "guest", lineterm="")
    assert guest.stdout == native.stdout, "\n".join([*difference, guest.stderr])
