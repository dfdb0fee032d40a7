"""Programs of an earlier release: how many are told of while they last, and that nobody waits when they have ended."""

import os
import subprocess
import threading
from collections.abc import Iterator

import pytest

from backend_host.errors import RefusedError
from backend_host.restart.keeping import Item
from backend_host.restart.old import OldPrograms


@pytest.fixture
def programs() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Each ends with its standard input."""
    running = [subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range(2)]
    yield running
    for program in running:
        end(program)


def end(program: subprocess.Popen[bytes]) -> None:
    assert program.stdin is not None
    program.stdin.close()
    program.wait(10)


def test_they_are_waited_for_and_then_nobody_is(programs: list[subprocess.Popen[bytes]]) -> None:
    is_over = threading.Event()
    items = [Item(f"worker/{program.pid}", {}, (os.pidfd_open(program.pid),), has_life=True) for program in programs]
    old = OldPrograms(items, is_over.set)
    old.start()
    assert old.nr == 2
    assert old.sentence().startswith("2 programs are served by an earlier release")
    end(programs[0])
    assert old.nr == 1
    assert old.sentence().startswith("1 program is served by an earlier release")
    with pytest.raises(RefusedError, match="new ones are served when that has ended"):
        old.check()
    end(programs[1])
    assert is_over.wait(10)
    assert (old.nr, old.sentence()) == (0, "")
    old.check()
    old.stop()


def test_where_there_are_none_nobody_waits() -> None:
    is_over = threading.Event()
    old = OldPrograms([], is_over.set)
    old.start()
    assert is_over.is_set()
    assert (old.nr, old.sentence()) == (0, "")
    old.stop()
