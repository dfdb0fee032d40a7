"""`fairgv-bench` as people meet it: help, refusals, an interrupt, several experiments in a row."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.config import PACKAGE_ROOT
from backend_host.space.mps import CONTROL
from benchmarks.cli import main
from benchmarks.document import check_writable
from benchmarks.errors import NotMeasurableError
from benchmarks.experiments import EXPERIMENTS
from benchmarks.mps import mps_server
from benchmarks.suite import SUITES, Entry, Suite
from tests.children import running
from tests.end_to_end.host import wait_until

LIMIT_S = 120
INTERRUPTED = """
import os, signal
from backend_host.vm.interrupts import InterruptedBySignalError, raised_signals
from benchmarks.guests.process import ProcessRunning
os.register_at_fork(after_in_parent=lambda: signal.raise_signal(signal.SIGINT))
try:
    with raised_signals():
        ProcessRunning(["/bin/true"], os.environ, "true")
except InterruptedBySignalError:
    print("interrupted")
"""


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert "--repetitions" in capsys.readouterr().out


def test_the_help_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in (*EXPERIMENTS, "suite"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["slicing", "--device", "soft", "--guests", "vm"], "slicing measures guests that are processes"),
        (["accounting", "--device", "soft", "--guests", "vm"], "accounting measures guests that are processes"),
        (["work-conserving", "--device", "soft", "--sleep-percent", "100"], "from 0 to below 100"),
        (["run", "--device", "soft", "--dir", "/nowhere"], "/nowhere is no folder"),
        (["mmr", "--device", "cuda"], "--device cuda: no driver here"),
        (["mmr", "--device", "soft", "--slice-ms", "0.1"], "slice_ms must be 0, for the device's own, or from 1 to"),
        (["suite", "quick", "--output", "/dev/null/x"], "cannot write to /dev/null/x: "),
    ],
)
def test_refusals_say_why(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.devices._reason_against_cuda", lambda: "no driver here")
    assert main(words) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("fairgv-bench: ")
    assert sentence in printed.err


def test_a_folder_without_programs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--device", "soft", "--dir", str(tmp_path)]) == 1
    assert "neither a .cu file nor a folder with a Makefile" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["decisions", "--device", "soft", "--json", str(tmp_path / "file" / "found.json")]) == 1
    printed = capsys.readouterr()
    assert "cannot write" in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("option", "name", "told"),
    [
        ("--json", "file/found.json", "cannot write"),
        ("--json", "folder", "Is a directory"),
        ("--plot", "file/found.png", "cannot write"),
        ("--plot", "folder.png", "Is a directory"),
        ("--plot", "found.word", "names that end in .png"),
        ("--plot", "found", "names that end in .png"),
    ],
)
def test_outputs_are_tried_before_anything_else(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    name: str,
    told: str,
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("nothing was to be looked at yet")

    monkeypatch.setattr("benchmarks.experiment.choose_device", fail)
    (tmp_path / "file").write_text("")
    for folder in ("folder", "folder.png"):
        (tmp_path / folder).mkdir()
    assert main(["decisions", "--device", "soft", option, str(tmp_path / name)]) == 1
    assert told in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "folder.png"]


def test_what_is_tried_leaves_what_was_there(tmp_path: Path) -> None:
    kept = tmp_path / "found.json"
    kept.write_text("of before")
    check_writable(kept)
    check_writable(tmp_path / "new" / "found.json")
    assert kept.read_text() == "of before"
    assert list((tmp_path / "new").iterdir()) == []


def test_softgpu_that_is_not_built_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.devices.SOFTGPU", tmp_path)
    assert main(["mmr", "--device", "soft", "--program", "spin"]) == 1
    assert "is not built; run make build" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["mmr", "--policy", "lottery"], "there is no policy lottery; there are credit-hs"),
        (
            ["mmr", "--policy", "fair,strict"],
            "strict is a policy of the simulator only: see fairgv-sim --policy strict",
        ),
        (["mmr", "--program", "doom"], "there is no program doom; there are BFS, BlackScholes"),
        (["mmr", "--weights", "0:1"], "whole numbers above 0"),
        (["mmr", "--weights", "1:10001"], "whole numbers above 0, 10000 at most, with colons between, not '1:10001'"),
        (["mmr", "--weights", "1:x"], "whole numbers above 0, 10000 at most, with colons between, not '1:x'"),
        (["mmr", "--kernel-us", "5,-1"], "-1 is not above 0"),
        (["mmr", "--queue", "0.5"], "0.5 is not a whole number above 0"),
        (["mmr", "--sleep-us", "nan"], "nan is not above 0"),
        (["mixed", "--background-us", ""], "'' is no number"),
        (["balancing", "--arrivals", "7,0"], "0 is not above 0"),
        (["run", "--dir", ""], "a path, and not nothing"),
        (["mmr", "--json", ""], "a path, and not nothing"),
        (["suite", "quick", "--minutes", "x"], "'x' is no number"),
        (["overhead", "--parts", "all"], "there is no all; there are programs, sizes"),
        (["mixed", "--seconds", "0"], "0 is not above 0"),
        (["mixed", "--repetitions", "0"], "not a whole number above 0"),
    ],
)
def test_a_wrong_command_line_is_refused(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A control program that notes what it is told, in place of MPS's; and a client that comes to its end."""
    program, notes = tmp_path / CONTROL, tmp_path / "notes"
    program.write_text(f'#!/bin/sh\necho "$@" $(cat) >> {notes}\ntest -d "$CUDA_MPS_PIPE_DIRECTORY"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("benchmarks.mps.build", lambda _name: Path("/bin/true"))
    yield notes


def test_mps_is_started_and_told_to_quit(control: Path) -> None:
    with mps_server("cuda") as environment:
        assert Path(environment["CUDA_MPS_PIPE_DIRECTORY"]).is_dir()
        assert control.read_text() == "-d\n"
    assert control.read_text() == "-d\nquit -t 1\n"


def test_mps_that_serves_nobody_is_refused_and_told_to_quit(control: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.mps.build", lambda _name: Path("/bin/false"))
    with pytest.raises(NotMeasurableError, match="MPS serves nobody: exit status 1"), mps_server("cuda"):
        pass
    assert control.read_text() == "-d\nquit -t 1\n"


WITH_MPS = """
import sys
from pathlib import Path
from benchmarks import mps
mps.build = lambda _name: Path("/bin/true")
with mps.mps_server("cuda") as environment:
    print(environment["CUDA_MPS_PIPE_DIRECTORY"], flush=True)
    sys.stdin.read()
"""


def test_mps_is_told_to_quit_where_who_started_it_is_killed(control: Path) -> None:
    with running([sys.executable, "-c", WITH_MPS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as benchmark:
        assert benchmark.stdout is not None
        folder = Path(benchmark.stdout.readline().strip()).parent
        assert folder.is_dir()
        benchmark.kill()
    wait_until(lambda: not folder.exists(), "its folder is gone")
    assert control.read_text() == "-d\nquit -t 1\n"


def test_mps_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotMeasurableError, match=f"there is no {CONTROL} on this machine"), mps_server("cuda"):
        pass


def processes_that_name(text: str) -> list[str]:
    """Command lines of living processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


def processes_of(mark: str) -> list[str]:
    """Command lines of living processes that have it in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"MARK={mark}" in path.read_bytes().decode(errors="replace"):
                found.append(path.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


@pytest.fixture
def places() -> Iterator[Path]:
    """A folder for temporary files, of a short name: paths of sockets end at 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def test_an_interrupt_loses_nothing_and_leaves_nothing(tmp_path: Path, places: Path) -> None:
    report = tmp_path / "found.json"
    words = ["mmr", "--program", "spin", "--weights", "1:1", "--seconds", "0.2", "--repetitions", "500"]
    command = [sys.executable, "-m", "benchmarks.cli", *words, "--device", "soft", "--json", str(report)]
    environment = {**os.environ, "TMPDIR": str(places)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running(command, cwd=PACKAGE_ROOT, env=environment, **pipes) as child:
        wait_until(lambda: report.exists() and '"together"' in report.read_text(), "a record", LIMIT_S)
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=LIMIT_S)
    assert child.returncode == 128 + signal.SIGINT, errors
    document = json.loads(report.read_text())
    assert document["ended"] == "interrupted"
    assert any(record["kind"] == "together" for record in document["records"])
    assert "min-max ratio" in output
    assert "Not whole: interrupted." in output
    wait_until(lambda: not processes_that_name(str(places)), "all processes ended")
    assert list(places.iterdir()) == []


def test_a_signal_while_a_program_is_started_is_not_lost() -> None:
    """Python passes over what is raised while it forks."""
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], cwd=PACKAGE_ROOT, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "interrupted\n"


def test_a_kill_leaves_no_process(tmp_path: Path, places: Path) -> None:
    """Neither the daemon nor programs, which here would run for a minute."""
    words = [
        "mmr",
        "--program",
        "spin",
        "--weights",
        "1:1",
        "--seconds",
        "60",
        "--repetitions",
        "1",
        "--device",
        "soft",
    ]
    kept = {"TMPDIR": str(places), "FAIRGV_SOFTGPU_STATE": str(tmp_path / "device")}
    command = [sys.executable, "-m", "benchmarks.cli", *words]
    mark = f"of-{places.name}"
    environment = {**os.environ, **kept, "MARK": mark}
    nothing = subprocess.DEVNULL
    with running(command, cwd=PACKAGE_ROOT, env=environment, stdout=nothing, stderr=nothing) as child:
        wait_until(lambda: "/spin " in "".join(processes_of(mark)), "programs run", LIMIT_S)
        child.kill()
    wait_until(lambda: not processes_of(mark), "all processes ended")


def test_minutes_that_are_over_end_a_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "found.json"
    words = ["--decisions", "5", "--repetitions", "100", "--minutes", "1e-9", "--json", str(report)]
    assert main(["decisions", "--device", "soft", *words]) == 0
    document = json.loads(report.read_text())
    assert len(document["records"]) == 1
    assert document["ended"] == "1e-09 minutes were over"
    assert "Not whole" in capsys.readouterr().out


def test_a_suite_ends_in_a_table_and_goes_on_after_a_refusal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = (
        Entry("refused", "slicing --guests vm", 1),
        Entry("decisions", "decisions --decisions 5 --repetitions 1", 1),
        Entry("elsewhere", "decisions", 1, "cuda"),
    )
    monkeypatch.setattr("benchmarks.suite.SUITES", {"quick": Suite(1, entries)})
    monkeypatch.setattr("benchmarks.suite.build_all", list)
    assert main(["suite", "quick", "--device", "soft", "--output", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "slicing measures guests that are processes" in printed.err
    rows = [line for line in printed.out.splitlines() if "│" in line]
    assert any("refused" in row and "nothing" in row for row in rows)
    assert any("decisions-soft.json" in row and " 5 " in row for row in rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"decisions-soft.{kind}" for kind in ("json", "png", "svg")
    ]


@pytest.mark.parametrize(("minutes", "words"), [(0, ()), (1, ("--minutes", "1e-9"))])
def test_a_suite_begins_nothing_when_its_time_is_over(
    minutes: float,
    words: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = (Entry("decisions", "decisions", 1),)
    monkeypatch.setattr("benchmarks.suite.SUITES", {"quick": Suite(minutes, entries)})
    monkeypatch.setattr("benchmarks.suite.build_all", list)
    assert main(["suite", "quick", "--device", "soft", *words, "--output", str(tmp_path)]) == 1
    assert "no time was left" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", SUITES)
def test_suites_are_command_lines_and_within_their_time(name: str) -> None:
    from benchmarks.cli import conduct_of  # noqa: PLC0415

    suite = SUITES[name]
    for entry in suite.entries:
        conduct = conduct_of(entry.words.split())
        conduct.options.device = "soft"
        conduct.experiment.check(conduct.options)
        assert conduct.experiment.nr_records(conduct.options) > 0
    assert suite.minutes < (5 if name == "quick" else 10)
