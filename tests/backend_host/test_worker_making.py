"""Variants that are made while their program goes on: what it does meanwhile, and what goes before they are made."""

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ivshmem.region import Region
from tests.backend_host.test_worker_parts import BOXES, COUNT, LARGE, NR_BLOCKS, PERSISTENT, PTX, Kernels, expected
from tests.backend_host.test_worker_pauses import Compiler
from tests.backend_host.worker_guest import FUNCTION, MODULE, NO_CHUNK, PRIMARY, kernel_image
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until


class Launches(Kernels):
    """Of kernels whose variants nobody waits for; the compiler can be held."""

    def __init__(self, served: Served, compiler: Compiler) -> None:
        super().__init__(served)
        self.compiler = compiler

    def launch_while_compiling(self) -> None:
        """Returns with the variant in the compiler, which is held."""
        self.compiler.hold()
        self.count()
        wait_until(self.compiler.waits, "its variant is compiled")

    def launch_until_in_parts(self, function: int, parameters: bytes) -> None:
        """Again and again: a device that preempts waits for no variant."""
        nr_before = self.reading().nr_sliced

        def goes_in_parts() -> bool:
            self.guest.launch(function, parameters, grid=NR_BLOCKS)
            self.guest.ok("cuCtxSynchronize")
            return self.reading().nr_sliced > nr_before

        wait_until(goes_in_parts, "it goes in parts")


@pytest.fixture(params=[BOXES, PERSISTENT], ids=["boxes", "persistent"])
def launches(request: pytest.FixtureRequest, region: Region, tmp_path: Path) -> Iterator[Launches]:
    """On a device that preempts."""
    slicing = request.param | {"waits_for_variant": 0}
    compiler = Compiler(tmp_path)
    environment = {"FAIRGV_SOFTGPU_COMPILER": compiler.command}
    with contextlib.closing(Host(SOFTGPU, environment, is_preemptive=True, shared=[tmp_path])) as host:
        yield Launches(Served(host, region, slicing=slicing), compiler)
        compiler.go_on()


def test_no_launch_waits_for_a_variant(launches: Launches) -> None:
    launches.launch_while_compiling()
    launches.count()
    assert launches.words() == expected(), "while it is compiled"
    reading = launches.reading()
    assert (reading.nr_launches, reading.nr_sliced, reading.whole) == (2, 0, {"being made": 2})
    launches.compiler.go_on()
    launches.clear()
    launches.launch_until_in_parts(COUNT, struct.pack("<QQ", launches.address, 0))
    assert launches.words() == expected()
    reading = launches.reading()
    assert (reading.nr_variants, list(reading.whole)) == (1, ["being made"])


def test_a_variant_that_cannot_be_compiled(launches: Launches) -> None:
    launches.launch_while_compiling()
    launches.compiler.go_on(fails=True)

    def is_known() -> bool:
        launches.count()
        launches.guest.ok("cuCtxSynchronize")
        return "not compiled" in launches.reading().whole

    wait_until(is_known, "it goes whole from now on")
    assert launches.words() == expected()
    assert launches.reading().nr_variants == 0


@pytest.mark.parametrize("in_compiler", [True, False], ids=["in the compiler", "before"])
def test_a_module_is_unloaded_while_a_variant_is_made(launches: Launches, *, in_compiler: bool) -> None:
    """The thread must not touch what is gone, and the next module gets a variant of its own."""
    if in_compiler:
        launches.launch_while_compiling()
    else:
        launches.count()
    launches.guest.ok("cuModuleUnload", hmod=MODULE)
    launches.compiler.go_on()
    launches.load()
    launches.launch_until_in_parts(COUNT, struct.pack("<QQ", launches.address, 0))
    assert launches.words() == expected()
    assert launches.reading().nr_variants == 1


def test_a_context_goes_while_a_variant_is_made(launches: Launches) -> None:
    launches.launch_while_compiling()
    launches.guest.ok("context_destroy", handle=PRIMARY)
    launches.guest.ok("context_create", context=0, handle=PRIMARY, is_primary=1)
    launches.compiler.go_on()
    launches.load()
    launches.address = launches.guest.ok("cuMemAlloc_v2", bytesize=4 * LARGE).dptr
    launches.clear()
    launches.launch_until_in_parts(COUNT, struct.pack("<QQ", launches.address, 0))
    assert launches.words() == expected()


def test_more_kernels_at_once_than_variants_are_made_at_a_time(launches: Launches) -> None:
    """Those for which there is no room go whole, and get one later."""
    nr = 20
    names = [f"k{number}" for number in range(nr)]
    texts = [PTX[: PTX.index(".visible .entry broken")]] + [
        f".visible .entry {name}(.param .u64 out) {{ .reg .b64 %rd<2>; ld.param.u64 %rd1, [out]; st.global.u32 [%rd1], 1; ret; }}"
        for name in names
    ]
    assert launches.guest.load(kernel_image("\n".join(texts)), handle=MODULE + 1, blob=9).result == 0
    for number, name in enumerate(names):
        fields: dict[str, Any] = {"module": MODULE + 1, "handle": FUNCTION + 10 + number, "name_bytes": len(name)}
        launches.guest.ok("cuModuleGetFunction", name.encode(), chunk=NO_CHUNK, **fields)
        launches.guest.launch(FUNCTION + 10 + number, struct.pack("<Q", launches.address), grid=NR_BLOCKS)
    launches.guest.ok("cuCtxSynchronize")
    for number in range(nr):
        launches.launch_until_in_parts(FUNCTION + 10 + number, struct.pack("<Q", launches.address))
    assert launches.reading().nr_variants == nr
