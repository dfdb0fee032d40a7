"""The store, as a process of its own: what one daemon puts there the next one gets, however the first one ended."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.errors import FairGVError
from backend_host.restart.keeping import MESSAGE_BYTES, StoreProcess
from backend_host.restart.store import SOCKET, Store


@pytest.fixture
def served(tmp_path: Path) -> Iterator[threading.Thread]:
    """A store in this process, which stays for a moment only."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(tmp_path / SOCKET))
    listener.listen(4)
    process = StoreProcess(listener, linger_s=0.2)
    thread = threading.Thread(target=process.run)
    thread.start()
    yield thread
    thread.join(10)
    assert not thread.is_alive()
    process.close()


def file_of(text: str) -> int:
    fd = os.memfd_create("kept")
    os.write(fd, text.encode())
    return fd


def text_of(fd: int) -> str:
    return os.pread(fd, 100, 0).decode()


def put(store: Store, name: str, text: str) -> None:
    fd = file_of(text)
    store.put(name, {"text": text}, [fd])
    os.close(fd)


def taken(tmp_path: Path) -> dict[str, tuple[dict[str, object], list[str]]]:
    """What the next daemon gets."""
    store = Store.open(tmp_path)
    items, foreign = store.take()
    found = {item.name: (item.record, [text_of(fd) for fd in item.fds]) for item in items}
    for item in [*items, *foreign]:
        item.close()
    store.close()
    return found


def test_the_next_daemon_gets_what_was_put(served: threading.Thread, tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    put(store, "one", "1")
    put(store, "two", "2")
    store.put("bare", {"a": [1]})
    store.close()
    assert taken(tmp_path) == {"one": ({"text": "1"}, ["1"]), "two": ({"text": "2"}, ["2"]), "bare": ({"a": [1]}, [])}
    assert taken(tmp_path).keys() == {"one", "two", "bare"}, "to take is not to take away"


def test_a_record_alone_changes_and_descriptors_stay(served: threading.Thread, tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    put(store, "one", "1")
    store.put("one", {"text": "changed"})
    put(store, "gone", "2")
    store.put("one", {"text": "changed again"}, drop=["gone", "never there"])
    put(store, "other", "3")
    put(store, "other", "4")
    store.drop("never there")
    store.close()
    assert taken(tmp_path) == {"one": ({"text": "changed again"}, ["1"]), "other": ({"text": "4"}, ["4"])}


def test_what_is_of_another_release_is_told_apart(served: threading.Thread, tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store._prefix = "ancient/"
    put(store, "one", "1")
    store.close()
    store = Store.open(tmp_path)
    ours, [old] = store.take()
    assert (ours, old.name, [text_of(fd) for fd in old.fds]) == ([], "ancient/one", ["1"])
    store.drop_items([old.name])
    old.close()
    store.close()
    assert taken(tmp_path) == {}


def test_it_stays_for_as_long_as_a_life(served: threading.Thread, tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        pidfd = os.pidfd_open(process.pid)
        store = Store.open(tmp_path)
        store.put("process", {}, [pidfd], has_life=True)
        store.put("connection", {}, [theirs.fileno()], has_life=True)
        store.close()
        for fd in (pidfd, theirs.detach()):
            os.close(fd)
        process.kill()
    served.join(0.6)
    assert served.is_alive(), "the connection lives"
    ours.send(b"a word is no end")
    served.join(0.6)
    assert served.is_alive()
    ours.close()
    served.join(10)
    assert not served.is_alive()


def test_it_ends_when_it_is_told_to(served: threading.Thread, tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    put(store, "one", "1")
    store.end()
    served.join(10)
    assert not served.is_alive()


@pytest.mark.parametrize(
    "nonsense",
    [b"", b"{", b"[]", b"{}", b'{"op": "put"}', b'{"op": "put", "name": 1, "drop": 1}', b'{"op": "put", "drop": [[]]}'],
)
def test_a_daemon_that_talks_nonsense_is_cut_off(served: threading.Thread, tmp_path: Path, nonsense: bytes) -> None:
    store = Store.open(tmp_path)
    put(store, "one", "1")
    store.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.connect(str(tmp_path / SOCKET))
        stranger.send(nonsense)
    assert taken(tmp_path).keys() == {"one"}


def test_a_store_that_is_gone_costs_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    store = Store(ours)
    theirs.close()
    store.put("one", {})
    store.put("one", {})
    store.drop("one")
    assert caplog.text.count("programs would not outlive this daemon") == 1
    assert not store.is_kept


def test_a_record_that_is_too_long_is_said_and_costs_no_other(
    served: threading.Thread, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store.open(tmp_path)
    put(store, "one", "1")
    store.put("long", {"text": "x" * MESSAGE_BYTES})
    assert "long is not kept for the next daemon: a record of" in caplog.text
    put(store, "two", "2")
    assert store.is_kept
    store.close()
    assert taken(tmp_path).keys() == {"one", "two"}


@pytest.mark.parametrize("answer", [b"{", b'{"name": 1}', b'{"name": "a", "record": 1, "has_life": false}', b""])
def test_a_store_that_talks_nonsense(answer: bytes) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        store = Store(ours)
        theirs.send(answer)
        with pytest.raises(FairGVError, match="does not tell"):
            store.take()
        store.close()


def test_a_private_daemon_keeps_nothing() -> None:
    store = Store()
    store.put("one", {})
    assert store.take() == ([], [])
    store.end()


def test_it_is_started_where_there_is_none(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    put(store, "one", "1")
    store.close()
    assert taken(tmp_path).keys() == {"one"}
    assert (tmp_path / SOCKET).stat().st_mode & 0o777 == 0o600
    store = Store.open(tmp_path)
    store.end()
