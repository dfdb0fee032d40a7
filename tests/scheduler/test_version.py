"""`--version` of every command."""

import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from scheduler.version import version_text

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {
    "fairgv-host": "backend_host.begin:host",
    "fairgv-run": "backend_host.begin:run",
    "fairgv-bench": "benchmarks.begin:bench",
    "fairgv-sim": "scheduler.simulator.begin:simulator",
}
MODULES = {
    "fairgv-host": "backend_host.cli",
    "fairgv-run": "backend_host.run",
    "fairgv-bench": "benchmarks.cli",
    "fairgv-sim": "scheduler.simulator.command",
}


@pytest.mark.parametrize("program", MODULES)
def test_each_command_tells_it(program: str) -> None:
    command = [sys.executable, "-m", MODULES[program], "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert ended.stdout == f"{version_text(program)}\n"
    assert ended.stderr == ""


def test_it_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert version_text("fairgv-x") == f"fairgv-x {project['version']}"
    assert set(MODULES) < set(project["scripts"])
    assert {program: project["scripts"][program] for program in MODULES} == SCRIPTS


def test_a_tree_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", version)
    assert version_text("fairgv-host") == "fairgv-host of a source tree that is not installed; make setup does that"
