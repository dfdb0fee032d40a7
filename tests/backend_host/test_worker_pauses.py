"""A worker that compiles or loads needs no GPU meanwhile: others have it, and what comes afterwards waits for a turn."""

import contextlib
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.backend_host.test_worker_order import LATE, NS_PER_S, PTX, Kernels
from tests.backend_host.worker_guest import MODULE, NO_CHUNK, kernel_image, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

COMPILER = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
if (folder / "is_held").exists():
    (folder / "waits").touch()
    while (folder / "is_held").exists():
        time.sleep(0.01)
    if (folder / "fails").exists():
        sys.exit(1)
os.execv(sys.executable, [sys.executable, "-m", "softgpu.compiler", *sys.argv[2:]])
"""
BOXES = {"mode": 1, "waits_for_variant": 1, "threshold_blocks": 10, "least_blocks": 4, "part_ns": 0, "run_blocks": 0}


class Compiler:
    """softgpu's, which waits while `is_held` is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        script = folder / "compiler.py"
        script.write_text(COMPILER)
        self.command = f"{sys.executable} {script} {folder}"

    def hold(self) -> None:
        (self.folder / "is_held").touch()

    def waits(self) -> bool:
        return (self.folder / "waits").exists()

    def go_on(self, *, fails: bool = False) -> None:
        if fails:
            (self.folder / "fails").touch()
        (self.folder / "is_held").unlink(missing_ok=True)


@pytest.fixture
def compiler(tmp_path: Path) -> Iterator[Compiler]:
    compiler = Compiler(tmp_path)
    yield compiler
    compiler.go_on()


@pytest.fixture
def two(compiler: Compiler, tmp_path: Path) -> Iterator[tuple[Served, Served]]:
    """Of two vGPUs; the first one's large launches go in parts."""
    environment = {"FAIRGV_SOFTGPU_COMPILER": compiler.command}
    with (
        contextlib.closing(Host(SOFTGPU, environment, shared=[tmp_path])) as host,
        make_region() as one,
        make_region() as other,
    ):
        yield Served(host, one, slicing=BOXES), Served(host, other)


def in_parts(kernels: Kernels, value: int) -> None:
    """A launch that is large enough for that."""
    kernels.guest.launch(LATE, struct.pack("<QQI", kernels.address, 1, value), grid=50)


def is_on_the_device(served: Served) -> bool:
    """Some of its work is, as it says."""
    return served.host.control.workers()[served.worker.slot].stalled_since_ns != 0


def test_the_gpu_is_free_while_the_parts_of_a_launch_are_compiled(
    two: tuple[Served, Served], compiler: Compiler
) -> None:
    """The launch stands in the backlog, behind another that waited for its turn."""
    compiling, other = two
    control = compiling.host.control
    kernels, holder = Kernels(compiling.primary()), Kernels(other.primary())
    holder.late(1, ns=NS_PER_S)
    wait_until(lambda: is_on_the_device(other), "the other one is on the device")
    compiler.hold()
    kernels.late(2, ns=1)
    in_parts(kernels, 3)
    wait_until(compiler.waits, "it compiles")
    assert control.holder().vgpu is None
    assert not control.workers()[0].is_waiting
    holder.late(4, ns=1)
    assert holder.value() == 4
    compiler.go_on()
    assert kernels.value() == 3


def test_nobody_waits_for_the_gpu_while_it_loads_a_module(two: tuple[Served, Served], compiler: Compiler) -> None:
    """A load overtakes what stands in the backlog; a turn that came meanwhile would be lost."""
    loading, other = two
    control = loading.host.control
    kernels, holder = Kernels(loading.primary()), Kernels(other.primary())
    holder.late(1, ns=NS_PER_S)
    wait_until(lambda: is_on_the_device(other), "the other one is on the device")
    kernels.late(2, ns=1)
    wait_until(lambda: bool(control.workers()[0].is_waiting), "it waits for its turn")
    compiler.hold()
    fields: dict[str, Any] = {"handle": MODULE + 8, "prelinked": 0, "chunk": NO_CHUNK}
    blob = kernels.guest.send_blob(kernel_image(PTX + "// another one"), 15)
    slot = kernels.guest.begin("cuModuleLoadDataEx", blob=blob, **fields)
    wait_until(compiler.waits, "it loads")
    assert not control.workers()[0].is_waiting
    assert holder.value() == 1
    wait_until(lambda: control.holder().vgpu is None, "the GPU is free")
    assert not kernels.guest.is_answered(slot)
    compiler.go_on()
    assert kernels.guest.finish("cuModuleLoadDataEx", slot).result == 0
    assert kernels.value() == 2


def test_a_launch_whose_parts_cannot_be_compiled_waits_for_its_turn(
    two: tuple[Served, Served], compiler: Compiler
) -> None:
    """Its worker has given the GPU back to compile them, and another vGPU has it by now."""
    compiling, other = two
    control = compiling.host.control
    kernels, holder = Kernels(compiling.primary()), Kernels(other.primary())
    compiler.hold()
    in_parts(kernels, 2)
    wait_until(compiler.waits, "it compiles")
    holder.late(1, ns=2 * NS_PER_S)
    wait_until(lambda: is_on_the_device(other), "the other one is on the device")
    compiler.go_on(fails=True)
    kernels.guest.ok("cuMemGetInfo_v2")  # answered once the launch has been looked at
    wait_until(lambda: bool(control.workers()[0].is_waiting), "it waits for its turn")
    assert is_on_the_device(other)
    assert not is_on_the_device(compiling)
    assert kernels.value() == 2
    assert holder.value() == 1
