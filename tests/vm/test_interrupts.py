"""A process with a private libvirtd and a running guest is ended by a signal: nothing of it stays."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backend_host.vm.accelerator import AcceleratorChoice
from backend_host.vm.region_file import SHARED_MEMORY_FOLDER
from tests.children import running

pytestmark = pytest.mark.vm

PROGRAM = """
import signal, sys
from backend_host.entitlement import PLAIN
from backend_host.vm.accelerator import Accelerator, AcceleratorChoice
from backend_host.vm.domain import attach
from backend_host.vm.guest import Guest
from backend_host.vm.initramfs import GuestCommand, build_image
from backend_host.vm.interrupts import InterruptedBySignalError, raised_signals
from backend_host.vm.private_libvirt import PrivateLibvirt

try:
    with raised_signals(), PrivateLibvirt() as instance:
        image = build_image(instance.folder, [GuestCommand("wait", None, ("/bin/busybox", "sleep", "1000"))])
        with Guest(instance, "interrupted", image, AcceleratorChoice(Accelerator(sys.argv[1]), "")) as guest:
            print(instance.folder, attach(instance.uri, "interrupted", PLAIN, 1 << 20).shm_name, flush=True)
            guest.start()
            print(instance.folder.joinpath("run/libvirt/qemu/run/interrupted.pid").read_text(), flush=True)
            signal.pause()
except InterruptedBySignalError as interruption:
    sys.exit(interruption.exit_code)
"""


def processes_naming(text: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("is_guest_started", [False, True])
def test_signal_leaves_nothing(choice: AcceleratorChoice, number: signal.Signals, is_guest_started: bool) -> None:
    command = [sys.executable, "-c", PROGRAM, choice.accelerator.value]
    with running(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        folder, shm_name = child.stdout.readline().split()
        if is_guest_started:
            assert int(child.stdout.readline())
            assert len(processes_naming(folder)) == 3, "libvirtd, QEMU, and what ends them where this process is killed"
        os.kill(child.pid, number)
        os.kill(child.pid, number)
        assert child.wait() == 128 + number
    assert not Path(folder).exists()
    assert not (SHARED_MEMORY_FOLDER / shm_name).exists()
    assert processes_naming(folder) == []
