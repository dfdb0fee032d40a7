"""Whether vGPUs of a device can be together, as a machine's programs have it."""

import os
from pathlib import Path

import pytest

from backend_host.space import setting
from backend_host.space.mps import CONTROL, Mps
from backend_host.space.setting import folder_of, quit_left, why_not

UUID = "GPU-5c7a1234"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    put(tmp_path, CONTROL, "exit 0")
    return tmp_path


def put(programs: Path, name: str, script: str) -> None:
    (programs / name).write_text(f"#!/bin/sh\n{script}\n")
    (programs / name).chmod(0o755)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("Default, Disabled", ""),
        ("Default, [N/A]", ""),
        (
            "Exclusive_Process, Disabled",
            "compute mode exclusive_process, for somebody else: nvidia-smi --compute-mode DEFAULT",
        ),
        ("Prohibited, [N/A]", "compute mode prohibited"),
        ("Default, Enabled", "MIG is enabled on it: switch it off"),
    ],
)
def test_modes_of_a_device(programs: Path, said: str, reason: str) -> None:
    put(programs, "nvidia-smi", f"test $4 = {UUID} && echo '{said}'")
    found = why_not("cuda", UUID)
    assert reason in found
    assert bool(reason) == bool(found)


def test_a_mig_instance_is_shared_with_nobody(programs: Path) -> None:
    assert "it is a MIG instance" in why_not("cuda", "MIG-41b3359c")
    assert programs.exists()


def test_a_tool_that_fails_says_nothing(programs: Path) -> None:
    put(programs, "nvidia-smi", "exit 9")
    assert why_not("cuda", UUID) == ""


def test_without_mps_there_are_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why_not("cuda", UUID).startswith(f"there is no {CONTROL} on this machine")
    assert why_not("soft", "") == "", "softgpu needs none"


def test_what_daemons_before_left_is_told_to_quit(programs: Path, tmp_path: Path) -> None:
    put(programs, CONTROL, f'echo "$CUDA_MPS_PIPE_DIRECTORY" $(cat) >> {tmp_path}/notes')
    left, kept, others = (folder_of(tmp_path, gpu, name) for gpu, name in ((0, "a-b"), (0, "web"), (1, "a-b")))
    for folder in (left, kept, others):
        (folder / "pipe").mkdir(parents=True)
    quit_left(tmp_path, 0, frozenset({"web"}))
    assert (tmp_path / "notes").read_text() == f"{left}/pipe quit -t 1\n"
    assert [folder.exists() for folder in (left, kept, others)] == [False, True, True]


@pytest.mark.parametrize("is_root", [True, False])
def test_whose_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_root: bool) -> None:
    """A daemon that is an ordinary user's becomes nobody else, and ends no MPS of that user's beside this one."""
    asked: list[int] = []

    class Noted(Mps):
        def __init__(self, folder: Path, uid: int = 0, visible: str = "") -> None:
            super().__init__(folder, uid, visible)
            asked.append(uid)

        def quit(self) -> None:
            pass

    monkeypatch.setattr(setting, "Mps", Noted)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if is_root else 1000)
    pipe = folder_of(tmp_path, 0, "web") / "pipe"
    pipe.mkdir(parents=True)
    if os.getuid() == 0:
        os.chown(pipe, 1000, 1000)
    quit_left(tmp_path, 0, frozenset())
    assert asked == [pipe.stat().st_uid if is_root else 0]
