"""A host with three Gpus whose moves are taken step by step, and a connection to it; one with two whose workers are real."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend_host.config import Config
from backend_host.device.gpu import Gpu
from backend_host.devices import Device, probe
from backend_host.entitlement import PLAIN, Entitlement
from backend_host.ipc import Message, Session
from backend_host.move.answers import MoveAnswers
from backend_host.move.balancing import Balancing
from backend_host.move.drains import Drains
from backend_host.vgpu import VGpu
from backend_host.vgpus import VGpuRegistry
from tests.backend_host.move.played import PlayedMoves
from tests.backend_host.move.travel import Travel, travelling
from tests.backend_host.test_gpu import ME, REGION_BYTES, TABLE_HASH, devices, gpus

__all__ = ["devices", "gpus"]  # fixtures


class MovingHost:
    """It answers as a daemon does, to who asks it as one."""

    def __init__(self, gpus: list[Gpu], folder: Path) -> None:
        self.gpus = gpus
        self.vgpus = VGpuRegistry(gpus, TABLE_HASH)
        self.moves = PlayedMoves(gpus, self.vgpus)
        self.balancing = Balancing(gpus, self.vgpus, self.moves)
        self.drains = Drains(folder, gpus)
        self._answers = MoveAnswers(self).operations()
        self.asked: list[str] = []

    def opened(self, name: str, entitlement: Entitlement = PLAIN) -> VGpu:
        return self.vgpus.open_session(name, entitlement, REGION_BYTES, ME)

    def try_again(self) -> None:
        self.asked.append("try again")

    def ask(self, operation: str, **arguments: Any) -> Message:
        self.asked.append(operation)
        return self._answers[operation](Session(0), {"op": operation, **arguments})


@pytest.fixture
def host(gpus: list[Gpu], tmp_path: Path) -> Iterator[MovingHost]:
    host = MovingHost(gpus, tmp_path)
    yield host
    host.vgpus.remove_all()


@pytest.fixture(scope="module")
def two_devices() -> list[Device]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
        return probe("soft", Config().softgpu_library)


@pytest.fixture
def travel(two_devices: list[Device], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Travel]:
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
    monkeypatch.setenv("FAIRGV_SOFTGPU_STATE", str(tmp_path / "device"))
    with travelling(two_devices, tmp_path) as made:
        yield made
