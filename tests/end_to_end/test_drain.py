"""`fairgv-host drain` and `undrain`, as an operator sees them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.cli import host_command
from tests.end_to_end.host import Host, start_host, stop_host


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
        running = start_host(tmp_path)
        yield running
        stop_host(running)


def said(host: Host, *command: str, status: int = 0) -> str:
    answer = host_command(host.state_dir, *command)
    assert answer.returncode == status, answer.stdout + answer.stderr
    return " ".join((answer.stdout or answer.stderr).split())


def gpu_of_a_new_vgpu(host: Host) -> int:
    child = host.start("/bin/sh", "-c", "echo there; read line", options=("--vgpu", "new"), stdin=-1)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
        [vgpu] = host.status()["vgpus"]
        return int(vgpu["gpu_number"])
    finally:
        child.communicate("\n", timeout=60)


def test_nothing_comes_to_a_drained_gpu_until_it_is_undrained(host: Host) -> None:
    assert said(host, "drain", "0") == "GPU 0 is drained: no vGPU comes to it until fairgv-host undrain 0"
    assert said(host, "drain", "0") == "GPU 0 is drained already: no vGPU comes to it until fairgv-host undrain 0"
    assert gpu_of_a_new_vgpu(host) == 1
    shown = said(host, "devices")
    assert "drained none" in shown, "in the column of states"
    assert shown.endswith("GPU 0 is drained: no vGPU comes to it until fairgv-host undrain 0")
    assert "GPU 0 is drained: no vGPU" in said(host, "status")
    assert "GPU 0 drained" in said(host, "top", "--once")
    refused = host.guest("vector_add", options=("--gpu", "0"))
    assert (refused.returncode, refused.stderr.strip()) == (
        1,
        "fairgv-run: GPU 0 is drained (until fairgv-host undrain 0)",
    )
    assert host_command(host.state_dir, "restart").returncode == 0
    assert [gpu["is_drained"] for gpu in json.loads(host_command(host.state_dir, "devices", "--json").stdout)] == [
        True,
        False,
    ]
    assert said(host, "undrain", host.status()["gpus"][0]["uuid"]) == "GPU 0 takes vGPUs again"
    assert said(host, "undrain", "0") == "GPU 0 is not drained"
    assert gpu_of_a_new_vgpu(host) == 0
    events = [json.loads(line) for line in host_command(host.state_dir, "events", "--json").stdout.splitlines()]
    assert [event["event"] for event in events if "drain" in event["event"]] == ["drain", "undrain"], (
        "where nothing changed"
    )


def test_a_gpu_that_is_not_there_is_told(host: Host) -> None:
    assert said(host, "drain", "7", status=1) == (
        "fairgv-host: no Gpu of this host is called '7'; see: fairgv-host devices"
    )
