"""A worker's words in the daemon's log: bounded, cleaned, named; and nobody waits for their reader."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.guest_log import NR_LINES
from backend_host.worker_log import LINE_BYTES, WorkerLog, shown
from tests.end_to_end.host import start_host, stop_host

PIPE_BYTES = 1 << 16
FLOOD = """
import os
line = b"\\x1b]0;owned\\x07\\x1b[2J" + b"x" * 1000 + b"\\n"
written = 0
while written < 100_000_000:
    try:
        written += os.write(2, line * 60)
    except BlockingIOError:
        written += 60 * len(line)
"""


@pytest.fixture
def worker_log() -> Iterator[WorkerLog]:
    made = WorkerLog()
    made.start()
    yield made
    made.stop()


def nr_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_flood_of_escape_sequences(worker_log: WorkerLog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fairgv")
    before = nr_descriptors()
    with worker_log.pipe(3) as said:
        worker_log.name(3, "web", "\x1b[31mprogram")
        worker = subprocess.Popen([sys.executable, "-c", FLOOD], stderr=said)
    assert worker.wait() == 0
    worker_log.close(3)
    assert nr_descriptors() == before
    text = caplog.text
    assert "\x1b" not in text
    assert "\x07" not in text
    assert len(caplog.records) == NR_LINES + 1
    assert all(record.getMessage().startswith("web: ") for record in caplog.records)
    assert r"a worker of \x1b[31mprogram: \x1b]0;owned\x07" in text
    assert len(text) < (NR_LINES + 1) * (2 * LINE_BYTES)


def test_one_guest_has_one_share_whatever_its_workers_are(
    worker_log: WorkerLog, caplog: pytest.LogCaptureFixture
) -> None:
    for slot in range(10):
        with worker_log.pipe(slot) as said:
            worker_log.name(slot, "web", "program")
            os.write(said, b"a line\n" * 10)
        worker_log.close(slot)
    assert len(caplog.records) == NR_LINES + 1


def say(worker_log: WorkerLog, words: bytes) -> None:
    """By a worker that then ends."""
    with worker_log.pipe(1) as said:
        worker_log.name(1, "web", "program")
        assert os.write(said, words) == len(words)
    worker_log.close(1)


def test_lines_that_are_not_told_cost_nothing_each() -> None:
    worker_log = WorkerLog()
    say(worker_log, b"\n" * NR_LINES * 2)
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _: calls.append(event))
    say(worker_log, b"\n" * PIPE_BYTES)
    sys.setprofile(None)
    assert len(calls) < PIPE_BYTES / 100
    worker_log.stop()


def test_lines_that_are_not_told_are_counted(
    worker_log: WorkerLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(worker_log, b"a line\n" * 1000 + b"x" * 2 * LINE_BYTES)
    monkeypatch.setattr("backend_host.guest_log.time.monotonic_ns", lambda: 2**62)
    say(worker_log, b"the next\n")
    said = [record.getMessage() for record in caplog.records[NR_LINES:]]
    assert said == [
        "web: too much to say of this guest; no more within this minute",
        f"web: {1001 - NR_LINES} lines more were dropped",
        "web: a worker of program: the next",
    ]


def test_between_two_reads_it_rests() -> None:
    rests, may_go_on = threading.Semaphore(0), threading.Semaphore(0)

    def rest(_: float) -> None:
        rests.release()
        may_go_on.acquire()

    worker_log = WorkerLog(rest)
    worker_log.start()
    with worker_log.pipe(1) as said:
        os.write(said, b"a line\n")
        rests.acquire()
        with pytest.raises(BlockingIOError):
            while True:
                os.write(said, bytes(PIPE_BYTES))
        may_go_on.release()
        rests.acquire()
        assert os.write(said, bytes(PIPE_BYTES)) == PIPE_BYTES
        may_go_on.release(2)
    worker_log.stop()


def test_a_line_without_an_end_is_told_with_the_end_of_its_worker(
    worker_log: WorkerLog, caplog: pytest.LogCaptureFixture
) -> None:
    with worker_log.pipe(1) as said:
        os.write(said, b"no device")
        worker_log.close(1)
    assert [record.getMessage() for record in caplog.records] == [": a worker without a client: no device"]


def test_who_writes_is_not_kept_waiting(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody reads: the daemon stands still."""
    worker_log = WorkerLog()
    with worker_log.pipe(1) as said, pytest.raises(BlockingIOError):
        while True:
            os.write(said, bytes(4096))
    worker_log.stop()


def test_what_is_shown() -> None:
    assert shown("Grüße\t\x1b[0m\u202e\r".encode() + b"\xff") == r"Grüße\t\x1b[0m\u202e\r\xff"


def test_an_assertion_goes_to_the_guest_and_not_into_the_log(tmp_path: Path) -> None:
    host = start_host(tmp_path)
    native = host.native("device_assert")
    served = host.guest("device_assert")
    assert served.stderr == native.stderr != ""
    assert "Assertion" not in host.log()
    stop_host(host)


def test_words_without_a_reader_end_nobody() -> None:
    """As after the daemon's death: SIGPIPE is ignored in what Python runs."""
    worker_log = WorkerLog()
    with worker_log.pipe(1) as said:
        worker_log.close(1)
        speak = "import os\ntry:\n    os.write(2, b'x')\nexcept BrokenPipeError:\n    os._exit(7)"
        assert subprocess.run([sys.executable, "-c", speak], stderr=said, check=False).returncode == 7
    worker_log.stop()
