"""Descriptors over sockets: their flags are not lost on the way, as Python's own functions lose them."""

import os
import socket
from collections.abc import Iterator

import pytest

from ivshmem.passing import receive_with, send_with

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def test_what_is_received_is_for_this_process_alone(pair: Pair) -> None:
    read, write = os.pipe()
    assert send_with(pair[0], b"two", [read, write]) == 3
    data, fds = receive_with(pair[1], 64, 4)
    assert data == b"two"
    assert len(fds) == 2
    assert not any(os.get_inheritable(fd) for fd in fds)
    os.write(fds[1], b"x")
    assert os.read(read, 1) == b"x"
    for fd in (read, write, *fds):
        os.close(fd)


def test_a_socket_that_is_full_is_not_waited_for(pair: Pair) -> None:
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with pytest.raises(BlockingIOError):
        for _ in range(10_000):
            send_with(pair[0], bytes(1024), [pair[1].fileno()], socket.MSG_DONTWAIT)


def test_bytes_alone_and_the_end(pair: Pair) -> None:
    assert send_with(pair[0], b"none", []) == 4
    assert receive_with(pair[1], 64, 4) == (b"none", [])
    pair[0].close()
    assert receive_with(pair[1], 64, 4) == (b"", [])


def test_what_is_too_much_is_cut(pair: Pair) -> None:
    assert send_with(pair[0], b"many", [pair[1].fileno()] * 8) == 4
    data, fds = receive_with(pair[1], 64, 2)
    assert data == b"many"
    assert len(fds) == 2
    for fd in fds:
        os.close(fd)
