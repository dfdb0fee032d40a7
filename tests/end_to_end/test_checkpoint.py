"""A worker behind all walls is taken off its GPU by a process outside, and put on another one; its program notices nothing."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.host import Host, own_device, start_host, stop_host, wait_until
from tests.end_to_end.test_suspension import Program
from tests.softgpu.asking import OK, Asker
from tests.softgpu.driver_harness import Device, build

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="who asks for a worker is root")

SWAPPED, BACK = "0110", "1001"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
    host = start_host(tmp_path)
    yield host
    stop_host(host)


@pytest.fixture
def asker(host: Host) -> Iterator[Asker]:
    """A process of no tenant's on the same two devices."""
    build()
    device = Device(host.state_dir).with_settings(**own_device(host.state_dir), FAIRGV_SOFTGPU_DEVICES="2")
    yield Asker(device)
    device.close()


def nr_kernels(host: Host, number: int) -> int:
    """That a device has served; softgpu's state.h has the layout of its file."""
    return int.from_bytes((host.state_dir / f"softgpu.{number}").read_bytes()[24:32], "little")


def worker_pid(host: Host) -> int:
    """Of its one program, which may be served before the daemon lists it."""

    def clients() -> list[dict[str, int]]:
        [vgpu] = host.status()["vgpus"]
        return list(vgpu["clients"])

    wait_until(lambda: bool(clients()), "the program is listed")
    return clients()[0]["worker_pid"]


def test_a_worker_goes_to_the_other_device_and_back(host: Host, asker: Asker) -> None:
    program = Program(host, "web")
    worker = worker_pid(host)
    line = program.computes()
    for number, (pairs, uuid) in enumerate(((SWAPPED, 1), ("", 1), (BACK, 0)), 2):
        assert line.startswith(f"{number - 1}: ")
        before = [nr_kernels(host, each) for each in (0, 1)]
        assert asker.goes_round(worker, pairs) == [OK] * 4
        line = program.computes()
        after = [nr_kernels(host, each) for each in (0, 1)]
        assert (after[uuid] - before[uuid], after[1 - uuid]) == (2, before[1 - uuid])
    assert program.passes()


def test_a_worker_that_is_at_work_is_waited_for(host: Host, asker: Asker) -> None:
    program = Program(host, "web")
    worker = worker_pid(host)
    for number in range(1, 5):
        program.asks()
        assert asker.goes_round(worker, SWAPPED) == [OK] * 4
        assert program.says().startswith(f"{number}: ")
    assert program.passes()


def test_a_worker_that_is_checkpointed_may_die(host: Host, asker: Asker) -> None:
    program = Program(host, "web")
    worker = worker_pid(host)
    assert [asker.asks("lock", worker), asker.asks("checkpoint", worker)] == [OK, OK]
    os.kill(worker, 9)
    assert asker.asks("restore", worker) != OK
    program.child.communicate("\n", timeout=60)
    assert program.child.returncode != 0
