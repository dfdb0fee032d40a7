"""Pinned memory beyond the region, asked of a device that is two files: its registers and its window."""

import mmap
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ivshmem.front import window_front_bytes
from ivshmem.region import ClientState, Region, lib
from tests.frontend_guest.conftest import RunScene, Scene, region_of

MIB = 1 << 20
REGION_BYTES, WINDOW_BYTES, STEP_BYTES = 16 * MIB, 256 * MIB, 8 * MIB
FRONT_BYTES = window_front_bytes(WINDOW_BYTES)
MAGIC = 0x1_4D564746
AT_WINDOW, AT_MAPPED, AT_WANTED, AT_STATE, AT_CHANGES = 0x08, 0x10, 0x18, 0x20, 0x28
NOTHING = 2**64 - 1
"""Stands in the register while nobody wants anything."""
REFUSED = 3
OTHER = 9
OUT_OF_MEMORY = "pin: CUDA_ERROR_OUT_OF_MEMORY"
SUCCESS = "pin: CUDA_SUCCESS"

Answer = Callable[[int], int | None]


class Device:
    """Answers in a thread of its own: with how much is mapped then, or None."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "resource0").write_bytes(bytes(4096))
        with (folder / "resource2").open("wb") as file:
            file.truncate(WINDOW_BYTES)
        with (folder / "resource0").open("r+b") as file:
            self.registers = mmap.mmap(file.fileno(), 4096)
        self.answer: Answer = lambda wanted: wanted
        self.asked: list[int] = []
        self._is_ending = threading.Event()
        for offset, value in [(0, MAGIC), (AT_WINDOW, WINDOW_BYTES), (AT_WANTED, NOTHING)]:
            self.write(offset, value)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def write(self, offset: int, value: int) -> None:
        self.registers[offset : offset + 8] = struct.pack("<Q", value)

    def read(self, offset: int) -> int:
        return int.from_bytes(self.registers[offset : offset + 8], "little")

    def _serve(self) -> None:
        while not self._is_ending.wait(0.0005):
            if (wanted := self.read(AT_WANTED)) == NOTHING:
                continue
            self.asked.append(wanted)
            self.write(AT_WANTED, NOTHING)
            mapped = self.answer(wanted)
            if mapped is not None:
                self.write(AT_MAPPED, mapped)
            self.write(AT_STATE, 0 if mapped is not None else REFUSED << 32)
            self.write(AT_CHANGES, len(self.asked))

    def close(self) -> None:
        self._is_ending.set()
        self._thread.join()
        self.registers.close()


@pytest.fixture
def region() -> Iterator[Region]:
    with region_of(REGION_BYTES) as region:
        yield region


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    device = Device(tmp_path)
    yield device
    device.close()


RunGrown = Callable[..., Scene]


@pytest.fixture
def run_grown(run_answered: RunScene, device: Device) -> RunGrown:
    """Runs a scene; the worker has `worker_bytes` of the window."""

    def run(scene: str, worker_bytes: int = WINDOW_BYTES) -> Scene:
        window = str(device.folder / "resource2")
        return run_answered(scene, "window", window, str(worker_bytes), FAIRGV_MEMORY=str(device.folder))

    return run


def test_the_heap_goes_on_behind_the_region(run_grown: RunGrown, device: Device) -> None:
    scene = run_grown("pin")
    assert scene.said == [SUCCESS] * 5 + ["0 wrong", "again: CUDA_SUCCESS"]
    assert scene.errors == []
    first = FRONT_BYTES + STEP_BYTES
    assert device.asked == [first + i * STEP_BYTES for i in range(4)], "one step fits into the region"
    assert [line for line in scene.answered if line.startswith("window")] == [f"window {size}" for size in device.asked]
    assert scene.answered.count(f"to place 2 bytes {STEP_BYTES} stream 0") == 1
    with (device.folder / "resource2").open("rb") as window:
        owners = window.read(FRONT_BYTES)
        window.seek(first + 2 * STEP_BYTES)
        assert window.read(8) == bytes(8), "memory that is given out again was cleared"
    mine = owners[FRONT_BYTES // 4096 * 2 : first // 4096 * 2]
    assert set(struct.unpack(f"<{len(mine) // 2}H", mine)) == {1}, "the first client's"


def test_more_than_was_wanted(run_grown: RunGrown, device: Device) -> None:
    device.answer = lambda wanted: wanted + 3 * STEP_BYTES // 2
    assert run_grown("pin").said[:6] == [SUCCESS] * 5 + ["0 wrong"]
    first = FRONT_BYTES + STEP_BYTES
    assert device.asked == [first, first + 2 * STEP_BYTES], "what is free at the end counts"


def no_room(mib: int) -> str:
    """What a program is told once, that has so much."""
    return f"fairgv: no room for 8 MiB of pinned or managed memory: there are {mib} MiB for it; fairgv-run --region SIZE gives more"


def test_a_refusal(run_grown: RunGrown, device: Device) -> None:
    device.answer = lambda wanted: wanted if wanted <= FRONT_BYTES + 2 * STEP_BYTES else None
    scene = run_grown("pin")
    assert scene.said == [SUCCESS] * 3 + [OUT_OF_MEMORY] * 2 + ["0 wrong", "again: CUDA_SUCCESS"]
    assert scene.errors == [no_room(32)]


def test_a_device_that_says_nonsense(run_grown: RunGrown, device: Device) -> None:
    device.answer = lambda wanted: wanted if wanted <= FRONT_BYTES + STEP_BYTES else WINDOW_BYTES + STEP_BYTES
    assert run_grown("pin").said[:5] == [SUCCESS] * 2 + [OUT_OF_MEMORY] * 3


def test_a_device_that_gives_a_part_of_a_page(run_grown: RunGrown, device: Device) -> None:
    device.answer = lambda wanted: wanted - 1
    assert run_grown("pin").said[:5] == [SUCCESS] + [OUT_OF_MEMORY] * 4


@pytest.mark.parametrize(("worker_bytes", "nr_steps"), [(0, 1), (FRONT_BYTES, 1), (FRONT_BYTES + STEP_BYTES, 2)])
def test_a_worker_that_has_less_of_it(run_grown: RunGrown, worker_bytes: int, nr_steps: int) -> None:
    scene = run_grown("pin", worker_bytes)
    assert scene.said[:5] == [SUCCESS] * nr_steps + [OUT_OF_MEMORY] * (5 - nr_steps)
    assert scene.said[5] == "0 wrong"


def test_what_another_program_asked_for(run_grown: RunGrown, device: Device) -> None:
    device.write(AT_MAPPED, FRONT_BYTES + 4 * STEP_BYTES)
    assert run_grown("pin").said[:5] == [SUCCESS] * 5
    assert device.asked == []


def test_one_program_asks_at_a_time(run_grown: RunGrown, device: Device, region: Region) -> None:
    """The lock is another one's until the daemon takes it back."""
    assert lib.fgv_grower_take(region.c_region, OTHER)
    asked_before: list[int] = []

    def take_back() -> None:
        while not any(client.state == ClientState.READY for client in region.clients()):
            time.sleep(0.001)
        asked_before.extend(device.asked)
        region.reclaim(OTHER)

    thread = threading.Thread(target=take_back)
    thread.start()
    assert run_grown("pin").said[:5] == [SUCCESS] * 5
    thread.join()
    assert asked_before == []
    assert lib.fgv_grower_take(region.c_region, OTHER), "given back"


def test_a_request_that_a_dead_program_left(run_grown: RunGrown, device: Device) -> None:
    device.write(AT_STATE, 1)
    ended = threading.Timer(0.5, lambda: device.write(AT_STATE, 0))
    ended.start()
    assert run_grown("pin").said[:5] == [SUCCESS] * 5
    ended.join()


def test_registered_memory(run_grown: RunGrown) -> None:
    assert run_grown("register").said == ["pointer: CUDA_SUCCESS"] * 2 + ["9 7", "9 7"]


@pytest.mark.parametrize(
    ("offset", "value"),
    [(0, 0), (0, 0x2_4D564746), (AT_WINDOW, 0), (AT_WINDOW, 3 * MIB), (AT_WINDOW, 2**63), (AT_WINDOW, 2**64 - 4096)],
)
def test_a_device_that_is_none(run_grown: RunGrown, device: Device, offset: int, value: int) -> None:
    device.write(offset, value)
    assert run_grown("pin").said[:5] == [SUCCESS] + [OUT_OF_MEMORY] * 4
    assert device.asked == []


@pytest.mark.parametrize("missing", ["resource0", "resource2"])
def test_a_device_that_cannot_be_opened(run_answered: RunScene, device: Device, missing: str) -> None:
    (device.folder / missing).unlink()
    scene = run_answered("pin", FAIRGV_MEMORY=str(device.folder))
    assert scene.said[:5] == [SUCCESS] + [OUT_OF_MEMORY] * 4
    assert scene.errors == [no_room(16)]
