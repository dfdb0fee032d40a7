"""The compiler ends with the program that waits for it, and has limits."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.host import wait_until
from tests.softgpu.driver_harness import Device, build

COMPILER = """
import os, resource, sys, time
from pathlib import Path

soft = [resource.getrlimit(which)[0] for which in (resource.RLIMIT_AS, resource.RLIMIT_CPU)]
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
    pid, memory_bytes, cpu_s = map(int, told.read_text().split())
    assert 0 < memory_bytes <= 8 << 30
    assert 0 < cpu_s <= 3600
    program.kill()
    program.communicate()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the compiler has ended")
