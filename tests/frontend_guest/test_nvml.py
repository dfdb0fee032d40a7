"""libnvidia-ml.so.1 by itself: every name is there, and what the facts say of the link is what tools are told."""

import inspect
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pynvml
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from ivshmem.region import HostState, Region, Wake
from tests.frontend_guest.conftest import REGION_BYTES, TABLE_HASH, device_facts, facts, guest_environment

NEWEST = 13
"""Of NVML: names of a newer one come with our next release."""
INVALID_ARGUMENT, NOT_SUPPORTED = 2, 3
ASKING = """
import ctypes, json
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device, value = ctypes.c_void_p(), ctypes.c_uint(77)
said = {"before": nvml.nvmlDeviceGetCurrPcieLinkWidth(device, ctypes.byref(value))}
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
for name in ("CurrPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkGeneration", "MaxPcieLinkWidth",
             "GpuMaxPcieLinkGeneration", "PcieSpeed", "PcieLinkMaxSpeed", "Architecture"):
    value.value = 77
    said[name] = [getattr(nvml, "nvmlDeviceGet" + name)(device, ctypes.byref(value)), value.value]
    said["no " + name] = getattr(nvml, "nvmlDeviceGet" + name)(device, None)
said["throughput"] = nvml.nvmlDeviceGetPcieThroughput(device, 0, ctypes.byref(value))
for name in ("nvmlUnitGetCount", "nvmlGetExcludedDeviceCount"):
    value.value = 77
    said[name] = [getattr(nvml, name)(ctypes.byref(value)), value.value]
print(json.dumps(said))
"""


@pytest.fixture
def linked() -> Iterator[Region]:
    """A region whose device has a link: at the moment of the third generation and 8 lanes, at most of the fifth and 16."""
    with Region.create(
        f"fairgv-test-{uuid.uuid4().hex}",
        REGION_BYTES,
        table_hash=TABLE_HASH,
        facts=facts("one").replace(device_facts("one"), device_facts("one")[:-4] + bytes((3, 8, 5, 16))),
        wake=Wake.FUTEX,
    ) as made:
        made.set_host_state(HostState.UP)
        yield made
        made.unlink()


def ask(region: Region, library: Path) -> dict[str, object]:
    environment = guest_environment(region, library)
    done = subprocess.run([sys.executable, "-c", ASKING], env=environment, capture_output=True, text=True, check=True)
    said: dict[str, object] = json.loads(done.stdout)
    return said


def test_the_link_is_what_the_facts_say(linked: Region, library: Path) -> None:
    said = ask(linked, library)
    assert said["before"] == 1
    assert said["CurrPcieLinkGeneration"] == [0, 3]
    assert said["CurrPcieLinkWidth"] == [0, 8]
    assert said["MaxPcieLinkGeneration"] == said["GpuMaxPcieLinkGeneration"] == said["PcieLinkMaxSpeed"] == [0, 5]
    assert said["MaxPcieLinkWidth"] == [0, 16]
    assert said["PcieSpeed"] == [0, 8000]
    assert said["Architecture"] == [0, 8]
    assert all(answer == INVALID_ARGUMENT for name, answer in said.items() if name.startswith("no "))
    assert said["throughput"] == NOT_SUPPORTED
    assert said["nvmlUnitGetCount"] == said["nvmlGetExcludedDeviceCount"] == [0, 0]


def test_a_link_that_nobody_knows_is_not_supported(region: Region, library: Path) -> None:
    said = ask(region, library)
    assert said["CurrPcieLinkGeneration"] == said["MaxPcieLinkWidth"] == said["PcieSpeed"] == [NOT_SUPPORTED, 77]


def test_every_name_is_there(library: Path) -> None:
    if int(version("nvidia-ml-py").partition(".")[0]) > NEWEST:
        pytest.skip("the Python package knows a newer NVML")
    with library.with_name("libnvidia-ml.so.1").open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(symbols, SymbolTableSection)
        there = {symbol.name for symbol in symbols.iter_symbols() if symbol.entry.st_shndx != "SHN_UNDEF"}
    looked_up = set(re.findall(r'_nvmlGetFunctionPointer\(\s*["\'](nvml\w+)', inspect.getsource(pynvml)))
    assert len(looked_up) > 300
    assert looked_up <= there
