"""`make demo` as a user runs it: every verdict is PASS, and nothing stays behind, after Ctrl-C neither."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.demo.acts import STATE_PREFIX
from backend_host.demo.programs import PLANS
from backend_host.vm.region_file import SHARED_MEMORY_FOLDER, region_name, region_path
from tests.children import running
from tests.end_to_end.host import wait_until

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]

COMMAND = [sys.executable, "-m", "backend_host.demo", "--seconds", "3"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the demo keeps its files: a folder of its own, so that what it leaves is told from what others do at the same time."""
    with tempfile.TemporaryDirectory(prefix="demo-", dir="/tmp") as path:
        Path(path).chmod(0o755)  # its QEMU is another user's
        yield Path(path)


class Traces:
    """What one demo leaves. Other tests have regions and devices at the same time, so its own are told by their names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._earlier = self._devices()
        self._regions: set[Path] = set()

    def find_regions(self) -> int:
        """How many there have been up to now; the domains' files, which name them, are gone in the end."""
        for path in self._folder.glob("fairgv-vm-*/config/libvirt/qemu/*.xml"):
            with contextlib.suppress(OSError):  # it goes with its domain
                uuids = re.findall(r"<uuid>(\S+)</uuid>", path.read_text())
                self._regions.update(filter(Path.exists, map(region_path, map(region_name, uuids))))
        return len(self._regions)

    def assert_none(self) -> None:
        """Of files in its folder, processes that name it, devices and regions, in the end. AssertionError naming those that are there."""
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self._left(), "nothing is left")
        assert not self._left()

    def _left(self) -> list[str]:
        files = {*self._folder.iterdir(), *(self._devices() - self._earlier), *filter(Path.exists, self._regions)}
        return [*map(str, files), *self._processes()]

    def _devices(self) -> set[Path]:
        return set(SHARED_MEMORY_FOLDER.glob(f"{STATE_PREFIX}*"))

    def _processes(self) -> Iterator[str]:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                command = path.read_bytes()
                if bytes(self._folder) in command:
                    yield f"{path.parent.name}: {command!r}"


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder)}


def test_every_verdict_is_pass(folder: Path) -> None:
    traces, printed = Traces(folder), []
    with running(COMMAND, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            printed.append(line)
            nr_regions = traces.find_regions()
    answer = "".join(printed)
    assert demo.returncode == 0, answer
    assert nr_regions == len(PLANS)
    for plan in PLANS:
        for program in plan.programs:
            assert f"{plan.name}: {program}: PASS" in answer
            row = re.search(rf"{plan.name} *│ {re.escape(program)} *│ PASS *│ *(\d+) │ *(\d+) │ .* │ *\d+% │", answer)
            assert row is not None, answer
            assert 0 < int(row[2]) <= int(row[1])
        assert f"{plan.name}: endless: PASS" in answer
    for weights, dues in (("1:2", ("33.3%", "66.7%")), ("4:2", ("66.7%", "33.3%"))):
        found = re.search(
            rf"│ {weights}, \d+ s +│ vm-one +│ +(\S+)% │ +(\S+) │.*\n│ +│ vm-two +│ +(\S+)% │ +(\S+) │", answer
        )
        assert found is not None, answer
        assert (found[2], found[4]) == dues
        assert float(found[1]) + float(found[3]) == pytest.approx(100, abs=0.11)
        assert f"(due {dues[0]}), vm-two got" in answer
    assert "of what was due to it, the worse-off VM got" in " ".join(answer.split())
    traces.assert_none()


@pytest.mark.parametrize(
    ("line", "nr_regions"), [("a libvirtd of our own runs", 0), ("vm-two: defined", 2), ("vm-one got", 2)]
)
def test_interrupt_leaves_nothing(folder: Path, line: str, nr_regions: int) -> None:
    traces = Traces(folder)
    with running(COMMAND, env=environment(folder), stdout=subprocess.PIPE) as demo:
        assert demo.stdout is not None
        assert any(line in printed for printed in demo.stdout)
        assert traces.find_regions() == nr_regions
        assert any(folder.iterdir())
        demo.send_signal(signal.SIGINT)
        rest = demo.stdout.read()
    assert demo.returncode == 128 + signal.SIGINT, rest
    assert "everything is cleaned up" in rest
    traces.assert_none()


def test_it_leaves_nothing_when_it_is_killed_either(folder: Path) -> None:
    traces = Traces(folder)
    with running(COMMAND, env=environment(folder), stdout=subprocess.PIPE) as demo:
        assert demo.stdout is not None
        assert any("vm-two: defined" in printed for printed in demo.stdout)
        assert traces.find_regions() == len(PLANS)
        demo.kill()
    traces.assert_none()
