"""`make test`'s second chance, on suites that are planted for it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAD = """
import os, pathlib, pytest

def runs(name):
    \"\"\"The how manieth this is, of all processes.\"\"\"
    path = pathlib.Path(__file__).with_name(name)
    path.write_text((path.read_text() if path.exists() else "") + "x")
    return len(path.read_text())

def test_good():
    pass
"""
FLAKY = """
def test_flaky():
    print("it says something")
    assert runs("flaky") == 2
"""
BROKEN = """
def test_broken():
    assert runs("broken") == 3
"""

PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist -p pytest_timeout"}
"""Those that are about it: another one takes longer to import than a planted suite runs."""


class Planted:
    """A suite in a folder of its own, run with the plugin. Processes of pytest-xdist cost seconds each; who is about them asks for them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "pytest.ini").write_text("[pytest]\ntimeout = 60\n")

    def run(self, source: str, *options: str) -> tuple[int, str]:
        """Exit status and what is printed."""
        (self.root / "test_planted.py").write_text(HEAD + source)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "tests.gate", "-p", "no:cacheprovider", "-q", *options],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(ROOT), **PLUGINS},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=240,
        )
        return done.returncode, done.stdout

    def kept(self) -> list[str]:
        return [path.read_text() for path in sorted((self.root / "build" / "flaky").glob("*"))]

    def nr_runs(self, name: str) -> int:
        return len((self.root / name).read_text())


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path)


def closing(output: str) -> str:
    """pytest's last line, without the time it took."""
    line = output.strip().splitlines()[-1]
    found = re.fullmatch(r"=* ?(.*) in [\d.]+s(?: \(.*\))? ?=*", line)
    assert found, output
    return found[1]


def test_a_run_without_failures_is_as_ever(planted: Planted) -> None:
    status, output = planted.run("")
    assert (status, closing(output)) == (0, "1 passed")
    assert "flaky" not in output
    assert planted.kept() == []


def test_who_passes_alone_is_told_as_flaky_and_the_run_passes(planted: Planted) -> None:
    status, output = planted.run(FLAKY, "-n", "2")
    assert (status, closing(output)) == (0, "2 passed, 1 flaky")
    told = output.partition("= flaky =")[2]
    assert "FLAKY test_planted.py::test_flaky" in told
    assert re.search(r"^E .*assert 1 == 2$", told, re.MULTILINE)
    assert "FAILURES" not in output
    (kept,) = planted.kept()
    name, first, second = re.split(r"\n\n=== .* ===\n", kept)
    assert name == "test_planted.py::test_flaky"
    assert "assert 1 == 2" in first
    assert "it says something" in first
    assert closing(second) == "1 passed"


def test_what_is_kept_is_of_the_latest_run(planted: Planted) -> None:
    planted.run(FLAKY)
    planted.run("")
    assert planted.kept() == []


def test_who_fails_twice_fails_the_run_and_both_outputs_are_told(planted: Planted) -> None:
    status, output = planted.run(BROKEN + FLAKY)
    assert (status, closing(output)) == (1, "1 failed, 2 passed, 1 flaky")
    assert "assert 1 == 3" in output
    assert "assert 2 == 3" in output.partition("the second time, alone")[2]
    assert len(planted.kept()) == 1
    assert planted.nr_runs("broken") == 2


@pytest.mark.parametrize(
    ("nr_failures", "status", "closed"), [(3, 0, "4 passed, 3 flaky"), (4, 1, "4 failed, 1 passed")]
)
def test_a_fourth_failure_fails_the_run_at_once(planted: Planted, nr_failures: int, status: int, closed: str) -> None:
    source = f"""
@pytest.mark.parametrize("number", range({nr_failures}))
def test_one(number):
    assert runs(f"run{{number}}") == 2
"""
    got, output = planted.run(source)
    assert (got, closing(output)) == (status, closed)
    assert planted.nr_runs("run0") == (2 if status == 0 else 1)


@pytest.mark.parametrize(("good_run", "status", "closed"), [(2, 0, "7 passed, 6 flaky"), (9, 1, "1 passed, 6 errors")])
def test_a_fixture_of_many_that_fails_is_one_failure(planted: Planted, good_run: int, status: int, closed: str) -> None:
    """Two of them: six tests."""
    source = f"""
@pytest.fixture(scope="module")
def one():
    assert runs("one") >= {good_run}

@pytest.fixture(scope="module")
def two():
    assert runs("two") >= {good_run}

@pytest.mark.parametrize("number", range(3))
def test_one(number, one):
    pass

@pytest.mark.parametrize("number", range(3))
def test_two(number, two):
    pass
"""
    got, output = planted.run(source)
    assert (got, closing(output)) == (status, closed)


def test_a_fourth_is_no_fourth_test_for_an_error_in_its_teardown(planted: Planted) -> None:
    source = """
@pytest.fixture
def thing():
    yield
    assert runs("torn") == 2

def test_twice_wrong(thing):
    assert runs("called") == 2
"""
    status, output = planted.run(source + FLAKY + BROKEN)
    assert (status, closing(output)) == (1, "1 failed, 3 passed, 2 flaky")


@pytest.mark.parametrize("step", ["setup", "teardown"])
@pytest.mark.parametrize("is_mended", [True, False])
def test_an_error_in_a_fixture_is_a_failure_of_its_test(planted: Planted, step: str, is_mended: bool) -> None:
    good_run = 2 if is_mended else 3
    source = f"""
@pytest.fixture
def thing():
    assert "{step}" == "teardown" or runs("thing") == {good_run}
    yield
    assert "{step}" == "setup" or runs("thing") == {good_run}

def test_thing(thing):
    pass
"""
    status, output = planted.run(source)
    nr_passed = 1 if step == "setup" else 2
    assert (status, closing(output)) == ((0, "2 passed, 1 flaky") if is_mended else (1, f"{nr_passed} passed, 1 error"))


@pytest.mark.parametrize(("good_run", "status", "closed"), [(2, 0, "2 passed, 1 flaky"), (3, 1, "1 failed, 1 passed")])
def test_a_crash_of_a_process_is_a_failure_of_the_test_that_ran(
    planted: Planted, good_run: int, status: int, closed: str
) -> None:
    source = f"""
def test_crash():
    if runs("crash") != {good_run}:
        os.abort()
"""
    got, output = planted.run(source, "-n", "1")
    assert (got, closing(output)) == (status, closed)
    assert len(planted.kept()) == (status == 0)


@pytest.mark.parametrize("way", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGSEGV)"])
def test_a_crash_costs_no_test_but_the_one_that_ran(planted: Planted, way: str) -> None:
    """Once for each time that it runs, beside files that are done, begun and still to come."""
    crash = f"""
import os, pathlib, signal

def test_before():
    pass

def test_crash():
    with pathlib.Path(__file__).with_name("crash").open("a") as file:
        file.write("x")
    {way}

def test_behind():
    pass
"""
    for number in range(5):
        (planted.root / f"test_file{number}.py").write_text(crash if number == 3 else "def test_one():\n    pass\n")
    status, output = planted.run("", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
    assert (status, closing(output)) == (1, "1 failed, 7 passed")
    assert "crashed while running 'test_file3.py::test_crash'" in output
    assert "the second time, alone" in output
    assert planted.nr_runs("crash") == 2


def test_who_is_skipped_the_second_time_has_not_passed(planted: Planted) -> None:
    source = """
def test_once():
    if runs("once") == 2:
        pytest.skip("no more")
    assert False
"""
    status, output = planted.run(source)
    assert (status, closing(output)) == (1, "1 failed, 1 passed")


@pytest.mark.parametrize("options", [("-x", "-n", "1"), ("-x",)])
def test_a_run_that_was_not_whole_cannot_pass(planted: Planted, options: tuple[str, ...]) -> None:
    status, _ = planted.run(FLAKY, *options)
    assert status != 0
    assert planted.nr_runs("flaky") == 1


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_a_file_that_cannot_be_read_fails_the_run(planted: Planted, options: tuple[str, ...]) -> None:
    (planted.root / "test_unreadable.py").write_text("import nothing_of_that_name\n")
    status, output = planted.run(FLAKY, *options)
    assert status != 0
    assert "1 error" in closing(output)
    assert planted.kept() == []


def test_no_test_at_all_is_no_pass(planted: Planted) -> None:
    status, output = planted.run("", "-k", "nothing_of_that_name")
    assert (status, closing(output)) == (pytest.ExitCode.NO_TESTS_COLLECTED, "1 deselected")
