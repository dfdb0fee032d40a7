"""Host loops that end, are many, or lack something: what is left of them, and what they say."""

import errno
import os
from pathlib import Path

import pytest

from tests.gloop.conftest import Runner


def said(runner: Runner, what: str, *arguments: object) -> list[str]:
    result = runner.run("endings", what, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_an_exit_is_forced_with_requests_out(runner: Runner, tmp_path: Path) -> None:
    """Files that were about to be closed are; to open a FIFO that nobody writes to holds nothing up."""
    large, fifo = tmp_path / "large", tmp_path / "fifo"
    large.touch()
    os.truncate(large, 64 << 20)
    os.mkfifo(fifo)
    assert said(runner, "exit", large, fifo) == ["0 more"]


@pytest.mark.parametrize("call", ["fs", "net"])
def test_what_waits_for_a_closed_socket_is_cancelled(runner: Runner, call: str) -> None:
    """And goes to no other client whose socket gets the number."""
    assert said(runner, "send", call) == [f"{-errno.ECANCELED} {-errno.ECANCELED} 0 1 0 "]


def test_host_loops_beside_and_after_each_other(runner: Runner) -> None:
    assert said(runner, "loops") == [str(2 * 3 * 3)]


def test_threads_launch_one_after_another_by_one_host_loop(runner: Runner) -> None:
    assert said(runner, "turns") == [f"{8 * 1} {8 * 21} {8 * 41} {8 * 61} "]


def test_a_host_loops_word_is_its_own_also_after_a_reset(runner: Runner) -> None:
    assert said(runner, "reset") == ["0 0", "0 0"]


def test_a_launch_leaves_the_threads_device_as_it_is(native: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
    assert said(native, "device") == ["1"]


def test_without_threads_there_is_no_host_loop(native: Runner) -> None:
    assert said(native, "threads") == [
        *["gloop: a thread of the host loop: Resource temporarily unavailable"] * 3,
        "0",
    ]


def test_without_descriptors_there_is_no_host_loop(native: Runner) -> None:
    assert said(native, "descriptors") == [*["gloop: sockets: Too many open files"] * 2, "0 more"]


def test_without_memory_operations_there_is_no_word(native: Runner) -> None:
    assert said(native, "words") == ["3"]


def test_each_address_of_a_name_is_tried(runner: Runner) -> None:
    assert said(runner, "addresses") == [f"1 {-errno.ECONNREFUSED} {-errno.EINVAL} {-errno.EINVAL}"]


def test_a_host_loop_naps_however_long_kernels_may_idle(native: Runner) -> None:
    assert said(native, "naps") == ["0 refused"]
