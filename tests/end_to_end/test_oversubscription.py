"""Programs with more memory together than the device: each prints what it prints alone, whoever dies meanwhile."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from backend_host.cli import host_command
from backend_host.errors import FairGVError
from backend_host.launching import wait_for_end
from tests.end_to_end.host import Host, comparable, start_host, stop_host, wait_until

CAPACITY = 112 << 20
SETTINGS: dict[str, Any] = {
    "device_memory_bytes": CAPACITY,
    "oversubscribe": 3.0,
    "swap_bytes": 2 << 30,
    "paging_cost": 50.0,  # short turns
    "watchdog_s": 0,
}
EXTENT = 32 << 20
"""The largest of a program's, that of its pool."""
MIB = 64
"""With what its pool keeps each program has more than half of the device."""
BESIDE = (
    "graph_capture",
    "graph_threads",
    "ipc_memory",
    "managed_host",
    "managed_memory",
    "per_thread_stream",
    "pool_memory",
    "random_work",
    "share_descriptor",
    "share_pool",
    "stream_values",
    "textures",
    "threads",
    "virtual_memory",
)
"""Programs with memory of each kind, and calls from several threads."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = start_host(tmp_path, **SETTINGS)
    yield host
    for program in Program.all:
        if program.host is host:
            program.ends()
    with contextlib.suppress(FairGVError):
        stop_host(host)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A program whose memory fills most of the device computes all the time."""
    host = start_host(tmp_path_factory.mktemp("crowded"), **SETTINGS)
    program = Program(host, "crowd", 78)
    yield host
    assert program.passes()
    stop_host(host)


class Program:
    """One that computes with so much memory until it is told to stop."""

    all: ClassVar[list["Program"]] = []

    def __init__(self, host: Host, name: str, mib: int = MIB, stop: str = "", kind: str = "allocated") -> None:
        self.host, self.name = host, name
        self.all.append(self)
        self._stop = host.state_dir / f"stop-{stop or name}"
        self.child = host.start("much_memory", str(mib), str(self._stop), kind, options=("--vgpu", name))
        assert self.child.stdout is not None
        assert self.child.stdout.readline() == "running\n"

    def passes(self) -> bool:
        """Whether all of its memory was right, to the end."""
        self._stop.touch()
        output, errors = self.child.communicate(timeout=120)
        assert not errors
        return (self.child.returncode, output) == (0, "PASS\n")

    def ends(self) -> None:
        """Whatever became of it."""
        self.child.kill()
        with contextlib.suppress(ValueError):  # all that it said has been read
            self.child.communicate()


def vgpus(host: Host) -> dict[str, Any]:
    return {vgpu["name"]: vgpu for vgpu in host.status()["vgpus"]}


def totals(host: Host, name: str) -> dict[str, int]:
    found: dict[str, int] = vgpus(host)[name]["totals"]
    return found


def worker(host: Host, name: str) -> dict[str, Any]:
    [found] = vgpus(host)[name]["clients"]
    return dict(found)


def take_turns(host: Host, *names: str, nr_bytes: int = CAPACITY) -> None:
    """Until each of them has gone and come back, more than once: it has less than the device."""
    wait_until(lambda: all(totals(host, name)["swapped_in_bytes"] > nr_bytes for name in names), "memory moves", 120)


def test_two_programs_take_turns(host: Host) -> None:
    programs = [Program(host, name) for name in ("one", "two")]
    take_turns(host, "one", "two")
    clients = [client for vgpu in vgpus(host).values() for client in vgpu["clients"]]
    assert sum(client["resident_bytes"] for client in clients) <= CAPACITY + EXTENT, "one may come between two looks"
    assert all(client["linear_bytes"] > CAPACITY // 2 for client in clients)
    assert all(client["displaced_ns"] > 0 for client in clients)
    assert all(program.passes() for program in programs)


@pytest.mark.parametrize("kind", ["mapped", "managed"])
def test_memory_of_other_kinds_takes_turns(host: Host, kind: str) -> None:
    programs = [Program(host, name, kind=kind) for name in ("one", "two")]
    take_turns(host, "one", "two")
    clients = [client for vgpu in vgpus(host).values() for client in vgpu["clients"]]
    assert sum(client["resident_bytes"] for client in clients) <= CAPACITY + EXTENT
    assert all(program.passes() for program in programs)


def test_two_programs_of_one_vgpu_take_turns(host: Host) -> None:
    programs = [Program(host, "both", stop=stop) for stop in ("one", "two")]
    wait_until(lambda: totals(host, "both")["swapped_in_bytes"] > 2 * CAPACITY, "memory moves", 120)
    assert all(program.passes() for program in programs)


def test_a_worker_that_is_killed_costs_its_own_program_alone(host: Host) -> None:
    programs = [Program(host, name) for name in ("lost", "one", "two")]
    take_turns(host, "one", "two", nr_bytes=CAPACITY // 2)
    os.kill(worker(host, "lost")["worker_pid"], signal.SIGKILL)
    _, errors = programs[0].child.communicate(timeout=60)
    assert "has ended" in errors
    take_turns(host, "one", "two")
    assert all(program.passes() for program in programs[1:])


def test_a_daemon_that_is_killed_leaves_all_memory_as_it_is(host: Host) -> None:
    programs = [Program(host, name) for name in ("one", "two")]
    take_turns(host, "one", "two", nr_bytes=CAPACITY)
    for _ in range(3):
        before = {program.name: totals(host, program.name)["swapped_in_bytes"] for program in programs}
        pid = int(host.status()["pid"])
        os.kill(pid, signal.SIGKILL)
        wait_for_end(pid)
        start_host(host.state_dir, **SETTINGS)
        for name, nr_bytes in before.items():
            take_turns(host, name, nr_bytes=nr_bytes + CAPACITY // 2)
    assert all(program.passes() for program in programs)


def test_weights_hold_through_the_moves(host: Host) -> None:
    """Roughly: shares of seconds, on a device that is a CPU's."""
    programs = []
    for name, weight in (("one", 1), ("three", 3)):
        programs.append(Program(host, name))
        assert host_command(host.state_dir, "set", name, "--weight", str(weight)).returncode == 0
    take_turns(host, "one", "three")
    before = {name: vgpu["used_ns"] for name, vgpu in vgpus(host).items()}
    take_turns(host, "one", "three", nr_bytes=4 * CAPACITY)
    used = {name: vgpu["used_ns"] - before[name] for name, vgpu in vgpus(host).items()}
    assert used["three"] > 2 * used["one"]
    assert all(program.passes() for program in programs)


def test_a_program_larger_than_the_device_is_out_of_memory(host: Host) -> None:
    child = host.guest("much_memory", str(CAPACITY // (1 << 20)))
    assert child.returncode != 0
    assert "cudaErrorMemoryAllocation" in child.stdout


def test_more_than_the_host_sets_aside_is_no_start(tmp_path: Path) -> None:
    with pytest.raises(FairGVError, match="raise swap_bytes"):
        start_host(tmp_path, **{**SETTINGS, "swap_bytes": 64 << 20})


@pytest.mark.parametrize("program", BESIDE)
def test_same_output_as_natively(crowded: Host, program: str) -> None:
    """Beside one that takes the device back each time."""
    expected = comparable(crowded.native(program))
    assert comparable(crowded.guest(program)) == expected
