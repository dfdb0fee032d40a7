"""What workers start with: which devices they see, by which numbers, and whose nodes they have until they know their guest."""

import dataclasses
from pathlib import Path

import pytest

from backend_host import worker_start as module
from backend_host.config import Config
from backend_host.devices import Device
from backend_host.limits import Limits
from backend_host.walls import root
from backend_host.worker_start import WorkerStart, worker_start

NODES = {"0000:01:00.0": "/dev/null", "0000:02:00.0": "/dev/zero", "0000:03:00.0": "/dev/full"}
"""Three nodes that every host has."""
GIB = 1 << 30


def device(ordinal: int, kind: str = "cuda") -> Device:
    address = list(NODES)[ordinal]
    told = (kind, "libcuda.so.1", ordinal, f"GPU-{ordinal}", address, "H100", 80 * GIB, "9.0", 13000)
    return Device(*told, preempts=True, reaches_host=False, facts=b"")


CARDS = [device(ordinal) for ordinal in range(3)]
SOFT = [device(ordinal, "soft") for ordinal in range(3)]


@pytest.fixture(autouse=True)
def nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FAIRGV_SOFTGPU_STATE", str(tmp_path / "device"))
    for each in (module, root):
        monkeypatch.setattr(each, "nvidia_node", NODES.get)


def started(own: Device, peers: list[Device], tmp_path: Path, *, is_fast: bool = True) -> WorkerStart:
    config = Config(state_dir=tmp_path, fast_moves=is_fast, limits=Limits(image_bytes=0))
    return worker_start(own, config, frozenset({"mount"}), None, peers=peers)


def has(start: WorkerStart, node: str) -> bool:
    return any(entry.path == node for entry in start.root.entries())


def test_without_fast_moves_a_worker_sees_its_own_alone(tmp_path: Path) -> None:
    start = started(CARDS[1], CARDS, tmp_path, is_fast=False)
    assert start.environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert (start.ordinal, start.sees, start.other_nodes, start.kept_image_bytes) == (0, "", (), 0)
    assert not has(start, "/dev/full")


def test_with_fast_moves_it_sees_all_that_are_served_by_one_numbering(tmp_path: Path) -> None:
    served = [CARDS[0], CARDS[2]]
    starts = [started(each, served, tmp_path) for each in served]
    assert {start.environment["CUDA_VISIBLE_DEVICES"] for start in starts} == {"GPU-0,GPU-2"}
    assert [start.ordinal for start in starts] == [0, 1]
    assert {start.sees for start in starts} == {"GPU-0,GPU-2"}
    assert [start.other_nodes for start in starts] == [("/dev/full",), ("/dev/null",)]
    assert all(has(start, "/dev/full") for start in starts)


def test_what_it_keeps_is_its_vgpu_s_to_have(tmp_path: Path) -> None:
    before, after = (started(CARDS[0], CARDS, tmp_path, is_fast=is_fast) for is_fast in (False, True))
    assert after.kept_image_bytes == GIB
    assert after.memory_bytes == before.memory_bytes + GIB


def test_the_other_nodes_are_told_where_there_are_roots(tmp_path: Path) -> None:
    start = started(CARDS[0], CARDS[:2], tmp_path)
    assert start.message("web")["nodes"] == ["/dev/zero"]
    open_walls = dataclasses.replace(start.walls, names=frozenset())
    assert dataclasses.replace(start, walls=open_walls).message("web")["nodes"] == []


def test_softgpus_are_counted_alike_and_have_no_nodes(tmp_path: Path) -> None:
    start = started(SOFT[2], SOFT[1:], tmp_path)
    assert (start.ordinal, start.sees, start.other_nodes) == (1, "GPU-1,GPU-2", ())
    assert start.environment["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"
    alone = started(SOFT[2], SOFT[1:], tmp_path, is_fast=False)
    assert (alone.ordinal, alone.sees) == (2, "")
    assert "CUDA_VISIBLE_DEVICES" not in alone.environment


def test_the_only_gpu_has_nowhere_to_go(tmp_path: Path) -> None:
    start = started(CARDS[0], CARDS[:1], tmp_path)
    assert (start.sees, start.other_nodes, start.kept_image_bytes) == ("", (), 0)
    assert start.environment["CUDA_VISIBLE_DEVICES"] == "GPU-0"
