"""MPS's control daemon, by a program of its name: how it is run, and what is said where it is missing, refuses, or is silent."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.space import mps as mps_module
from backend_host.space.mps import CONTROL, Mps, MpsError


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which programs are found first."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def put(programs: Path, script: str) -> None:
    """A control program that does this."""
    path = programs / CONTROL
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_it_is_started_with_folders_of_its_own(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    notes = tmp_path / "notes"
    put(
        programs,
        f'echo "$@" "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_VISIBLE_DEVICES" >> {notes}; test -d "$CUDA_MPS_LOG_DIRECTORY"',
    )
    mps = Mps(tmp_path / "space", visible="GPU-5c7a")
    mps.start()
    assert notes.read_text() == f"-d {tmp_path}/space/pipe GPU-5c7a\n"
    assert (tmp_path / "space/pipe").stat().st_mode & 0o777 == 0o700
    assert mps.of_clients == {"CUDA_MPS_PIPE_DIRECTORY": f"{tmp_path}/space/pipe", "CUDA_VISIBLE_DEVICES": "GPU-5c7a"}


def test_one_that_answers_is_not_started_again(programs: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    put(programs, f'echo "$@" $(cat) >> {notes}')
    Mps(tmp_path / "space").ensure()
    assert notes.read_text() == "get_server_list\n"


def test_one_that_does_not_answer_is_started(programs: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    put(programs, f'echo "$@" $(cat) >> {notes}; test "$1" = -d')
    Mps(tmp_path / "space").ensure()
    assert notes.read_text() == "get_server_list\n-d\n"


def test_a_client_is_ended_at_its_server(programs: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    put(programs, f'read line; echo "$line" >> {notes}; test "$line" != get_server_list || echo 77')
    mps = Mps(tmp_path / "space")
    mps.make_folders()
    mps.terminate_client(4711)
    assert notes.read_text() == "get_server_list\nterminate_client 77 4711\n"


def test_it_is_told_to_quit_and_its_folders_go(programs: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    put(programs, f'echo "$@" $(cat) >> {notes}')
    mps = Mps(tmp_path / "space")
    mps.start()
    mps.quit()
    assert notes.read_text() == "-d\nquit -t 1\n"
    assert not (tmp_path / "space").exists()


def test_its_words_are_the_reason(programs: Path, tmp_path: Path) -> None:
    put(programs, "echo An instance of this daemon is already running >&2; exit 1")
    with pytest.raises(MpsError, match=f"^{CONTROL}: An instance of this daemon is already running$"):
        Mps(tmp_path / "space").start()
    put(programs, "exit 3")
    with pytest.raises(MpsError, match="exit status 3"):
        Mps(tmp_path / "space").ask("get_server_list")
    assert not Mps(tmp_path / "space").answers()


def test_one_that_hangs_is_not_waited_for(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps_module, "_LIMIT_S", 0.2)
    put(programs, "exec sleep 60")
    with pytest.raises(MpsError, match=r"gave no answer within 0\.2 s"):
        Mps(tmp_path / "space").ask("get_server_list")


def test_without_the_program_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MpsError, match=f"there is no {CONTROL} on this machine: it comes with NVIDIA's driver"):
        Mps(tmp_path / "space").start()


def test_a_path_that_no_socket_can_have_is_refused(programs: Path, tmp_path: Path) -> None:
    put(programs, "exit 0")
    with pytest.raises(MpsError, match="is too long for a socket: choose a shorter state directory with --state-dir"):
        Mps(tmp_path / ("x" * 100)).start()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that others may enter: those of tests are for their user alone."""
    with tempfile.TemporaryDirectory(prefix="fairgv-mps-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_it_runs_as_its_user(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{open_folder}:{os.environ['PATH']}")
    put(open_folder, 'test "$(id -u)" = 2000000001 && test -w "$CUDA_MPS_PIPE_DIRECTORY" && echo "$(id -u) $(id -G)"')
    mps = Mps(open_folder / "space", 2000000001)
    mps.start()
    assert mps.ask("anything") == "2000000001 2000000001\n"
