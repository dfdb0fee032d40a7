"""A plugin of pytest that writes each test's outcome into a file while the run goes on: `-p tests.outcomes --outcomes FILE`.

A line is written when a test begins and one for each of its reports, so that the file is right after a crash of the process and after Ctrl-C
too: what began last and has no report is what was going on. JUnit's XML is written at the end only, and its names are not node ids.
Wrong when: a process is killed in the middle of a line, which is then left out.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Outcome:
    """Of one step of a test: "begin", then "setup", "call" and "teardown", or "???" where a worker of pytest-xdist crashed."""

    test: str
    step: str
    outcome: str = ""
    """"passed", "failed", "skipped", or nothing."""
    text: str = ""
    """Why it failed, as pytest tells it."""


class Writer:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)

    def _write(self, outcome: Outcome) -> None:
        self._file.write(json.dumps(asdict(outcome)) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(Outcome(nodeid, "begin"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._write(
            Outcome(report.nodeid, report.when or "", report.outcome, report.longreprtext if report.failed else "")
        )

    def pytest_unconfigure(self) -> None:
        self._file.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, help="a file for the outcome of each test")


def pytest_configure(config: pytest.Config) -> None:
    """Of pytest-xdist's processes the first alone hears of all tests."""
    path = config.getoption("outcomes")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Writer(path), "outcomes-writer")


def read(path: Path) -> Iterator[Outcome]:
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    for line in whole.splitlines():
        yield Outcome(**json.loads(line))
