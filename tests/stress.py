"""`make stress`: the tests of what is about time and processes, again and again beside busy processes, and which of them fail how often.

A test that fails once in fifty whole runs costs a day each time. Here it fails within minutes, or it does not, and a mend can be shown to be
one. Outputs of all rounds are kept in build/stress. Ctrl-C ends the round that runs, and the table of those before it, and of what that one had
run, is printed all the same. PYTEST_ADDOPTS is taken as ever: `-n 2` shares a round out, for example.
Wrong when: a test fails for what ran before it. All of a round run in one process, in the same order each time.
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.outcomes import Outcome, read

TESTS = (
    "tests/scheduler",
    "tests/backend_host",
    "tests/vm",
    *(f"tests/end_to_end/test_{name}.py" for name in ("fairness", "watchdog", "idle")),
)
NR_TIMES, NR_BUSY = 20, 2
END_SECONDS = 60
"""For a round that was interrupted to take down what it has set up."""
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    sum(range(1_000_000))"
"""It ends by itself when its parent is gone, however that ended."""


@contextlib.contextmanager
def busy_processes(nr: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(nr):
            child = stack.enter_context(subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())]))
            stack.callback(child.kill)
        yield


@dataclass
class Tally:
    """One test, over all rounds."""

    nr_runs: int = 0
    nr_failed: int = 0
    why: str = ""


@dataclass(frozen=True)
class Round:
    number: int
    folder: Path

    @property
    def output(self) -> Path:
        return self.folder / f"round-{self.number}.txt"

    @property
    def outcomes(self) -> Path:
        return self.folder / f"round-{self.number}.outcomes"

    def run(self, tests: Sequence[str]) -> tuple[int, list[Outcome] | None]:
        """Exit status of pytest, and what had happened when it was interrupted, if it was. It has a process group of its own: a terminal's
        Ctrl-C would reach it, too, and a second one, by us, would keep it from taking down what its tests have set up. What fails from then on
        may fail for that."""
        options = ("-p", "tests.outcomes", "--outcomes", str(self.outcomes), "-p", "no:cacheprovider", "-v")
        command = [sys.executable, "-m", "pytest", *options, "-m", "not gpu and not qemu and not package", *tests]
        with (
            self.output.open("w") as output,
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, process_group=0
            ) as child,
        ):
            try:
                return child.wait(), None
            except KeyboardInterrupt:
                until_then = list(read(self.outcomes))
                child.send_signal(signal.SIGINT)
                try:
                    return child.wait(END_SECONDS), until_then
                except (KeyboardInterrupt, subprocess.TimeoutExpired):
                    os.killpg(child.pid, signal.SIGKILL)
                    return child.wait(), until_then


def first_line(text: str) -> str:
    """What pytest tells first of an error, behind its source."""
    lines = text.splitlines() or [""]
    return next((line[1:].strip() for line in lines if line.startswith("E ")), lines[-1])


def failures(outcomes: Sequence[Outcome], crash: str) -> dict[str, str]:
    """Each test that ran to its end, or to that of the process, with why it failed, or nothing. `crash`: how the process ended by itself."""
    told: dict[str, str] = {}
    begun = ""
    for outcome in outcomes:
        if outcome.step == "begin":
            begun = outcome.test
        elif outcome.outcome == "failed":
            told[outcome.test] = told.get(outcome.test) or first_line(outcome.text)
        elif outcome.step == "call" and outcome.outcome == "passed":
            told.setdefault(outcome.test, "")
    if crash and not told.get(begun):
        told[begun] = crash
    return told


def count(tallies: dict[str, Tally], told: dict[str, str]) -> int:
    """How many failed."""
    for test, why in told.items():
        tally = tallies.setdefault(test, Tally())
        tally.nr_runs += 1
        tally.nr_failed += bool(why)
        tally.why = tally.why or why
    return sum(bool(why) for why in told.values())


def show(tallies: dict[str, Tally], console: Console) -> bool:
    """The table. False: nothing failed."""
    failed = sorted(
        (test for test, tally in tallies.items() if tally.nr_failed), key=lambda test: -tallies[test].nr_failed
    )
    if not failed:
        console.print(f"none of {len(tallies)} tests failed")
        return False
    table = Table()
    for head in ("test", "failed", "first line of the first failure"):
        table.add_column(head, overflow="fold")
    for test in failed:
        tally = tallies[test]
        table.add_row(test, f"{tally.nr_failed} of {tally.nr_runs}", tally.why)
    console.print(table, markup=False)
    return True


def run_rounds(tests: Sequence[str], nr_times: int, folder: Path, tallies: dict[str, Tally]) -> int:
    """An exit status: of the first round that was not run as it should, or 0."""
    for number in range(1, nr_times + 1):
        begun_s = time.monotonic()
        this = Round(number, folder)
        status, until_then = this.run(tests)
        is_crash = until_then is None and status not in set(pytest.ExitCode)
        outcomes = list(read(this.outcomes)) if until_then is None else until_then
        told = failures(outcomes, f"the process ended with status {status}" if is_crash else "")
        nr_failed = count(tallies, told)
        took_s = time.monotonic() - begun_s
        print(f"round {number} of {nr_times}: {len(told)} tests, {nr_failed} failed, {took_s:.0f} s", flush=True)
        if until_then is not None:
            return 128 + signal.SIGINT
        if not is_crash and status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            print(this.output.read_text())
            return status
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=NR_TIMES, help="rounds (default: %(default)s)")
    parser.add_argument(
        "--busy", type=int, default=NR_BUSY, help="processes that do nothing but work (default: %(default)s)"
    )
    parser.add_argument("tests", nargs="*", default=TESTS, help="what pytest is given")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT is ignored in a shell's background job
        signal.signal(number, signal.default_int_handler)
    folder = Path("build/stress")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tallies: dict[str, Tally] = {}
    try:
        with busy_processes(options.busy):
            status = run_rounds(options.tests or TESTS, options.times, folder, tallies)
    finally:
        has_failures = show(tallies, Console(width=None if sys.stdout.isatty() else 200))
    return status or int(has_failures)


if __name__ == "__main__":
    sys.exit(main())
