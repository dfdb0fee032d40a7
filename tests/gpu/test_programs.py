"""On a real GPU, through NVIDIA's driver: the same binaries print as guests what they print natively."""

from difflib import unified_diff

import pytest

from tests.end_to_end.host import PROGRAM_NAMES, Host, comparable
from tests.programs.build import CRASHES_NATIVELY

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("program", [name for name in PROGRAM_NAMES if name not in CRASHES_NATIVELY])
def test_same_output_as_natively(gpu_host: Host, program: str) -> None:
    native = gpu_host.native(program)
    guest = gpu_host.guest(program)
    difference = unified_diff(native.stdout.splitlines(), guest.stdout.splitlines(), "natively", "guest", lineterm="")
    assert comparable(guest) == comparable(native), "\n".join([*difference, native.stderr, guest.stderr])
    assert native.stdout


@pytest.mark.parametrize("program", CRASHES_NATIVELY)
def test_what_crashes_natively_is_refused(gpu_host: Host, program: str) -> None:
    guest = gpu_host.guest(program)
    assert (guest.returncode, guest.stdout.splitlines()[-1:]) == (0, ["PASS"]), guest.stdout + guest.stderr


def test_auto_takes_the_driver(gpu_host: Host) -> None:
    device = gpu_host.status()["device"]
    assert device["kind"] == "cuda"
    assert device["preempts"]
