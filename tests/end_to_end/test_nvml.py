"""libnvidia-ml.so.1 of guests: what it says agrees with libcuda.so.1, and a vGPU sees itself alone."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

from backend_host.config import PACKAGE_ROOT
from tests.end_to_end.host import Host, wait_until

PROGRAM = Path(__file__).parent / "nvml_program.py"
LIBRARY = PACKAGE_ROOT / "build/guest/libnvidia-ml.so.1"
UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, INSUFFICIENT_SIZE, VERSION_MISMATCH = 1, 2, 3, 7, 25
QUOTA = 64 << 20


class Guest:
    """The program, asked line by line."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.child = child
        self.identity = self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.child.stdout is not None and self.child.stderr is not None
        line = self.child.stdout.readline()
        assert line, self.child.stderr.read()
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, what: str = "") -> dict[str, Any]:
        assert self.child.stdin is not None
        self.child.stdin.write(what + "\n")
        self.child.stdin.flush()
        return self._answer()


@contextmanager
def guest(host: Host, *options: str) -> Iterator[Guest]:
    command = [sys.executable, "-m", "backend_host.run", "--state-dir", str(host.state_dir), *options]
    child = subprocess.Popen(
        [*command, "--", sys.executable, str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Guest(child)
        output, errors = child.communicate(timeout=60)
        assert (child.returncode, output) == (0, ""), errors
    finally:
        child.kill()
        child.communicate()


def test_it_agrees_with_cuda(host: Host) -> None:
    with guest(host, "--memory", "64M") as program:
        said = program.identity
        assert said["before"] == UNINITIALIZED
        assert said["name"] == said["cuda_name"] != ""
        assert said["uuid"].removeprefix("GPU-").replace("-", "") == said["cuda_uuid"]
        assert said["pci"].lower().endswith(said["cuda_pci"].lower())
        assert said["capability"] == said["cuda_capability"]
        assert said["cuda_version"][0] == said["cuda_version"][1]
        assert all(said["versions"])
        assert said["same_handles"]
        assert said["mig"] == [0, 0]
        assert said["peer"] == [[0, 5], [0, 5], [INVALID_ARGUMENT, 5]]
        assert said["no_status"] == INVALID_ARGUMENT
        assert said["small"] == INSUFFICIENT_SIZE
        assert said["temperature"] == NOT_SUPPORTED
        assert (said["no_device"], said["bad_handle"]) == (INVALID_ARGUMENT, INVALID_ARGUMENT)
        use = program.ask("alloc 8388608")
        assert use["memory"] == use["memory2"] == use["cuda_memory"]
        assert use["memory"][0] == QUOTA
        assert use["memory"][2] >= 8 << 20
        assert use["wrong_version"] == VERSION_MISMATCH
        assert use["processes"] == {str(use["pid"]): use["memory"][2]}
        more = program.ask("alloc 1048576")
        assert more["memory"] == more["cuda_memory"]
        assert more["memory"][2] > use["memory"][2]


def test_two_vgpus_see_themselves_alone(host: Host) -> None:
    with guest(host, "--memory", "64M") as one, guest(host, "--memory", "32M", "--vgpu", "shared") as other:
        of_one, of_other = one.ask("alloc 4194304"), other.ask("alloc 1048576")
        assert set(of_one["processes"]) == {str(of_one["pid"])}
        assert set(of_other["processes"]) == {str(of_other["pid"])}
        assert (of_one["memory"][0], of_other["memory"][0]) == (QUOTA, QUOTA // 2)
        assert one.ask()["memory"] == of_one["memory"]
        with guest(host, "--vgpu", "shared") as third:
            of_third = third.ask("alloc 2097152")
            assert set(of_third["processes"]) == {str(of_other["pid"]), str(of_third["pid"])}
            assert of_third["memory"] == other.ask()["memory"] == of_third["cuda_memory"]
        wait_until(lambda: other.ask()["memory"] == of_other["memory"], "the third has gone with its memory")


def test_utilization_is_what_the_vgpu_is_charged(host: Host) -> None:
    with guest(host, "--memory", "64M") as busy, guest(host) as idle:
        busy.ask("alloc 1048576")
        wait_until(lambda: busy.ask("work")["utilization"] > 0, "the last second shows in the utilization")
        assert busy.ask()["utilization"] <= 100
        assert idle.ask()["utilization"] == 0
        wait_until(lambda: busy.ask()["utilization"] == 0, "a second without work has passed")


def test_without_a_region() -> None:
    text = f"import ctypes; print(ctypes.CDLL({str(LIBRARY)!r}).nvmlInit_v2())"
    done = subprocess.run(
        [sys.executable, "-c", text], env={"FAIRGV_REGION": "/nowhere"}, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("9\n", "")


def test_needs_libc_alone_and_shows_nvml_alone() -> None:
    with LIBRARY.open("rb") as file:
        elf = ELFFile(file)
        dynamic, symbols = elf.get_section_by_name(".dynamic"), elf.get_section_by_name(".dynsym")
        versions = elf.get_section_by_name(".gnu.version_r")
        assert isinstance(dynamic, DynamicSection)
        assert isinstance(symbols, SymbolTableSection)
        assert isinstance(versions, GNUVerNeedSection)
        needed = {str(vars(tag)["needed"]) for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"}
        shown = {symbol.name for symbol in symbols.iter_symbols() if symbol.entry.st_shndx != "SHN_UNDEF"}
        names = [aux.name for _, found in versions.iter_versions() for aux in found]
    assert needed <= {"libc.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2"}
    assert all(tuple(map(int, name.removeprefix("GLIBC_").split(".")[:2])) <= (2, 28) for name in names)
    assert all(name.startswith("nvml") for name in shown)
    assert shown >= {"nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetNvLinkRemoteDeviceType"}, "looked up by name"
