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

from backend_host.demo import PLANS
from backend_host.vm.region_file import SHARED_MEMORY_FOLDER
from tests.children import running
from tests.end_to_end.host import wait_until

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]

COMMAND = [sys.executable, "-m", "backend_host.demo"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the demo keeps its files: a folder of its own, so that what it leaves is told from what others do at the same time."""
    with tempfile.TemporaryDirectory(prefix="demo-", dir="/tmp") as path:
        Path(path).chmod(0o755)  # its QEMU is another user's
        yield Path(path)


def mapped() -> set[str]:
    """Regions of somebody who lives."""
    names: set[str] = set()
    for path in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            names.update(re.findall(rf"{SHARED_MEMORY_FOLDER}/(fairgv-\S+)", path.read_text("utf-8", "replace")))
    return names


def traces(folder: Path) -> set[str]:
    """What the demo could leave: files in its folder, processes that name it, regions that nobody uses. Other tests have regions, too."""
    found = {path.name for path in SHARED_MEMORY_FOLDER.glob("fairgv-*")}
    regions = {name for name in found - mapped() if not name.startswith("fairgv-softgpu.")}
    processes = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if bytes(folder) in path.read_bytes():
                processes.append(path.parent.name)
        except OSError:
            continue
    return {*map(str, folder.iterdir()), *regions, *processes}


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder)}


def test_every_verdict_is_pass(folder: Path) -> None:
    before = traces(folder)
    answer = subprocess.run(COMMAND, env=environment(folder), capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    for plan in PLANS:
        for program in plan.programs:
            assert f"{plan.name}: {program}: PASS" in answer.stdout
            row = re.search(
                rf"{plan.name} *│ {re.escape(program)} *│ PASS *│ *(\d+) │ *(\d+) │ .* │ *\d+% │", answer.stdout
            )
            assert row is not None, answer.stdout
            assert 0 < int(row[2]) <= int(row[1])
    wait_until(lambda: traces(folder) <= before, "what the demo started has ended, and its files are gone")


@pytest.mark.parametrize("line", ["a libvirtd of our own runs", "vm-two: defined", "vm-one: booted"])
def test_interrupt_leaves_nothing(folder: Path, line: str) -> None:
    before = traces(folder)
    with running(COMMAND, env=environment(folder), stdout=subprocess.PIPE) as demo:
        assert demo.stdout is not None
        assert any(line in printed for printed in demo.stdout)
        assert any(folder.iterdir())
        demo.send_signal(signal.SIGINT)
        rest = demo.stdout.read()
    assert demo.returncode == 128 + signal.SIGINT, rest
    assert "everything is cleaned up" in rest
    wait_until(lambda: traces(folder) <= before, "what the demo started has ended, and its files are gone")
