"""Idle vGPUs that are suspended and resumed: programs notice nothing, and what cannot be is said."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from backend_host.cli import host_command
from tests.end_to_end.host import Host, start_host, stop_host, wait_until

MIB = "48"
BYTES = int(MIB) << 20
SPAN_BYTES = BYTES + (2 << 20)
"""What the program's allocations take, the small one included."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = start_host(tmp_path)
    yield host
    stop_host(host)


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """No program outlives its test."""
    yield
    while Program.all:
        with Program.all.pop().child as child:
            child.kill()


class Program:
    """One that computes once for each line, and is idle in between."""

    all: ClassVar[list["Program"]] = []

    def __init__(self, host: Host, name: str, *options: str, program: str = "pauses") -> None:
        self._host, self._name = host, name
        self.all.append(self)
        self.child = host.start(program, MIB, options=("--vgpu", name, *options), stdin=subprocess.PIPE)
        assert self.child.stdout is not None
        assert self.child.stdout.readline() == "ready\n"

    def asks(self) -> None:
        """Has it compute."""
        assert self.child.stdin is not None
        self.child.stdin.write("\n")
        self.child.stdin.flush()

    def says(self) -> str:
        """What it computed."""
        assert self.child.stdout is not None
        return str(self.child.stdout.readline())

    def computes(self) -> str:
        """Both."""
        self.asks()
        return self.says()

    def passes(self) -> bool:
        """To its end."""
        output, errors = self.child.communicate(timeout=60)
        assert output.splitlines()[-1:] == ["PASS"], errors
        return self.child.returncode == 0

    def resident_bytes(self) -> int:
        [vgpu] = [each for each in self._host.status()["vgpus"] if each["name"] == self._name]
        return sum(client["resident_bytes"] for client in vgpu["clients"])

    def is_suspended(self) -> bool:
        [vgpu] = [each for each in self._host.status()["vgpus"] if each["name"] == self._name]
        return bool(vgpu["is_suspended"])


def test_a_program_notices_nothing(host: Host) -> None:
    program = Program(host, "web")
    for _ in range(3):
        program.computes()
        said = host_command(host.state_dir, "suspend", "web")
        assert said.returncode == 0, said.stderr
        assert said.stdout == (
            "web is suspended: 50 MiB of one program left the device, and the contexts of one program. A program comes back with its next "
            "call, and all do with: fairgv-host resume web\n"
        )
        assert (program.resident_bytes(), program.is_suspended()) == (0, True)
        assert "web: is suspended, and has 50 MiB of its memory in the host's" in host_command(
            host.state_dir, "status"
        ).stdout.replace("\n", " ")
    program.computes()
    assert (program.resident_bytes(), program.is_suspended()) == (SPAN_BYTES, False)
    assert program.passes()


def test_a_program_is_brought_back_ahead_of_its_call(host: Host) -> None:
    program = Program(host, "web")
    assert json.loads(host_command(host.state_dir, "suspend", "web", "--json").stdout) == [
        {
            "program": "pauses",
            "worker_pid": host.status()["vgpus"][0]["clients"][0]["worker_pid"],
            "linear_bytes": SPAN_BYTES,
            "resident_bytes": 0,
            "is_suspended": True,
            "keeps": "not",
            "contexts": {"where": "off", "is_moving": False, "why": ""},
            "contexts_bytes": 0,
        }
    ]
    assert host_command(host.state_dir, "suspend", "web").stdout.startswith("web is suspended already: 50 MiB")
    said = [host_command(host.state_dir, "resume", "web").stdout for _ in range(2)]
    assert said == ["web is on the device with all of its memory\n", "web was not suspended\n"]
    records = host_command(host.state_dir, "events", "--json").stdout.splitlines()
    assert [json.loads(record)["event"] for record in records] == ["suspend", "resume"]
    assert (program.resident_bytes(), program.is_suspended()) == (SPAN_BYTES, False)
    program.computes()
    assert program.passes()


def test_others_have_the_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes back while they have it waits."""
    monkeypatch.setenv("FAIRGV_SOFTGPU_MEMORY", "96M")
    host = start_host(tmp_path)
    try:
        web = Program(host, "web")
        web.computes()
        without = host.guest("pauses", MIB)
        assert (without.returncode, "cudaErrorMemoryAllocation" in without.stdout) == (1, True)
        assert host_command(host.state_dir, "suspend", "web").returncode == 0
        db = Program(host, "db")
        db.computes()
        web.asks()
        wait_until(lambda: not web.is_suspended(), "it comes back")
        assert web.resident_bytes() == 0
        assert "is resumed, but 50 MiB are off the device still" in host_command(host.state_dir, "resume", "web").stderr
        assert db.passes()
        assert web.says().startswith("2: ")
        assert web.passes()
    finally:
        stop_host(host)


def test_what_cannot_be_is_said(host: Host) -> None:
    def refused(*arguments: str) -> str:
        said = host_command(host.state_dir, *arguments)
        assert said.returncode == 1
        return said.stderr.removeprefix("fairgv-host: ").strip()

    assert refused("suspend", "nobody") == "there is no vGPU called nobody; see: fairgv-host list"
    assert refused("resume", "nobody") == "there is no vGPU called nobody; see: fairgv-host list"
    busy = host.start("spin", "60000", options=("--vgpu", "busy"))
    try:
        assert busy.stdout is not None
        assert busy.stdout.readline() == "running\n"
        assert "is suspended while it is idle" in refused("suspend", "busy")
    finally:
        busy.kill()
        busy.communicate()


def test_who_is_suspended_on_a_crowded_device_makes_room(tmp_path: Path) -> None:
    host = start_host(tmp_path, device_memory_bytes=120 << 20, oversubscribe=3.0, swap_bytes=1 << 30, watchdog_s=0)
    try:
        web, db, mail = programs = [Program(host, name) for name in ("web", "db", "mail")]
        for _ in range(2):
            for program in programs:
                program.computes()
            assert host_command(host.state_dir, "suspend", "mail").returncode == 0
            wait_until(lambda: web.resident_bytes() == db.resident_bytes() == SPAN_BYTES, "both have room")
            assert mail.is_suspended()
            assert mail.resident_bytes() == 0
        assert [program.passes() for program in programs] == [True] * 3
    finally:
        stop_host(host)


def test_there_is_only_so_much_of_the_hosts_memory(tmp_path: Path) -> None:
    host = start_host(tmp_path, swap_bytes=60 << 20)
    try:
        web, db = Program(host, "web"), Program(host, "db")
        assert host_command(host.state_dir, "suspend", "web").returncode == 0
        said = host_command(host.state_dir, "suspend", "db")
        assert said.returncode == 1
        assert "db has 50 MiB of memory on the device, and of the host's 10 MiB are left" in said.stderr
        db.computes()
        web.computes()
        assert host_command(host.state_dir, "suspend", "db").returncode == 0
        assert web.passes()
        assert db.passes()
    finally:
        stop_host(host)


def test_a_new_daemon_knows_who_is_suspended(host: Host) -> None:
    program = Program(host, "web")
    program.computes()
    assert host_command(host.state_dir, "suspend", "web").returncode == 0
    assert host_command(host.state_dir, "restart").returncode == 0
    assert (program.resident_bytes(), program.is_suspended()) == (0, True)
    program.computes()
    assert program.passes()
