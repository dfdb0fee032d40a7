"""`fairgv-host`: usage, errors in one line, tables that show names as they are. The daemon is a canned answer here."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from backend_host import tables
from backend_host.cli import host_command, main
from backend_host.errors import FairGVError
from backend_host.ipc import Message, Server, Session
from backend_host.launching import wait_for_end
from backend_host.statistics import (
    ClientStatistics,
    CoschedulingStatistics,
    DaemonStatistics,
    DeviceStatistics,
    GpuStatistics,
    Totals,
    VGpuStatistics,
)

HOSTILE_NAMES = ["[red]x[/red]", "[/]", "[link=http://x]y", "a\x1b[2Jb", "\\[b]", "a\nb"]
UUID = "GPU-5c7a0000-0000-0000-0000-000000000000"
BOOSTED = CoschedulingStatistics("real-time", True, 5, 0)
CLIENT = ClientStatistics("program", 0, 17, 5, 4, 3, 2, 1024, 2048, 4096, 7, 0)


def status_of(name: str = "vm", program: str = "program") -> Message:
    """What a daemon with one vGPU and one client answers."""
    client = ClientStatistics(**{**asdict(CLIENT), "program": program})
    vgpu = VGpuStatistics(
        name=name,
        kind="session",
        gpu_number=0,
        gpu_uuid=UUID,
        weight=2,
        quota_bytes=1 << 30,
        region_bytes=1 << 28,
        region_free_bytes=1 << 27,
        memory_bytes=4096,
        used_ns=10**9,
        held_ns=0,
        share=0.25,
        nr_grants=3,
        coscheduling=BOOSTED,
        totals=Totals(1),
        clients=(client,),
    )
    device = DeviceStatistics("[bold]device[/bold]", "soft", "/lib", "8.0", 4 << 30, 13000, False)
    gpu = GpuStatistics(
        **asdict(device),
        number=0,
        uuid=UUID,
        pci_bus_id="0000:f0:00.0",
        policy="first-come",
        slice_ns=6_000_000,
        used_ns=4 * 10**9,
        walls=("user", "mount"),
        vgpus=(name,),
        used_bytes=4096,
        recent_shares={1: 0.9, 10: 0.8, 60: 0.7},
    )
    statistics = DaemonStatistics(os.getpid(), 10**9, "first-come", 6_000_000, device, (gpu,), (vgpu,))
    answer: Message = json.loads(json.dumps(asdict(statistics)))
    return answer


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


def rendered(message: Message) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(tables.status(message))
    return capture.get()


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_are_shown_as_they_are(name: str) -> None:
    shown = "".join(c if c.isprintable() else "?" for c in name)
    text = rendered(status_of(name=name, program=name))
    assert text.count(shown) == 3, "as a vGPU, as the vGPU of a program, as a program"
    assert "[bold]device[/bold]" in text
    assert "\x1b" not in text


def test_status_for_people(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--state-dir", str(state_dir), "status"]) == 0
    output = capsys.readouterr().out
    assert "25.0%" in output
    assert "4 KiB of 1 GiB" in output
    assert "1 of 1" in output
    assert "…" not in output, "where there is no terminal nothing is cut"


def test_status_for_programs(state_dir: Path, answer: Message, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--state-dir", str(state_dir), "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answer


def test_list(state_dir: Path, answer: Message, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--state-dir", str(state_dir), "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answer["vgpus"]
    assert main(["--state-dir", str(state_dir), "list"]) == 0
    assert "session" in capsys.readouterr().out


def test_devices(state_dir: Path, answer: Message, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--state-dir", str(state_dir), "devices", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answer["gpus"]
    assert main(["--state-dir", str(state_dir), "devices"]) == 0
    output = capsys.readouterr().out
    assert all(text in output for text in (UUID, "0000:f0:00.0", "[bold]device[/bold]", "4 GiB", "first-come", "vm"))


def test_nothing_to_show() -> None:
    empty: Message = {**status_of(), "vgpus": []}
    assert "fairgv-run" in rendered(empty)
    assert "no client" in rendered(empty)


def test_start_refuses_where_a_daemon_runs(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--state-dir", str(state_dir), "start"]) == 1
    assert "already runs" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["attach", "vm", "--memory", "much"],
        ["attach", "vm", "--region", "1e999"],
        ["attach", "vm", "--weight", "heavy"],
        ["top", "--seconds", "0"],
        ["top", "--seconds", "nan"],
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


@pytest.mark.parametrize("slice_ms", ["nan", "inf", "-5", "0.5"])
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
    assert "fairgv-host start" in answer.stderr
