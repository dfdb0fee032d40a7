"""Events that two programs of a guest share, where a device need not do as FairGV does: deaths, and a table that is full."""

import os
import signal

import pytest

from tests.end_to_end.host import Host, wait_until

PROGRAM = "ipc_ping_pong"
NR_EVENTS = 4096


@pytest.mark.parametrize("mode", ["die", "fault", "forget", "again"])
def test_as_natively(host: Host, mode: str) -> None:
    native = host.native(PROGRAM, mode)
    assert native.stdout.splitlines()[-1] == "PASS", native.stderr
    guest = host.guest(PROGRAM, mode)
    assert guest.stdout == native.stdout, guest.stderr


def test_a_full_table_is_an_error_and_comes_back(host: Host) -> None:
    """The second program has the rows of the first, which left them all to its end."""
    for _ in range(2):
        guest = host.guest(PROGRAM, "full", options=("--vgpu", "full"))
        assert guest.stdout.splitlines() == [f"{NR_EVENTS} events, then cudaErrorMemoryAllocation", "PASS"], (
            guest.stderr
        )


def test_who_waits_for_a_program_whose_worker_is_killed_goes_on(host: Host) -> None:
    """The program that owes a record lives on."""
    child = host.start(PROGRAM, "lose", options=("--vgpu", "loser"))

    def workers() -> list[int]:
        clients = [entry["clients"] for entry in host.status()["vgpus"] if entry["name"] == "loser"]
        return [client["worker_pid"] for client in sorted(*clients, key=lambda one: one["client"])] if clients else []

    wait_until(lambda: len(workers()) == 2, "both programs are served")
    assert child.stdout is not None
    assert [child.stdout.readline() for _ in range(2)] == [
        "before it ends: cudaErrorNotReady\n",
        "what waits: cudaErrorNotReady\n",
    ]
    os.kill(workers()[0], signal.SIGKILL)
    output, errors = child.communicate(timeout=60)
    assert output.splitlines() == [
        "after it: cudaSuccess cudaSuccess 77",
        "the second process:",
        "what it says itself: 1",
        "it ended by exit 0",
        "PASS",
    ], errors
