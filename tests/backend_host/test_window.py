"""The daemon as the peer of a `fairgv-memory` device: what it gives, to whom it tells it, and what a QEMU that lies gets."""

import dataclasses
import os
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.device.control import ControlPage
from backend_host.guest_log import NR_LINES
from backend_host.restart.records import PieceRecord
from backend_host.restart.store import Store
from backend_host.walls.root import Root
from backend_host.walls.settings import PLAIN
from backend_host.walls.start import Walls
from backend_host.window import (
    HELLO,
    WANT,
    Message,
    Window,
    WindowPeer,
    available_bytes,
    piece_bytes,
)
from backend_host.worker_process import Slot, WorkerProcess
from ivshmem.front import window_front_bytes
from ivshmem.region import PAGE_BYTES, Region, ffi
from tests.backend_host.window_device import LIMIT_BYTES, LIMIT_S, WINDOW_BYTES, Device, listening_device
from tests.backend_host.worker_guest import make_region
from tests.end_to_end.host import wait_until

MIB = 1 << 20
STEP_BYTES = 16 * MIB


@pytest.fixture
def region() -> Iterator[Region]:
    with make_region(16 * MIB) as region:
        yield region


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    with listening_device(tmp_path / "memory.sock") as device:
        yield device


@pytest.fixture
def window(region: Region) -> Window:
    window = Window("web", region)
    window.limit_bytes = LIMIT_BYTES
    return window


@pytest.fixture
def peer(window: Window, device: Device) -> Iterator[WindowPeer]:
    peer = WindowPeer(window, device.path, os.geteuid())
    peer.start()
    yield peer
    peer.stop()
    peer.join()
    assert window.mapped_bytes == 0


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    """A process that does nothing, told of pieces."""
    process = Walls(frozenset(), PLAIN).start(["/bin/sleep", "600"], {}, Root())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker = WorkerProcess(Slot(ControlPage(ffi.NULL), 0), process, ours)

    def reap() -> None:
        process.wait()
        worker.is_ended.set()

    thread = threading.Thread(target=reap)
    thread.start()
    theirs.settimeout(LIMIT_S)
    worker.theirs = theirs  # type: ignore[attr-defined]
    yield worker
    process.kill()
    thread.join()
    theirs.close()
    worker.close()


def told(worker: WorkerProcess) -> tuple[int, int, int]:
    """Window, offset and size of the next piece that a worker hears of."""
    data, fds, _, _ = socket.recv_fds(worker.theirs, 64, 4)  # type: ignore[attr-defined]
    [fd] = fds
    window, offset, nbytes = struct.unpack("<QQQ", data)
    assert os.fstat(fd).st_size == nbytes
    os.close(fd)
    return window, offset, nbytes


def test_pieces_up_to_the_limit(region: Region, window: Window, device: Device, peer: WindowPeer) -> None:
    device.accept()
    assert device.given(0, PAGE_BYTES) == STEP_BYTES
    assert window.mapped_bytes == STEP_BYTES
    assert device.is_refused(STEP_BYTES, LIMIT_BYTES - STEP_BYTES + PAGE_BYTES)
    assert device.given(STEP_BYTES, 20 * MIB) == 20 * MIB, "as many as are wanted"
    assert device.given(36 * MIB, PAGE_BYTES) == 4 * MIB, "what is left"
    assert device.is_refused(40 * MIB, PAGE_BYTES)
    front_pages = window_front_bytes(WINDOW_BYTES) // PAGE_BYTES
    statistics = region.statistics()
    assert statistics.nr_free_pages == region.c_region.nr_heap_pages + LIMIT_BYTES // PAGE_BYTES - front_pages
    window.limit_bytes = 2 * LIMIT_BYTES
    assert device.given(40 * MIB, PAGE_BYTES) == STEP_BYTES


def test_workers_hear_of_pieces_before_the_guest_does(
    window: Window, device: Device, peer: WindowPeer, worker: WorkerProcess
) -> None:
    device.accept()
    device.given(0, PAGE_BYTES)
    window.subscribe(worker)
    assert told(worker) == (WINDOW_BYTES, 0, STEP_BYTES)
    device.given(STEP_BYTES, 20 * MIB)
    worker.theirs.setblocking(False)  # type: ignore[attr-defined]
    assert told(worker) == (WINDOW_BYTES, STEP_BYTES, 20 * MIB), "it is there already"


def test_a_reset_ends_the_workers_and_takes_all_back(
    region: Region, window: Window, device: Device, peer: WindowPeer, worker: WorkerProcess
) -> None:
    device.accept()
    window.subscribe(worker)
    device.given(0, PAGE_BYTES)
    device.reset()
    assert device.given(0, 20 * MIB) == 20 * MIB, "all may be had again"
    assert worker.is_ended.is_set()
    assert worker.process.returncode == -signal.SIGKILL
    assert window.mapped_bytes == 20 * MIB


def test_a_reset_without_pieces_ends_nobody(
    window: Window, device: Device, peer: WindowPeer, worker: WorkerProcess
) -> None:
    device.accept()
    window.subscribe(worker)
    assert device.is_refused(0, 2 * LIMIT_BYTES)
    device.reset()
    assert device.is_refused(0, 2 * LIMIT_BYTES)
    assert not worker.process.has_ended()


def test_a_worker_that_cannot_be_told_is_ended(
    window: Window, device: Device, peer: WindowPeer, worker: WorkerProcess
) -> None:
    device.accept()
    window.subscribe(worker)
    worker.theirs.close()  # type: ignore[attr-defined]
    device.given(0, PAGE_BYTES)
    assert worker.is_ended.wait(LIMIT_S)
    assert device.given(STEP_BYTES, PAGE_BYTES) == STEP_BYTES


def test_qemu_comes_later_and_again(window: Window, device: Device, peer: WindowPeer) -> None:
    device.accept()
    device.given(0, PAGE_BYTES)
    device.hang_up()
    device.accept(mapped=STEP_BYTES)
    assert device.given(STEP_BYTES, PAGE_BYTES) == STEP_BYTES
    device.hang_up()
    device.accept(mapped=0)
    assert device.given(0, PAGE_BYTES) == STEP_BYTES, "another QEMU"


def test_qemu_that_ended_leaves_nothing(window: Window, device: Device, peer: WindowPeer) -> None:
    device.accept()
    device.given(0, PAGE_BYTES)
    device.listener.close()
    device.hang_up()
    wait_until(lambda: window.mapped_bytes == 0, "the pieces are given back")


def test_pieces_of_an_earlier_daemon(window: Window, device: Device, peer: WindowPeer) -> None:
    device.accept(mapped=STEP_BYTES)
    assert device.is_refused(STEP_BYTES, PAGE_BYTES)
    device.reset()
    assert device.given(0, PAGE_BYTES) == STEP_BYTES


def test_one_device_after_another(window: Window, device: Device, peer: WindowPeer) -> None:
    device.accept()
    device.given(0, PAGE_BYTES)
    peer.stop()
    later = WindowPeer(window, device.path, os.geteuid(), earlier=peer)
    later.start()
    device.accept()
    assert device.given(0, PAGE_BYTES) == STEP_BYTES
    later.stop()
    later.join()


def test_somebody_elses_socket(window: Window, device: Device) -> None:
    peer = WindowPeer(window, device.path, os.geteuid() + 1)
    peer.start()
    connection, _ = device.listener.accept()
    with connection:
        connection.settimeout(LIMIT_S)
        assert connection.recv(1) == b""
    peer.stop()
    peer.join()


@pytest.mark.parametrize(
    "hello",
    [
        Message(HELLO, 2, 0, 0, WINDOW_BYTES),
        Message(WANT, 1, 0, 0, WINDOW_BYTES),
        Message(HELLO, 1, 0, 0, 0),
        Message(HELLO, 1, 0, 0, WINDOW_BYTES + PAGE_BYTES),
        Message(HELLO, 1, 0, 0, 2**41),
        Message(HELLO, 1, 0, 0, 2**63),
    ],
)
def test_a_device_that_is_none(device: Device, peer: WindowPeer, hello: Message) -> None:
    device.connections.append(device.listener.accept()[0])
    device.say(hello)
    assert device.is_left()


@pytest.mark.parametrize(
    "message",
    [
        Message(WANT, 0, 1, PAGE_BYTES, PAGE_BYTES),
        Message(WANT, 0, 1, 2**64 - PAGE_BYTES, PAGE_BYTES),
        Message(HELLO, 1, 0, 0, WINDOW_BYTES),
        Message(77, 0, 0, 0, 0),
    ],
)
def test_a_device_that_breaks_the_protocol(
    window: Window, device: Device, peer: WindowPeer, worker: WorkerProcess, message: Message
) -> None:
    device.accept()
    window.subscribe(worker)
    device.say(message)
    assert device.is_left()
    assert not worker.process.has_ended(), "others than the device go on"


def test_a_message_that_never_ends(device: Device, peer: WindowPeer) -> None:
    device.accept()
    device.connections[-1].sendall(b"\2\0\0\0")  # stopping must not wait for the rest


@pytest.mark.parametrize("wanted", [0, LIMIT_BYTES + 1, 2**63, 2**64 - 1])
def test_amounts_that_nobody_gets(device: Device, peer: WindowPeer, wanted: int) -> None:
    device.accept()
    assert device.is_refused(0, wanted)


def test_sizes_of_pieces() -> None:
    assert piece_bytes(1, 0, 4096 * MIB, 4096 * MIB) == 128 * MIB
    assert piece_bytes(1, 0, 1 << 40, 1 << 20) is None, "the owners alone are more"
    assert piece_bytes(1, 0, 1 << 40, 1 << 40) == 32 << 30
    assert piece_bytes(3 * MIB + 1, 60 * MIB, 64 * MIB, 1 << 40) == 4 * MIB
    mapped = nr = 0
    while (piece := piece_bytes(1, mapped, 1 << 40, 100 << 30)) is not None:
        mapped, nr = mapped + piece, nr + 1
    assert (mapped, nr <= 64) == (100 << 30, True)


def test_memory_that_the_host_has_not(
    window: Window, device: Device, peer: WindowPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert available_bytes() > MIB
    device.accept()
    monkeypatch.setattr("backend_host.window.available_bytes", lambda: (256 << 20) + STEP_BYTES - 1)
    assert device.is_refused(0, PAGE_BYTES)
    monkeypatch.setattr("backend_host.window.available_bytes", lambda: (256 << 20) + STEP_BYTES)
    assert device.given(0, PAGE_BYTES) == STEP_BYTES


def test_a_guest_does_not_fill_the_log(device: Device, peer: WindowPeer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    device.accept()
    for _ in range(3 * NR_LINES):
        assert device.is_refused(0, 2 * LIMIT_BYTES)
    assert len(caplog.records) == NR_LINES + 1
    assert "no more within this minute" in caplog.text


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path)
    yield store
    store.end()


def left(store: Store) -> list[tuple[PieceRecord, int]]:
    """Pieces, as the next daemon finds them."""
    items, _ = store.take()
    return [(PieceRecord.read(item.record), item.fds[0]) for item in items]


def test_the_next_daemon_goes_on_with_the_pieces(region: Region, device: Device, store: Store) -> None:
    """The device, which connects anew, agrees with it, and is given more."""
    window = Window("web", region, store)
    window.limit_bytes = LIMIT_BYTES
    for _ in range(2):
        window.add(WINDOW_BYTES, PAGE_BYTES)
    nr_free_pages = region.statistics().nr_free_pages
    region.close_window()
    successor = Window("web", region, store)
    successor.limit_bytes = LIMIT_BYTES
    successor.adopt(left(store), [])
    assert successor.mapped_bytes == window.mapped_bytes
    assert region.statistics().nr_free_pages == nr_free_pages
    peer = WindowPeer(successor, device.path, os.geteuid())
    peer.start()
    device.accept(mapped=2 * STEP_BYTES)
    assert device.given(2 * STEP_BYTES, PAGE_BYTES) > 0
    peer.stop()
    peer.join()
    assert left(store) == []


@pytest.mark.parametrize("lost", ["the first", "a size", "the window"])
def test_pieces_that_make_no_window(region: Region, store: Store, lost: str) -> None:
    window = Window("web", region, store)
    window.limit_bytes = LIMIT_BYTES
    for _ in range(2):
        window.add(WINDOW_BYTES, PAGE_BYTES)
    pieces = left(store)
    (first, fd), (second, other) = pieces
    if lost == "the first":
        os.close(fd)
        pieces = pieces[1:]
    elif lost == "a size":
        pieces[1] = (dataclasses.replace(second, nbytes=second.nbytes + PAGE_BYTES), other)
    else:
        pieces[0] = (dataclasses.replace(first, window_bytes=first.window_bytes + PAGE_BYTES), fd)
    successor = Window("web", region, store)
    with pytest.raises((OSError, ValueError)):
        successor.adopt(pieces, [])
    assert successor.mapped_bytes == 0
    window.drop()
