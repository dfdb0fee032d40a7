"""The shelf of a vGPU: who finds what, and workers that say what no worker says."""

import os
import resource
import socket
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from backend_host import daemon, shelf
from backend_host.config import Config
from backend_host.device.control import MAX_VGPUS, ControlPage
from backend_host.devices import probe
from backend_host.guest_log import NR_LINES
from backend_host.shelf import DROP, FIND, FOUND, PUT, Message, Shelves
from backend_host.shelf_thread import ShelfThread
from backend_host.worker_start import worker_start
from backend_host.workers import Workers

KEY, OTHER = (1, 2), (1, 3)


class Worker:
    """A worker's end of its socket, and the daemon's."""

    def __init__(self, shelves: Shelves, vgpu: int = 0) -> None:
        self.shelves, self.vgpu = shelves, vgpu
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def send(self, data: bytes, nr_files: int = 0) -> None:
        files = [os.memfd_create("shared") for _ in range(nr_files)]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", files))] if files else []
        self.theirs.sendmsg([data], rights)
        for file in files:
            os.close(file)

    def say(self, word: int, key: tuple[int, int], nbytes: int = 0, nr_files: int = 0) -> None:
        self.send(Message(word, key, nbytes).packed(), nr_files)

    def is_heard(self) -> bool:
        return self.shelves.read(self, self.vgpu, self.ours)

    def found(self, key: tuple[int, int]) -> int:
        """How many files the worker is told of, which are closed."""
        self.say(FIND, key)
        assert self.is_heard()
        self.shelves.answer()
        return self.told(key)

    def told(self, key: tuple[int, int]) -> int:
        data, files, _, _ = socket.recv_fds(self.theirs, 64, 250)
        message = Message.unpacked(data)
        assert (message.word, message.key) == (FOUND, key)
        assert (message.nbytes != 0) == bool(files)
        for file in files:
            os.close(file)
        return len(files)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


def nr_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def shelves() -> Iterator[Shelves]:
    before = nr_open()
    shelves = Shelves(clock=lambda: 0.0)
    yield shelves
    shelves.close()
    assert shelves.nr_files == 0
    assert nr_open() == before, "every descriptor was closed"


@pytest.fixture
def workers(shelves: Shelves) -> Iterator[Sequence[Worker]]:
    """Two of one vGPU, and one of another."""
    workers = [Worker(shelves), Worker(shelves), Worker(shelves, vgpu=1)]
    yield workers
    for worker in workers:
        worker.close()


def test_what_one_puts_the_others_of_its_vgpu_find(workers: Sequence[Worker]) -> None:
    first, second, foreign = workers
    first.say(PUT, KEY, 4096, nr_files=3)
    assert first.is_heard()
    assert second.found(KEY) == first.found(KEY) == 3
    assert second.found(OTHER) == 0
    assert foreign.found(KEY) == 0
    first.say(DROP, KEY)
    assert first.is_heard()
    assert second.found(KEY) == 0


def test_what_is_looked_for_is_answered_when_all_is_read(workers: Sequence[Worker], shelves: Shelves) -> None:
    first, second, _ = workers
    first.say(PUT, KEY, 4096, nr_files=1)
    second.say(FIND, KEY)
    assert second.is_heard(), "before the first is read"
    assert first.is_heard()
    shelves.answer()
    assert second.told(KEY) == 1


def test_what_a_worker_had_goes_with_it(workers: Sequence[Worker], shelves: Shelves) -> None:
    first, second, _ = workers
    first.say(PUT, KEY, 4096, nr_files=2)
    second.say(PUT, OTHER, 4096, nr_files=1)
    assert first.is_heard()
    assert second.is_heard()
    first.theirs.close()
    assert not first.is_heard(), "it has ended"
    shelves.leave(first)
    assert shelves.nr_files == 1
    assert second.found(KEY) == 0
    assert second.found(OTHER) == 1


def test_last_words_are_no_mistake(workers: Sequence[Worker]) -> None:
    workers[0].send(b'{"ended": "the client closed", "a": 1}')
    workers[0].send(b"{" + bytes(31))
    assert workers[0].is_heard()


@pytest.mark.parametrize(
    ("data", "nr_files"),
    [
        (b"noise", 0),
        (b"noise", 2),
        (Message(PUT, KEY, 4096).packed() + b"more", 1),
        (Message(PUT, KEY, 4096).packed()[:-1], 1),
        (Message(PUT, KEY, 4096).packed(), 0),
        (Message(PUT, KEY, 0).packed(), 1),
        (Message(PUT, KEY, 4096).packed(), shelf.MOST_FILES + 1),
        (Message(FIND, KEY, 0).packed(), 1),
        (Message(DROP, KEY, 0).packed(), 1),
        (Message(FOUND, KEY, 4096).packed(), 1),
        (Message(0, KEY, 0).packed(), 0),
        (bytes(shelf.MOST_BYTES + 1), 1),
    ],
)
def test_who_says_nonsense_is_not_listened_to(workers: Sequence[Worker], data: bytes, nr_files: int) -> None:
    workers[0].send(data, nr_files)
    assert not workers[0].is_heard()
    assert workers[1].found(KEY) == 0


def test_one_key_twice_and_another_s_memory(workers: Sequence[Worker]) -> None:
    first, second, foreign = workers
    first.say(PUT, KEY, 4096, nr_files=1)
    assert first.is_heard()
    second.say(PUT, KEY, 4096, nr_files=1)
    assert not second.is_heard()
    second.say(DROP, KEY)
    assert not second.is_heard()
    foreign.say(DROP, KEY)
    assert foreign.is_heard(), "there is nothing on its shelf"
    assert first.found(KEY) == 1


def test_a_shelf_is_full_at_some_time(workers: Sequence[Worker], shelves: Shelves) -> None:
    first, second, foreign = workers
    nr = shelf.MOST_SHARED_FILES // 128
    for number in range(nr):
        first.say(PUT, (number, 0), 4096, nr_files=128)
        assert first.is_heard()
    second.say(PUT, OTHER, 4096, nr_files=1)
    assert second.is_heard(), "it may be honest"
    assert second.found(OTHER) == 0
    assert shelves.nr_files == shelf.MOST_SHARED_FILES
    foreign.say(PUT, KEY, 4096, nr_files=1)
    assert foreign.is_heard()
    assert foreign.found(KEY) == 1, "another vGPU's shelf is its own"
    first.say(DROP, (0, 0))
    assert first.is_heard()
    second.say(PUT, OTHER, 4096, nr_files=1)
    assert second.is_heard()
    assert second.found(OTHER) == 1


def test_a_full_shelf_fills_no_log(workers: Sequence[Worker], caplog: pytest.LogCaptureFixture) -> None:
    first, _, foreign = workers
    for number in range(shelf.MOST_SHARED_FILES // 128 + 5 * NR_LINES):
        first.say(PUT, (number, 0), 4096, nr_files=128)
        assert first.is_heard()
    foreign.send(b"noise")
    assert not foreign.is_heard()
    first_said, *_, last, foreign_said = [record.getMessage() for record in caplog.records]
    assert first_said.startswith("vGPU 0: its programs share more memory than there is room for")
    assert last == "vGPU 0: too much to say of this guest; no more within this minute"
    assert foreign_said.startswith("vGPU 1: a worker said what no worker says")
    assert len(caplog.records) == NR_LINES + 2


def test_full_shelves_of_others_take_nothing_from_one() -> None:
    shelves = Shelves(most_files=2)
    workers = [Worker(shelves, vgpu) for vgpu in range(MAX_VGPUS)]
    for worker in workers:
        worker.say(PUT, KEY, 4096, nr_files=2)
        assert worker.is_heard()
        worker.say(PUT, OTHER, 4096, nr_files=1)
        assert worker.is_heard()
    assert [worker.found(KEY) for worker in workers] == [2] * MAX_VGPUS
    assert [worker.found(OTHER) for worker in workers] == [0] * MAX_VGPUS
    for worker in workers:
        worker.close()
    shelves.close()


@pytest.mark.parametrize(
    ("limit", "nr_gpus", "most"),
    [
        (1024, 1, 8),
        (1024, 8, 1),
        (20_000, 1, 156),
        (daemon.MAX_DESCRIPTORS, 1, shelf.MOST_SHARED_FILES),
        (daemon.MAX_DESCRIPTORS, 8, shelf.MOST_SHARED_FILES // 8),
        (resource.RLIM_INFINITY, 8, shelf.MOST_SHARED_FILES),
    ],
)
def test_full_shelves_leave_the_daemon_half_of_what_it_may_have_open(
    control: ControlPage, monkeypatch: pytest.MonkeyPatch, limit: int, nr_gpus: int, most: int
) -> None:
    start = worker_start(probe("soft", Config().softgpu_library)[0], Config(), frozenset(), None)
    with monkeypatch.context() as patch:
        patch.setattr(resource, "getrlimit", lambda _: (limit, limit))
        workers = Workers(control, start, 0, nr_gpus=nr_gpus)
    workers.start()
    try:
        assert workers._shelves._shelves._most_files == most
    finally:
        workers.stop()


def test_a_flood_ends(shelves: Shelves) -> None:
    now = [0.0]
    shelves = Shelves(clock=lambda: now[0])
    worker = Worker(shelves)
    nr_heard = 0
    for _ in range(2):
        for _ in range(shelf.MOST_IN_A_SECOND):
            worker.say(DROP, KEY)
            assert worker.is_heard()
            nr_heard += 1
        now[0] += 1.0
    for _ in range(shelf.MOST_IN_A_SECOND):
        worker.say(DROP, KEY)
        assert worker.is_heard()
    worker.say(DROP, KEY)
    assert not worker.is_heard()
    worker.close()


def test_one_worker_s_messages_do_not_keep_the_others_waiting(workers: Sequence[Worker]) -> None:
    for _ in range(shelf.MOST_AT_ONCE + 1):
        workers[0].say(FIND, KEY)
    assert workers[0].is_heard()
    assert workers[0].ours.recv(64, socket.MSG_DONTWAIT), "one is left"


def test_one_that_does_not_read_is_not_waited_for(workers: Sequence[Worker], shelves: Shelves) -> None:
    workers[0].ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    for _ in range(1000):
        workers[0].say(FIND, KEY)
        assert workers[0].is_heard()
        shelves.answer()
    assert workers[1].found(KEY) == 0


def test_a_thread_listens_while_others_are_busy() -> None:
    """Workers come and go, and one socket has the number of another that was closed."""
    thread = ShelfThread(shelf.MOST_SHARED_FILES, str)
    thread.start()
    try:
        for number in range(20):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            thread.listen(number, 0, ours)
            with Path(os.devnull).open("rb") as file:
                message = Message(PUT, (1, 2), 4096).packed()
                theirs.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [file.fileno()]))])
            theirs.send(Message(FIND, (1, 2), 0).packed())
            theirs.settimeout(60)
            data, rights, _, _ = theirs.recvmsg(4096, socket.CMSG_LEN(64))
            assert Message.unpacked(data) == Message(FOUND, (1, 2), 4096)
            for _, _, packed in rights:
                os.close(array("i", packed)[0])
            thread.leave(number, ours)
            ours.close()
            theirs.close()
    finally:
        thread.stop()
