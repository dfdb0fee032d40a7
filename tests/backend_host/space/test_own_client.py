"""The daemon's own process in a space: answers that come late, and a process that does not end."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backend_host.config import Config
from backend_host.devices import probe
from backend_host.space import own_client
from backend_host.space.own_client import SILENT, OwnClient
from backend_host.walls.start import Child
from backend_host.walls.tenants import name_of_space
from backend_host.worker_start import WorkerStart, worker_start
from tests.backend_host.worker_harness import WALLS, walls_here


@pytest.fixture(scope="module")
def start() -> WorkerStart:
    [device, *_] = probe("soft", Config().softgpu_library)
    return replace(worker_start(device, Config(walls=WALLS), walls_here(), None), tenant=name_of_space(0, "web"))


@pytest.fixture
def client(start: WorkerStart) -> Iterator[OwnClient]:
    made = OwnClient(start)
    os.close(made.make())
    yield made
    if made._process.pidfd >= 0:
        made.end()


def test_an_answer_that_comes_late_is_none_to_the_next_question(
    client: OwnClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.kill(client.pid, signal.SIGSTOP)
    with monkeypatch.context() as hasty:
        hasty.setattr(own_client, "PROBE_S", 0.05)
        assert client.probe() == SILENT
    os.kill(client.pid, signal.SIGCONT)
    client.clear()
    assert client.probe() == 0, "not what the clear was answered"


def test_one_that_does_not_end_is_left_behind(
    client: OwnClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that its driver holds."""
    os.kill(client.pid, signal.SIGSTOP)
    with monkeypatch.context() as held:
        held.setattr(own_client, "_END_S", 0.05)
        held.setattr(Child, "kill", lambda _: None)
        client.end()
    assert f"process {client.pid} of a space does not end" in caplog.text
    client.end()
    assert not Path(f"/proc/{client.pid}").exists()
