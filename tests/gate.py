"""A plugin of pytest for `make test`: what failed runs once more, alone, and who passes then is told as flaky: `-p tests.gate`.

On a machine that others load as well, one test of two thousand may fail for the moment at which it ran. A run that is red for that is soon
not looked at; one that tries everything again hides what is broken. So at most three failures run again, each test in a process of its own,
after the run has ended and with nothing beside it; tests that share a fixture which fails are one failure. Who fails twice fails the run, and
so does a fourth. The closing line is pytest's own, and says it: "9 passed, 1 flaky".

pytest-rerunfailures tries again at once, in the same process and beside all others, and a crashed one not at all; `--lf` in a second run
closes with that run's numbers, and passes where the first was not whole. Hence this.
A process of pytest-xdist that dies during a test is a failure of that test, and the others go on.
Wrong when: a run was ended early (-x, Ctrl-C, an error while tests were collected), after which nothing runs again and it fails as it would
have; and `--junitxml` tells the first outcomes.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.outcomes import read

NR_AGAIN = 3
"""As many failures may run again. More at once are no accident, and each can take its whole time limit."""

NR_LINES = 10
"""Of what a flaky test failed with."""


@dataclass(frozen=True)
class Again:
    """The second run of one test."""

    is_passed: bool
    output: str


def run_alone(test: str, root: Path) -> Again:
    """In a process of its own, with the options of the environment."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outcomes"
        options = ("-p", "tests.outcomes", "--outcomes", str(path), "-n", "0", "-rA")
        command = [sys.executable, "-m", "pytest", *options, test]
        done = subprocess.run(
            command,
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        is_run = any(outcome.step == "call" and outcome.outcome == "passed" for outcome in read(path))
    return Again(is_run and not done.returncode, done.stdout)


def first_output(reports: list[pytest.TestReport]) -> str:
    sections = [f"--- {name} ---\n{text}" for name, text in reports[-1].sections]
    return "\n".join([*(report.longreprtext for report in reports), *sections])


def why(reports: list[pytest.TestReport]) -> list[str]:
    """The lines that pytest marks: the run may be the only trace of a machine that is gone."""
    lines = [line for report in reports for line in report.longreprtext.splitlines()]
    return [line for line in lines if line.startswith("E ")][:NR_LINES]


def nr_failures(failed: dict[str, list[pytest.TestReport]]) -> int:
    """How many things failed: a fixture of several tests that fails does so once, and pytest tells it of each."""
    return len({cause_of(reports[0]) for reports in failed.values()})


def cause_of(report: pytest.TestReport) -> tuple[str, str]:
    """The test, or of a fixture its file and what went wrong."""
    return (report.location[0], report.longreprtext) if report.when == "setup" else (report.nodeid, "")


class ByFile(LoadFileScheduling):  # type: ignore[misc] # its types are told to nobody
    """
    Of `--dist loadfile`: what a process that died has left to do goes to others, less the test that it was at. pytest-xdist 3.8 hands that
    one out again, so that it ends the next process, too, and files that are done as well, behind which a process waits for ever.
    """

    def remove_node(self, node: WorkerController) -> str | None:
        """The test during which the process died, if it died."""
        for scope, unit in list(self.assigned_work[node].items()):
            if all(unit.values()):
                del self.assigned_work[node][scope]
        units: list[dict[str, bool]] = list(self.assigned_work[node].values())
        left = [(unit, test) for unit in units for test, is_done in unit.items() if not is_done]
        if not left:
            super().remove_node(node)
            return None
        unit, test = left[0]
        unit[test] = True
        super().remove_node(node)
        return test

    def schedule(self) -> None:
        """Gives two files to a process that comes late as well: it begins no test before it knows of the next one."""
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)


class Gate:
    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath
        self._folder = config.rootpath / "build" / "flaky"
        self._flaky: dict[str, Path] = {}
        self._why: dict[str, list[str]] = {}
        shutil.rmtree(self._folder, ignore_errors=True)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
        return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """After pytest-xdist has ended its processes, and before the terminal tells the whole."""
        terminal: pytest.TerminalReporter | None = session.config.pluginmanager.get_plugin("terminalreporter")
        is_whole = not session.shouldfail and not session.shouldstop
        if exitstatus != pytest.ExitCode.TESTS_FAILED or not is_whole or not terminal:
            return
        failed: dict[str, list[pytest.TestReport]] = {}
        for report in (*terminal.stats.get("failed", []), *terminal.stats.get("error", [])):
            if not isinstance(report, pytest.TestReport):
                return  # a file that could not be read: how many tests it has is not known
            failed.setdefault(report.nodeid, []).append(report)
        terminal.ensure_newline()
        if nr_failures(failed) > NR_AGAIN:
            terminal.write_line(f"{len(failed)} tests failed; of more than {NR_AGAIN} failures none runs again")
            return
        for test, reports in failed.items():
            terminal.write_line(f"once more, alone: {test}")
            terminal.flush()  # if it hangs, this is the last line
            self._try_again(test, reports, terminal)
        if len(self._flaky) == len(failed):
            session.exitstatus = pytest.ExitCode.OK

    def _try_again(self, test: str, reports: list[pytest.TestReport], terminal: pytest.TerminalReporter) -> None:
        again = run_alone(test, self._root)
        if not again.is_passed:
            reports[-1].sections.append(("the second time, alone", again.output))
            return
        self._flaky[test] = self._keep(test, first_output(reports), again.output)
        self._why[test] = why(reports)
        stats = terminal.stats
        for kind in ("failed", "error"):
            stats[kind] = [report for report in stats.get(kind, []) if report.nodeid != test]
            if not stats[kind]:
                del stats[kind]
        passed = stats.setdefault("passed", [])
        if all(report.nodeid != test for report in passed):  # it may have failed in its teardown only
            passed.append(reports[-1])
        stats.setdefault("flaky", []).append(reports[-1])

    def _keep(self, test: str, first: str, second: str) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^\w.-]+", "_", test)[-100:]
        path = self._folder / f"{len(self._flaky) + 1}-{name}.txt"
        path.write_text(f"{test}\n\n=== the first time: failed ===\n{first}\n\n=== alone: passed ===\n{second}")
        return path

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._flaky:
            terminalreporter.section("flaky")
        for test, path in self._flaky.items():
            terminalreporter.write_line(f"FLAKY {test}: failed, then passed alone; {path.relative_to(self._root)}")
            for line in self._why[test]:
                terminalreporter.write_line(line)


def pytest_configure(config: pytest.Config) -> None:
    """Of pytest-xdist's processes the first alone hears of all tests."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Gate(config), "gate")
