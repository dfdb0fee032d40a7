"""The compiler ends with the program that waits for it, and has limits: of PTX that was written to hurt, the program gets an error."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.host import wait_until
from tests.softgpu.driver_harness import Device, build

COMPILER = """
import os, resource, sys, time
from pathlib import Path

soft = [resource.getrlimit(which)[0] for which in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE)]
told = Path({told!r})
told.with_suffix(".new").write_text(" ".join(map(str, [os.getpid(), *soft])))
told.with_suffix(".new").rename(told)
time.sleep(600)
"""


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    build()
    script = tmp_path / "compiler.py"
    script.write_text(COMPILER.format(told=str(tmp_path / "told")))
    device = Device(tmp_path, {"FAIRGV_SOFTGPU_COMPILER": f"{sys.executable} {script}"})
    yield device
    device.close()


def test_a_compiler_ends_with_its_program(device: Device) -> None:
    told = device.folder / "told"
    program = device.start_case("works")
    wait_until(told.exists, "the compiler runs")
    pid, memory_bytes, cpu_s, file_bytes = map(int, told.read_text().split())
    assert 0 < memory_bytes <= 8 << 30
    assert 0 < cpu_s <= 3600
    assert 0 < file_bytes <= 1 << 30
    program.kill()
    program.communicate()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the compiler has ended")


LOAD = """
import ctypes, resource, sys
softgpu = ctypes.CDLL("libcuda.so.1")
context, module = ctypes.c_void_p(), ctypes.c_void_p()
assert softgpu.cuInit(0) == 0 and softgpu.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
result = softgpu.cuModuleLoadData(ctypes.byref(module), open(sys.argv[1], "rb").read())
print(result, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)
"""
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
KERNEL = ".visible .entry k()\n{\n.reg .b32 %r<9>;\n"
INVALID_PTX, OUT_OF_MEMORY = 218, 2
TEXTS = {
    "an array": (".global .b8 x[4294967296];\n" + KERNEL + "ret; }", 0),
    "arrays": ("".join(f".global .b8 x{i}[4294967296];\n" for i in range(9)) + KERNEL + "ret; }", OUT_OF_MEMORY),
    "registers": (".visible .entry k() { .reg .b32 %r<2000000000>; ret; }", INVALID_PTX),
    "without an end": (KERNEL + "add.s32 %r1, %r2, 1;\n" * 50_000, INVALID_PTX),
    "one string": ('.pragma "' + "x" * 10_000_000, INVALID_PTX),
    "many strings": ('"' + '\\"' * 2_000_000, INVALID_PTX),
    "nested": (KERNEL + "{" * 1_000_000, INVALID_PTX),
    "digits": (KERNEL + f"add.s32 %r1, %r2, {'9' * 4300};\nret; }}", INVALID_PTX),
}
MOST_BYTES = 1 << 30


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_text_costs_little(tmp_path: Path, name: str) -> None:
    """Memory of the compilers alone: an array takes what it has of the device's when it is written."""
    build()
    text, expected = TEXTS[name]
    (tmp_path / "image.ptx").write_text(HEAD + text)
    device = Device(tmp_path, {"FAIRGV_SOFTGPU_MEMORY": "8G"})
    done = device.run(sys.executable, "-c", LOAD, tmp_path / "image.ptx")
    result, most_bytes = map(int, done.stdout.split())
    assert result == expected, done.stderr
    assert most_bytes < MOST_BYTES


def test_a_large_object_is_not_written(tmp_path: Path) -> None:
    """The limit of a file is a smaller one here; what was begun is gone."""
    build()
    (tmp_path / "image.ptx").write_text(HEAD + ".global .b8 x[] = {" + "1, " * 200_000 + "1};\n" + KERNEL + "ret; }")
    device = Device(tmp_path)
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)); {LOAD}"
    assert device.run(sys.executable, "-c", LOAD, tmp_path / "image.ptx").stdout.split()[0] == "0"
    for path in device.cache.iterdir():
        path.unlink()
    text = (tmp_path / "image.ptx").read_text().replace("1, 1", "1, 2, " * 200_000 + "1", 1)
    (tmp_path / "image.ptx").write_text(text)
    assert device.run(sys.executable, "-c", limited, tmp_path / "image.ptx").stdout.split()[0] != "0"
    assert list(device.cache.iterdir()) == []
