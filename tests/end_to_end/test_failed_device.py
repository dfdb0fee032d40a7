"""A device that fails: its programs get its error, their vGPUs go on elsewhere, and whoever is on another device notices nothing."""

import json
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from backend_host.cli import host_command
from tests.end_to_end.host import Host, start_host, stop_host, wait_until

UNAVAILABLE, ECC_UNCORRECTABLE = 46, 214
AT_FAILURE = 32
"""Where softgpu's file of a device has the error that it is to give (docs/softgpu.md)."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
        running = start_host(tmp_path)
        yield running
        stop_host(running)


def fail(host: Host, number: int, code: int) -> None:
    with (host.state_dir / f"softgpu.{number}").open("r+b") as file:
        file.seek(AT_FAILURE)
        file.write(struct.pack("<I", code))


def gpus(host: Host) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = host.status()["gpus"]
    return found


@contextmanager
def started(host: Host, *command: str, options: tuple[str, ...]) -> Iterator[subprocess.Popen[str]]:
    """Until the end of the block at the latest."""
    child = host.start(*command, options=options)
    try:
        yield child
    finally:
        child.terminate()
        child.communicate()


@contextmanager
def steady(host: Host, until: Path, name: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A program that works until a file is there; it has begun."""
    with started(host, "steady", str(until), options=("--vgpu", name, *options)) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        yield child


@pytest.mark.parametrize(
    ("code", "told"), [(UNAVAILABLE, "DevicesUnavailable"), (ECC_UNCORRECTABLE, "ECCUncorrectable")]
)
def test_programs_get_its_error_and_vgpus_another_device(host: Host, tmp_path: Path, code: int, told: str) -> None:
    with ExitStack() as stack:
        check_failure(host, tmp_path / "end", stack, code, told)


def check_failure(host: Host, until: Path, stack: ExitStack, code: int, told: str) -> None:
    """`told`: of the error, as programs are."""
    stack.enter_context(started(host, "/bin/sleep", "600", options=("--vgpu", "roams")))
    wait_until(lambda: len(host.status()["vgpus"]) == 1, "it has its place")
    hit = stack.enter_context(steady(host, until, "roams"))
    bound = stack.enter_context(steady(host, until, "bound", "--gpu", "0"))
    other = stack.enter_context(steady(host, until, "other", "--gpu", "1"))
    fail(host, 0, code)
    for child in (hit, bound):
        output, _ = child.communicate(timeout=60)
        assert child.returncode != 0
        assert told in output
    wait_until(lambda: bool(gpus(host)[0]["failed"]), "it is known")
    wait_until(lambda: gpus(host)[1]["vgpus"] == ["roams", "other"], "the vGPU has another place")
    assert f"CUDA error {code}" in gpus(host)[0]["failed"]
    assert not gpus(host)[0]["is_ready"]
    assert gpus(host)[1]["failed"] == ""
    # Whoever is elsewhere goes on, and so do programs to come, of the vGPU that was there and of new ones.
    assert other.poll() is None
    assert host.guest("vector_add", options=("--vgpu", "roams")).returncode == 0
    assert host.guest("vector_add").returncode == 0
    refused = host.guest("vector_add", options=("--gpu", "0"))
    assert refused.returncode == 1
    assert "GPU 0 is out, as it has failed: it gives no context" in refused.stderr
    until.touch()
    output, _ = other.communicate(timeout=60)
    assert other.returncode == 0, output
    shown = host_command(host.state_dir, "devices").stdout
    assert "failed" in shown
    assert f"CUDA error {code}" in " ".join(shown.split())
    assert "GPU 0 has failed" in " ".join(host_command(host.state_dir, "status").stdout.split())
    events = [json.loads(line) for line in host_command(host.state_dir, "events", "--json").stdout.splitlines()]
    assert [event["event"] for event in events if "has failed and serves nobody" in event["text"]] == ["failure"]


def test_a_vgpu_that_is_to_be_there_is_refused_until_the_daemon_starts_anew(host: Host, tmp_path: Path) -> None:
    with started(host, "/bin/sleep", "600", options=("--gpu", "0", "--vgpu", "bound")):
        wait_until(lambda: len(host.status()["vgpus"]) == 1, "it has its place")
        fail(host, 0, UNAVAILABLE)
        first = host.guest("vector_add", options=("--vgpu", "bound"))
        assert first.returncode != 0, first.stdout + first.stderr
        wait_until(lambda: bool(gpus(host)[0]["failed"]), "it is known")
        refused = host.guest("vector_add", options=("--vgpu", "bound"))
        assert refused.returncode != 0
        assert "DevicesUnavailable" in refused.stdout + refused.stderr
        [listed] = json.loads(host_command(host.state_dir, "list", "--json").stdout)
        assert not listed["is_served"]
        assert "GPU 0 has failed" in listed["why_not"]
    assert host_command(host.state_dir, "restart").returncode == 0
    assert [gpu["number"] for gpu in gpus(host)] == [1], "it keeps the daemon from nothing"
    assert "device 0 is not served until the daemon is started anew: " in host.log()
    assert host.guest("vector_add").returncode == 0
    fail(host, 0, 0)
    assert host_command(host.state_dir, "restart").returncode == 0
    assert gpus(host)[0]["failed"] == ""
    assert host.guest("vector_add", options=("--gpu", "0")).returncode == 0


def test_a_vgpu_that_found_no_place_gets_one_once_there_is_room(host: Host) -> None:
    with started(host, "/bin/sleep", "600", options=("--vgpu", "it")):
        wait_until(lambda: len(host.status()["vgpus"]) == 1, "it has its place")
        assert host_command(host.state_dir, "drain", "1").returncode == 0
        fail(host, 0, UNAVAILABLE)
        assert host.guest("vector_add", options=("--vgpu", "it")).returncode != 0
        wait_until(lambda: bool(gpus(host)[0]["failed"]), "it is known")
        refused = host.guest("vector_add", options=("--vgpu", "it"))
        assert "DevicesUnavailable" in refused.stdout + refused.stderr
        assert host_command(host.state_dir, "undrain", "1").returncode == 0
        assert gpus(host)[1]["vgpus"] == ["it"]
        done = host.guest("vector_add", options=("--vgpu", "it"))
        assert done.returncode == 0, done.stdout + done.stderr
        [listed] = json.loads(host_command(host.state_dir, "list", "--json").stdout)
        assert listed["is_served"]


def test_an_error_that_is_the_programs_own_takes_no_device_away(host: Host) -> None:
    assert host.guest("fault", options=("--gpu", "0")).returncode == host.native("fault").returncode
    assert host.guest("vector_add", options=("--gpu", "0")).returncode == 0
    assert [gpu["failed"] for gpu in gpus(host)] == ["", ""]
