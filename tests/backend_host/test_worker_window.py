"""The window behind the region as a worker sees it: pieces come from the daemon, and a guest can name what is mapped and its own, no more."""

import fcntl
import os
import socket
import struct
from typing import Any

from cuda_api.generated.values import Place
from ivshmem.front import window_front_bytes
from ivshmem.region import PAGE_BYTES
from tests.backend_host.worker_guest import NO_CHUNK, Guest
from tests.backend_host.worker_harness import Served

WINDOW_BYTES = 64 << 20
FRONT_BYTES = window_front_bytes(WINDOW_BYTES)
PIECE_BYTES = 2 << 20
ALL = 2**64 - 1
INVALID_VALUE = 1
ALLOCATION = 0x49_00000001_000001


def make_piece(nbytes: int = PIECE_BYTES, seals: int = fcntl.F_SEAL_SHRINK) -> int:
    fd = os.memfd_create("piece", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, nbytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def send_piece(served: Served, fd: int, offset: int, nbytes: int = PIECE_BYTES, window: int = WINDOW_BYTES) -> None:
    """Closes the descriptor here."""
    socket.send_fds(served.worker.socket, [struct.pack("<QQQ", window, offset, nbytes)], [fd])
    os.close(fd)


def mapped_bytes(guest: Guest, needed: int = ALL) -> int:
    return int(guest.ok("window_map", needed_bytes=needed).mapped_bytes)


def own(guest: Guest, fd: int, nbytes: int) -> None:
    """The guest says in the first piece that so many bytes of the heap there are its own."""
    os.pwrite(fd, struct.pack("<H", guest.index + 1) * (nbytes // PAGE_BYTES), FRONT_BYTES // PAGE_BYTES * 2)


def copy_to(guest: Guest, device: int, offset: int, nbytes: int) -> int:
    """The result of a copy from that offset of the region, or behind it."""
    fields: dict[str, Any] = {"destination": device, "source": guest.address + offset, "stream": 0}
    return guest.call("cuMemcpyHtoDAsync_v2", bytes=nbytes, place=Place.HEAP, chunk=NO_CHUNK, **fields).result


def register(guest: Guest, offset: int, nbytes: int) -> int:
    return guest.call("host_register", address=guest.address + offset, bytes=nbytes).result


def test_pinned_memory_in_the_window(served: Served) -> None:
    guest, region = served.primary(), served.region
    fds = [make_piece(), make_piece()]
    device = guest.ok("cuMemAlloc_v2", bytesize=PIECE_BYTES).dptr
    assert mapped_bytes(guest) == 0
    first = region.region_bytes + FRONT_BYTES
    assert register(guest, first, PAGE_BYTES) == INVALID_VALUE
    for number, fd in enumerate(fds):
        send_piece(served, os.dup(fd), number * PIECE_BYTES)
    assert mapped_bytes(guest, 1) == PIECE_BYTES
    assert mapped_bytes(guest) == 2 * PIECE_BYTES
    assert register(guest, first, PAGE_BYTES) == INVALID_VALUE, "nobody's"
    nbytes = PIECE_BYTES
    own(guest, fds[0], nbytes)
    assert register(guest, first, nbytes) == 0, "across the border of two pieces"
    in_second = FRONT_BYTES  # of the allocation's bytes; the others are in the first piece
    data = os.urandom(nbytes)
    os.pwrite(fds[0], data[: nbytes - in_second], FRONT_BYTES)
    os.pwrite(fds[1], data[nbytes - in_second :], 0)
    assert copy_to(guest, device, first, nbytes) == 0
    assert guest.from_device(device, guest.CHUNK_BYTES) == data[: guest.CHUNK_BYTES]
    assert guest.from_device(device + guest.CHUNK_BYTES, guest.CHUNK_BYTES) == data[guest.CHUNK_BYTES :]
    guest.cast_off("cuMemsetD8Async", dstDevice=device, uc=0x5A, N=nbytes)
    fields: dict[str, Any] = {"source": device, "destination": guest.address + first, "stream": 0}
    guest.ok("cuMemcpyDtoHAsync_v2", bytes=nbytes, place=Place.HEAP, chunk=NO_CHUNK, **fields)
    guest.ok("cuCtxSynchronize")
    assert os.pread(fds[1], in_second, 0) == b"\x5a" * in_second
    assert guest.call("host_unregister", address=guest.address + first).result == 0
    for fd in fds:
        os.close(fd)


def test_pages_of_the_window_in_place_of_memory_of_the_device(served: Served) -> None:
    """They are of two files, of which each is found where the guest has it."""
    guest, first = served.primary(), served.region.region_bytes + FRONT_BYTES
    fds = [make_piece(), make_piece()]
    for number, fd in enumerate(fds):
        send_piece(served, os.dup(fd), number * PIECE_BYTES)
    assert mapped_bytes(guest) == 2 * PIECE_BYTES
    own(guest, fds[0], PIECE_BYTES)
    address = guest.ok("cuMemAddressReserve", bytes=PIECE_BYTES).address
    guest.ok("cuMemCreate", handle=ALLOCATION, bytes=PIECE_BYTES)
    guest.ok("cuMemMap", address=address, bytes=PIECE_BYTES, handle=ALLOCATION)
    guest.ok("cuMemSetAccess", address=address, bytes=PIECE_BYTES, access=3)
    guest.ok("host_place", address=address, bytes=PIECE_BYTES, heap=guest.address + first)
    guest.cast_off("cuMemsetD8Async", dstDevice=address, uc=0x5A, N=PIECE_BYTES)
    guest.ok("cuCtxSynchronize")
    assert os.pread(fds[0], PIECE_BYTES, FRONT_BYTES) == b"\x5a" * (PIECE_BYTES - FRONT_BYTES)
    assert os.pread(fds[1], PIECE_BYTES, 0) == b"\x5a" * FRONT_BYTES + bytes(PIECE_BYTES - FRONT_BYTES)
    guest.ok("host_unplace", address=address)
    guest.ok("cuMemAddressFree", address=address, bytes=PIECE_BYTES)
    for fd in fds:
        os.close(fd)


def test_what_a_guest_cannot_name(served: Served) -> None:
    guest, region = served.primary(), served.region
    device = guest.ok("cuMemAlloc_v2", bytesize=PAGE_BYTES).dptr
    fd = make_piece()
    send_piece(served, os.dup(fd), 0)
    assert mapped_bytes(guest) == PIECE_BYTES
    own(guest, fd, WINDOW_BYTES - FRONT_BYTES)
    end = region.region_bytes
    assert register(guest, end + FRONT_BYTES, PAGE_BYTES) == 0
    for offset, nbytes in [
        (end, PAGE_BYTES),  # the owners themselves
        (end - PAGE_BYTES, 2 * PAGE_BYTES),
        (end + PIECE_BYTES, PAGE_BYTES),  # not mapped
        (end + PIECE_BYTES - PAGE_BYTES, 2 * PAGE_BYTES),
        (end + WINDOW_BYTES, PAGE_BYTES),
        (end + FRONT_BYTES, 2**64 - PAGE_BYTES),
    ]:
        assert register(guest, offset, nbytes) == INVALID_VALUE
        assert copy_to(guest, device, offset, nbytes) == INVALID_VALUE
    os.close(fd)


def test_pieces_that_are_none(served: Served) -> None:
    """They are passed over: the daemon's word is checked as if it were another's."""
    guest, daemon = served.primary(), served.worker.socket
    send_piece(served, make_piece(), PIECE_BYTES)  # not behind what is mapped
    send_piece(served, make_piece(), 0, window=3 << 20)
    for nbytes in (0, PAGE_BYTES, PIECE_BYTES - 1, PIECE_BYTES + PAGE_BYTES, 2 * WINDOW_BYTES, 2**64 - PAGE_BYTES):
        send_piece(served, make_piece(), 0, nbytes)
    send_piece(served, make_piece(seals=0), 0)
    send_piece(served, make_piece(seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE), 0)
    send_piece(served, os.open("/dev/zero", os.O_RDWR), 0)
    good = struct.pack("<QQQ", WINDOW_BYTES, 0, PIECE_BYTES)
    daemon.sendall(good)
    daemon.sendall(b"noise")
    for message, nr_files in [(good, 2), (good + b"more", 1), (good[:-1], 1)]:
        socket.send_fds(daemon, [message], [make_piece() for _ in range(nr_files)])
    assert mapped_bytes(guest) == 0
    send_piece(served, make_piece(), 0)
    assert mapped_bytes(guest) == PIECE_BYTES
    send_piece(served, make_piece(), 0)  # there already
    send_piece(served, make_piece(), PIECE_BYTES, window=2 * WINDOW_BYTES)
    assert mapped_bytes(guest) == PIECE_BYTES
    send_piece(served, make_piece(), PIECE_BYTES)
    assert mapped_bytes(guest) == 2 * PIECE_BYTES


def test_a_daemon_that_is_gone(served: Served) -> None:
    guest = served.primary()
    served.worker.socket.close()
    assert mapped_bytes(guest) == 0
    guest.ok("cuCtxSynchronize")
