"""`make stress`, on suites that are planted for it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.children import is_there, running
from tests.end_to_end.host import wait_until
from tests.test_gate import PLUGINS

ROOT = Path(__file__).resolve().parents[1]
HEAD = """
import os, pathlib, pytest, time

def runs(name):
    path = pathlib.Path(__file__).with_name(name)
    path.write_text((path.read_text() if path.exists() else "") + "x")
    return len(path.read_text())

def test_good():
    pass
"""


class Stressed:
    """A suite in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.command = [sys.executable, "-m", "tests.stress", "--busy", "1"]
        self.options = {
            "cwd": root,
            "env": {**os.environ, "PYTHONPATH": str(ROOT), **PLUGINS},
            "stdout": subprocess.PIPE,
        }
        (root / "pytest.ini").write_text("[pytest]\nmarkers = \n    gpu\n    qemu\n")

    def write(self, source: str) -> None:
        (self.root / "test_planted.py").write_text(HEAD + source)

    def run(self, source: str, times: int) -> tuple[int, str]:
        self.write(source)
        with running([*self.command, "--times", str(times), "test_planted.py"], **self.options) as child:
            return self.end_of(child)

    @staticmethod
    def end_of(child: subprocess.Popen[str]) -> tuple[int, str]:
        output = child.communicate()[0]
        return child.returncode, output


@pytest.fixture
def stressed(tmp_path: Path) -> Stressed:
    return Stressed(tmp_path)


def row(output: str, test: str) -> str | None:
    """What the table says of a test, and why."""
    found = re.search(rf"{test} *│ (\d+ of \d+) *│ (.*?) *│", output)
    return f"{found[1]}: {found[2]}" if found else None


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_who_fails_how_often(stressed: Stressed) -> None:
    source = """
@pytest.fixture
def torn():
    yield
    assert runs("torn") != 3, "torn down badly"

def test_once():
    assert runs("once") != 2, "not the second time"

def test_torn(torn):
    pass
"""
    status, output = stressed.run(source, 3)
    assert status == 1
    assert row(output, "test_planted.py::test_once") == "1 of 3: AssertionError: not the second time"
    assert row(output, "test_planted.py::test_torn") == "1 of 3: AssertionError: torn down badly"
    assert row(output, "test_planted.py::test_good") is None
    assert "not the second time" in (stressed.root / "build/stress/round-2.txt").read_text()


def test_a_process_that_crashes_is_told_and_the_next_round_runs(stressed: Stressed) -> None:
    status, output = stressed.run("def test_crash():\n    if runs('crash') == 1:\n        os.abort()\n", 2)
    assert status == 1
    assert row(output, "test_planted.py::test_crash") == "1 of 2: the process ended with status -6"


def test_none_that_fails(stressed: Stressed) -> None:
    status, output = stressed.run("", 2)
    assert status == 0
    assert output.splitlines()[-1] == "none of 1 tests failed"


def test_tests_that_cannot_be_read(stressed: Stressed) -> None:
    status, output = stressed.run("import nothing_of_that_name\n", 2)
    assert status == pytest.ExitCode.INTERRUPTED
    assert "nothing_of_that_name" in output
    assert "round 2" not in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_interrupted_tells_what_it_has(stressed: Stressed, number: int) -> None:
    stressed.write("""
def test_bad():
    assert False, "always"

@pytest.fixture
def thing():
    yield
    runs("taken_down")

def test_long(thing):
    if runs("long") == 2:
        try:
            time.sleep(600)
        except KeyboardInterrupt:
            assert False, "of no interest: it was interrupted"
""")
    with running([*stressed.command, "--times", "3", "test_planted.py"], **stressed.options) as child:
        long = stressed.root / "long"
        wait_until(lambda: long.exists() and long.read_text() == "xx", "the second round is at it")
        children = children_of(child.pid)
        child.send_signal(number)
        status, output = stressed.end_of(child)
    assert status == 128 + signal.SIGINT
    assert row(output, "test_planted.py::test_bad") == "2 of 2: AssertionError: always"
    assert row(output, "test_planted.py::test_long") is None
    assert (stressed.root / "taken_down").read_text() == "xx"
    assert len(children) == 2
    assert not any(is_there(pid) for pid in children)


def test_busy_processes_end_with_who_was_killed(stressed: Stressed) -> None:
    stressed.write("""
def test_long():
    parent = os.getppid()
    runs("long")
    while os.getppid() == parent:
        time.sleep(0.01)
""")
    with running([*stressed.command, "test_planted.py"], **stressed.options) as child:
        wait_until((stressed.root / "long").exists, "a round is at it")
        children = children_of(child.pid)
        child.kill()
        child.communicate()
    wait_until(lambda: not any(is_there(pid) for pid in children), "all have ended")
