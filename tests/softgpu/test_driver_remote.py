"""Checkpoints of one process by another: whoever may asks, and neither side waits for a dead one."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.softgpu.asking import OK, Asker, Other
from tests.softgpu.driver_harness import TIMEOUT_S, Device, heard, kill, tell

RUNNING, LOCKED, CHECKPOINTED = 0, 1, 2
ILLEGAL = "CUDA_ERROR_ILLEGAL_STATE"
USER, STRANGER = 54321, 54322

_F_OFD_GETLK = 36
_FLOCK = "hhqqi4x"
"""struct flock."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")


def begins_to_lock(asker: Asker, target: Other) -> None:
    """Until it is at it, with a lock on the file by which the other is asked."""
    tell(asker.process, f"lock {target.pid}")
    [file] = [each for each in Path(f"/proc/{target.pid}/fd").iterdir() if "softgpu-shared" in target_of(each)]
    with file.open("r+b") as opened:
        while True:
            lock = fcntl.fcntl(opened, _F_OFD_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
            if struct.unpack(_FLOCK, lock)[0] != fcntl.F_UNLCK:
                return


def target_of(descriptor: Path) -> str:
    """Empty of one that was closed meanwhile."""
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:
        return ""


@pytest.fixture
def two(device: Device) -> Device:
    """A machine with two devices."""
    return device.with_settings(FAIRGV_SOFTGPU_DEVICES="2", FAIRGV_SOFTGPU_MEMORY="64M")


def asked(device: Device, argument: str = "") -> Other:
    return Other(device, "asked", argument)


@pytest.mark.parametrize("wall", ["0", "1"])
def test_a_process_goes_to_another_device_and_back(two: Device, wall: str) -> None:
    target, asker = asked(two.with_settings(FAIRGV_SOFTGPU_WALL=wall)), Asker(two)
    assert target.does("compute") == "right 1 uuid 0 bus 0000:F0:00.0"
    for value, (pairs, uuid) in enumerate((("0110", 1), ("", 1), ("1001", 0)), 2):
        assert asker.goes_round(target.pid, pairs) == [OK] * 4
        assert target.does("compute") == f"right {value} uuid {uuid} bus 0000:F0:00.0"
    assert target.process.communicate(timeout=TIMEOUT_S)[0].splitlines() == ["PASS"]
    assert target.process.returncode == 0


def test_two_change_places_though_each_fills_its_device(two: Device) -> None:
    first, second = asked(two), asked(two.with_settings(CUDA_VISIBLE_DEVICES="1"))
    asker = Asker(two)
    for step, argument in (("lock", "0"), ("checkpoint", ""), ("restore", "0110"), ("unlock", "")):
        assert [asker.asks(step, each.pid, argument) for each in (first, second)] == [OK, OK]
    assert first.does("compute") == "right 1 uuid 1 bus 0000:F0:00.0"
    assert second.does("compute") == "right 1 uuid 0 bus 0000:F1:00.0"


def test_each_call_in_each_state(two: Device) -> None:
    target, asker = asked(two), Asker(two)
    calls = ("lock", "checkpoint", "restore", "unlock")
    for good, before, after in (
        ("lock", RUNNING, LOCKED),
        ("checkpoint", LOCKED, CHECKPOINTED),
        ("restore", CHECKPOINTED, LOCKED),
        ("unlock", LOCKED, RUNNING),
    ):
        may_be = {"checkpoint", "unlock"} if before == LOCKED else {good}
        for call in calls:
            if call not in may_be:
                assert (asker.asks(call, target.pid), asker.has_state(target.pid)) == (ILLEGAL, before)
        assert asker.asks("wrong", target.pid) == ("CUDA_ERROR_INVALID_VALUE" if before == LOCKED else ILLEGAL)
        assert (asker.asks(good, target.pid), asker.has_state(target.pid)) == (OK, after)


@pytest.mark.parametrize("pairs", ["01", "0111", "0910", "011001", "01" * 17])
def test_pairs_that_do_not_name_each_device_once_are_refused(two: Device, pairs: str) -> None:
    target, asker = asked(two), Asker(two)
    assert [asker.asks("lock", target.pid), asker.asks("checkpoint", target.pid)] == [OK, OK]
    assert asker.asks("restore", target.pid, pairs) == "CUDA_ERROR_INVALID_VALUE"
    assert asker.has_state(target.pid) == CHECKPOINTED
    assert [asker.asks("restore", target.pid, "0110"), asker.asks("unlock", target.pid)] == [OK, OK]
    assert target.does("compute") == "right 1 uuid 1 bus 0000:F0:00.0"


def test_who_is_not_there_or_has_no_cuda(device: Device) -> None:
    asker, gone = Asker(device), asked(device)
    kill(gone.process)
    for pid in (0, -1, gone.pid):
        assert asker.asks("lock", pid) == "CUDA_ERROR_OPERATING_SYSTEM"
        assert asker.asks("state", pid).endswith(" CUDA_ERROR_OPERATING_SYSTEM")
    with subprocess.Popen(["sleep", "60"]) as other:
        assert asker.asks("lock", other.pid) == "CUDA_ERROR_NOT_INITIALIZED"
        assert asker.asks("thread", other.pid).endswith(" CUDA_ERROR_NOT_INITIALIZED")
        other.kill()


def test_a_process_without_a_context_is_served(device: Device) -> None:
    target, asker = asked(device, "bare"), Asker(device)
    assert asker.goes_round(target.pid) == [OK] * 4


def test_the_thread_that_serves_is_the_processes_own(device: Device) -> None:
    target, asker = asked(device), Asker(device)
    thread, result = asker.asks("thread", target.pid).split()
    assert result == OK
    assert int(thread) != target.pid
    assert Path(f"/proc/{target.pid}/task/{thread}").is_dir()


def test_a_child_is_not_its_parent(device: Device) -> None:
    target, asker = asked(device), Asker(device)
    child = int(target.does("fork"))
    try:
        assert asker.asks("lock", child) == "CUDA_ERROR_NOT_INITIALIZED"
        assert asker.goes_round(target.pid) == [OK] * 4
    finally:
        os.kill(child, signal.SIGKILL)


def test_work_ends_first_or_the_time_is_over(device: Device) -> None:
    target, asker = asked(device), Asker(device)
    assert target.does("hold") == "holds"
    assert asker.asks("lock", target.pid, "20") == "CUDA_ERROR_NOT_READY"
    assert asker.has_state(target.pid) == RUNNING
    assert target.does("query") == "query CUDA_ERROR_NOT_READY"
    tell(asker.process, f"lock {target.pid}")
    target.does("release")
    assert heard(asker.process) == f"lock {OK}"
    assert asker.asks("unlock", target.pid) == OK


def test_one_asks_at_a_time_and_others_may_look(device: Device) -> None:
    target, asker, second = asked(device), Asker(device), Asker(device)
    assert target.does("hold") == "holds"
    begins_to_lock(asker, target)
    assert second.asks("lock", target.pid, "1") == "CUDA_ERROR_NOT_READY"
    assert second.has_state(target.pid) == RUNNING
    tell(second.process, f"lock {target.pid}")
    assert target.does("release") == "release"
    assert {heard(asker.process), heard(second.process)} == {f"lock {OK}", f"lock {ILLEGAL}"}
    assert second.has_state(target.pid) == LOCKED
    assert second.asks("unlock", target.pid) == OK


def test_what_a_killed_asker_wanted_is_given_up(device: Device) -> None:
    target, asker, second = asked(device), Asker(device), Asker(device)
    assert target.does("hold") == "holds"
    begins_to_lock(asker, target)
    kill(asker.process)
    assert target.does("query") == "query CUDA_ERROR_NOT_READY", "its calls return again"
    assert target.does("release") == "release"
    assert second.goes_round(target.pid) == [OK] * 4
    assert target.does("compute").startswith("right")


def test_what_a_killed_asker_did_stays(device: Device) -> None:
    target, asker, second = asked(device), Asker(device), Asker(device)
    assert [asker.asks("lock", target.pid), asker.asks("checkpoint", target.pid)] == [OK, OK]
    kill(asker.process)
    assert second.has_state(target.pid) == CHECKPOINTED
    assert [second.asks("restore", target.pid), second.asks("unlock", target.pid)] == [OK, OK]
    assert target.does("compute").startswith("right")


@pytest.mark.parametrize("end", ["kill", "exec"])
def test_nobody_waits_for_a_process_that_ends(device: Device, end: str) -> None:
    target, asker = asked(device), Asker(device)
    assert target.does("hold") == "holds"
    begins_to_lock(asker, target)
    if end == "kill":
        target.process.kill()
    else:
        tell(target.process, "exec")
    assert heard(asker.process) == "lock CUDA_ERROR_OPERATING_SYSTEM"
    if end == "exec":
        assert asker.asks("lock", target.pid) == "CUDA_ERROR_NOT_INITIALIZED"


def test_a_checkpointed_process_that_is_killed_leaves_nothing(two: Device) -> None:
    target, asker = asked(two), Asker(two)
    assert [asker.asks("lock", target.pid), asker.asks("checkpoint", target.pid)] == [OK, OK]
    kill(target.process)
    assert asker.asks("restore", target.pid, "0110") == "CUDA_ERROR_OPERATING_SYSTEM"
    assert asked(two).does("compute").startswith("right"), "there is room for another one"


def test_a_process_that_stands_still_is_not_waited_for_beyond_the_time(device: Device) -> None:
    target, asker = asked(device), Asker(device)
    target.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, target.pid, os.WSTOPPED | os.WNOWAIT)
    assert asker.asks("lock", target.pid, "1") == "CUDA_ERROR_NOT_READY"
    target.process.send_signal(signal.SIGCONT)
    assert target.does("compute").startswith("right")
    assert asker.goes_round(target.pid) == [OK] * 4


def test_a_process_that_locks_itself_meanwhile(device: Device) -> None:
    target, asker = asked(device), Asker(device)
    assert target.does("hold") == "holds"
    tell(target.process, "lock")
    while asker.asks("lock", target.pid, "1") != ILLEGAL:  # from when on it is at it itself
        pass
    assert target.does("release") == "release"
    assert heard(target.process) == f"locked itself {OK}"
    assert asker.has_state(target.pid) == LOCKED
    assert asker.asks("unlock", target.pid) == OK
    assert target.does("compute").startswith("right")


def test_two_take_each_other_off(device: Device) -> None:
    first, second = Asker(device), Asker(device)
    assert [first.asks("lock", second.pid), second.asks("lock", first.pid)] == [OK, OK]
    assert [first.asks("unlock", second.pid), second.asks("unlock", first.pid)] == [OK, OK]


@as_root
def test_root_and_the_same_user_may_and_strangers_may_not(device: Device) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        _may_and_may_not(replace(device, folder=Path(folder)))


def _may_and_may_not(device: Device) -> None:
    target, root, own, stranger = asked(device), Asker(device), Asker(device), Asker(device)
    target.does(f"become {USER}")
    own.does(f"become {USER}")
    stranger.does(f"become {STRANGER}")
    for asker in (root, own):
        assert asker.goes_round(target.pid) == [OK] * 4
    refused = "CUDA_ERROR_OPERATING_SYSTEM"
    assert stranger.goes_round(target.pid) == [refused] * 4
    assert re.fullmatch(rf"\d+ {refused}", stranger.asks("state", target.pid))
    assert own.asks("lock", root.pid) == refused
    assert target.does("compute").startswith("right")
