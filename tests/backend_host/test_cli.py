"""`fairgv-host`: usage, errors in one line, what each command prints. The daemon is a canned answer here."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from backend_host.cli import host_command, main
from backend_host.errors import FairGVError
from backend_host.ipc import Message, Server, Session
from backend_host.launching import wait_for_end
from backend_host.listing import Listed
from tests.backend_host.told import UUID, status_of


@pytest.fixture
def answer() -> Message:
    return status_of()


@pytest.fixture
def state_dir(tmp_path: Path, answer: Message) -> Iterator[Path]:
    def handle(session: Session, request: Message) -> Message:
        return answer

    server = Server(tmp_path / "control.sock", handle)
    server.start()
    yield tmp_path
    server.stop()


def test_status_for_people(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--state-dir", str(state_dir), "status"]) == 0
    output = capsys.readouterr().out
    assert "66.7%" in output
    assert "25.0%" not in output, "the share since the start hardly moves after a change"
    assert "…" not in output, "where there is no terminal nothing is cut"
    assert main(["--state-dir", str(state_dir), "status", "--long"]) == 0
    output = capsys.readouterr().out
    assert all(text in output for text in ("since start", "25.0%", "1 GiB"))


def test_status_for_programs(state_dir: Path, answer: Message, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--state-dir", str(state_dir), "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answer


def test_no_line_is_longer_than_what_it_says(
    state_dir: Path, answer: Message, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blanks at the end of a wide table's lines would be empty lines in a pager."""
    answer["gpus"] = [answer["gpus"][0], {**answer["gpus"][0], "number": 1, "vgpus": ["a", "b"]}]
    assert main(["--state-dir", str(state_dir), "devices"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines == [line.rstrip() for line in lines]


def test_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Message] = []
    entry = asdict(Listed("vm", "domain", "shut off", is_served=False, why_not="for a reason", weight=2))

    def handle(session: Session, request: Message) -> Message:
        asked.append(request)
        return {"entries": [entry], "trouble": "no libvirtd" if request["all"] else ""}

    server = Server(tmp_path / "control.sock", handle)
    server.start()
    assert main(["--state-dir", str(tmp_path), "list", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == [entry]
    assert printed.err == ""
    assert main(["--state-dir", str(tmp_path), "list", "--all"]) == 0
    printed = capsys.readouterr()
    assert "shut off" in printed.out
    assert printed.err == "fairgv-host: domains that are not served may be missing: no libvirtd\n"
    assert [request["all"] for request in asked] == [False, True]
    server.stop()


def test_devices(state_dir: Path, answer: Message, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--state-dir", str(state_dir), "devices", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answer["gpus"]
    assert main(["--state-dir", str(state_dir), "devices"]) == 0
    output = capsys.readouterr().out
    assert all(text in output for text in (UUID[:12], "[bold]device[/bold]", "4 GiB", "first-come", "vm"))
    assert main(["--state-dir", str(state_dir), "devices", "--long"]) == 0
    output = capsys.readouterr().out
    assert all(text in output for text in (UUID, "0000:f0:00.0"))


@pytest.mark.parametrize(
    "command", [["status"], ["status", "--json"], ["status", "--long"], ["devices"], ["grants"], ["unban", "a"]]
)
def test_output_that_cannot_be_written(tmp_path: Path, answer: Message, command: list[str]) -> None:
    def handle(session: Session, request: Message) -> Message:
        return {**answer, "text": "a is forgiven", "hand_overs": []}

    server = Server(tmp_path / "control.sock", handle)
    server.start()
    words = [sys.executable, "-m", "backend_host.cli", "--state-dir", str(tmp_path), *command]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    server.stop()
    assert ended.returncode == 1
    assert ended.stderr == "fairgv-host: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize(
    "command", [["status"], ["status", "--json"], ["devices"], ["top", "--once", "--seconds", "0.01"]]
)
def test_standard_output_that_is_closed(state_dir: Path, command: list[str]) -> None:
    words = [sys.executable, "-m", "backend_host.cli", "--state-dir", str(state_dir), *command]
    ended = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *words], stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "fairgv-host: cannot write to standard output: it is closed\n")


def test_a_terminal_without_the_characters(state_dir: Path) -> None:
    """As one of ISO 8859-1 has none for the lines of bars."""
    words = [
        sys.executable,
        "-m",
        "backend_host.cli",
        "--state-dir",
        str(state_dir),
        "top",
        "--once",
        "--seconds",
        "0.01",
    ]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    ended = subprocess.run(words, env=environment, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"% in use" in ended.stdout


@pytest.mark.parametrize(
    "words",
    [
        *([command, ""] for command in ("attach", "detach", "unban", "suspend", "resume", "drain", "undrain")),
        ["set", "", "--weight", "2"],
        ["grants", "--gpu", ""],
        ["migrate", "", "--to", "1"],
        ["migrate", "web", "--to", ""],
    ],
)
def test_nothing_is_no_name(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "a name, and not nothing" in capsys.readouterr().err


def test_the_state_dir_may_stand_behind_the_command(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--state-dir", str(state_dir), "status"]) == 0
    before = capsys.readouterr().out
    assert main(["status", "--state-dir", str(state_dir)]) == 0
    assert capsys.readouterr().out == before


def test_so_it_may_behind_one_of_two_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--json", "--state-dir", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["keys"]["state_dir"] == {"value": str(tmp_path), "from": "option"}


@pytest.mark.parametrize(
    ("words", "usage"),
    [(["list", "web"], "fairgv-host list "), (["config", "show", "web"], "fairgv-host config show ")],
)
def test_of_a_word_too_many_the_usage_is_that_of_the_command(
    words: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"usage: {usage}")
    assert said.endswith(f"{usage.strip()}: error: unrecognized arguments: web\n")


@pytest.mark.parametrize(
    ("command", "told"), [(["start", "--device", "soft"], "cannot listen on"), (["status"], "cannot reach a daemon on")]
)
def test_a_path_that_is_too_long_for_a_socket(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], told: str
) -> None:
    deep = tmp_path / ("x" * 100)
    assert main(["--state-dir", str(deep), *command]) == 1
    assert capsys.readouterr().err == (
        f"fairgv-host: {told} {deep}/control.sock: a socket's path has 107 bytes at most; choose a folder of a shorter name\n"
    )


@pytest.mark.parametrize(("closed", "name"), [("<&-", "input"), (">&-", "output")])
def test_the_view_wants_open_streams(state_dir: Path, closed: str, name: str) -> None:
    words = [sys.executable, "-m", "backend_host.cli", "--state-dir", str(state_dir), "top"]
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *words]
    terminal, inner = os.openpty()
    with os.fdopen(terminal), os.fdopen(inner) as file:
        ended = subprocess.run(shell, stdin=file, stdout=file, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert f"standard {name} is none" in ended.stderr


def test_start_refuses_where_a_daemon_runs(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--state-dir", str(state_dir), "start"]) == 1
    assert f"already runs in {state_dir}; see: fairgv-host --state-dir {state_dir} status" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["attach", "vm", "--memory", "much"],
        ["attach", "vm", "--region", "1e999"],
        ["attach", "vm", "--weight", "heavy"],
        ["top", "--seconds", "0"],
        ["top", "--seconds", "nan"],
        ["top", "--seconds", "long"],
        ["top", "--seconds", "1e10"],
        ["--state-dir", "", "status"],
        ["doctor", "--config", ""],
        ["attach", "--shm", "", "vm"],
        ["start", "--device", "quantum"],
        ["unknown"],
        [],
    ],
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("policy", ["strict", "credit-poll"])
def test_policies_of_the_simulator_are_no_daemons(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["start", "--policy", policy])
    sentence = f"{policy} is a policy of the simulator only: see fairgv-sim --policy {policy}\n"
    assert capsys.readouterr().err.endswith(sentence)


@pytest.mark.parametrize("slice_ms", ["nan", "inf", "-5", "0.5", "60001", "1e300"])
def test_slices_that_are_none(tmp_path: Path, slice_ms: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--state-dir", str(tmp_path), "start", f"--slice-ms={slice_ms}"]) == 1
    assert "slice_ms" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["/dev/null/below", "/proc/below", "/tmp/" + 120 * "x"])
def test_a_state_directory_that_cannot_be(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["start", "--device", "soft"], ["status"]):
        if command[0] == "status" or not place.startswith("/tmp"):
            assert main(["--state-dir", place, *command]) == 1
            assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_state_directory_that_others_can_write_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o777)
    assert main(["--state-dir", str(tmp_path), "start", "--device", "soft"]) == 1
    assert "written to by others" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_went_away(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    with os.fdopen(write_fd, "w", buffering=1) as broken:
        monkeypatch.setattr("sys.stdout", broken)
        assert main(["--state-dir", str(state_dir), "status", "--json"]) == 1


def test_waiting_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
    wait_for_end(ended)  # a zombie has ended
    os.waitpid(ended, 0)
    wait_for_end(ended)
    monkeypatch.setattr("backend_host.launching.STOP_TIMEOUT_S", 0)
    with pytest.raises(FairGVError, match="has not ended"):
        wait_for_end(os.getpid())


def test_the_command_finds_itself_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a file of the folder the user happens to be in')\n")
    monkeypatch.chdir(tmp_path)
    answer: Any = host_command(tmp_path, "status")
    assert answer.returncode == 1
    assert f"fairgv-host --state-dir {tmp_path} start" in answer.stderr
