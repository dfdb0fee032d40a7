"""Which devices daemons serve: whoever runs one is seen by all others, and only for as long."""

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from backend_host.config import Config
from backend_host.devices import Device, device_name, probe
from backend_host.errors import DaemonRunningError
from backend_host.served import announced, check_free, servers
from tests.children import running

SERVE = """
import sys
from backend_host.devices import probe
from backend_host.served import announced
with announced(probe("soft", sys.argv[1])):
    print("serving", flush=True)
    sys.stdin.read()
"""
OTHERS = "GPU-5c7a0000-0000-0000-0000-000000000000"


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setenv("FAIRGV_SOFTGPU_STATE", str(tmp_path / "device"))
    [device] = probe("soft", Config().softgpu_library)
    return device


def test_a_device_that_is_served(device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert servers(device) == []
    check_free([device])
    with running(
        [sys.executable, "-c", SERVE, Config().softgpu_library], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "serving\n"
        assert servers(device) == [child.pid]
        with pytest.raises(DaemonRunningError, match=f"process {child.pid}.* --private"):
            check_free([device])
        assert servers(dataclasses.replace(device, ordinal=1)) == []
        assert servers(dataclasses.replace(device, kind="cuda", uuid=OTHERS)) == []
        with monkeypatch.context() as other:
            other.setenv("FAIRGV_SOFTGPU_STATE", str(tmp_path / "another"))
            check_free([device])
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    assert servers(device) == [], "it goes with its process, however that ends"


def test_several_may_serve_and_none_sees_itself(device: Device) -> None:
    cuda = dataclasses.replace(device, kind="cuda", uuid=OTHERS)
    with announced([device, cuda]):
        assert servers(device) == servers(cuda) == []
        check_free([device, cuda])
    with announced([device]):
        pass


def test_nobody_takes_the_name_of_one_that_is_to_come(device: Device) -> None:
    """Everybody may bind names, and process ids are known."""
    with contextlib.ExitStack() as stack:
        for tail in (f"{os.getpid()}", f"{os.getpid()}/", f"{os.getpid()}/0"):
            others = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            others.bind(f"\0{device_name(device)}/{tail}")
        with announced([device]), announced([device]):
            pass


@pytest.mark.parametrize("name", [b"\0\xff", b"\xff", b"\0\x85@fairgv"])
def test_names_of_others_may_be_any_bytes(
    device: Device, name: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as others:
        others.bind(name)
        assert servers(device) == []
        check_free([device])
