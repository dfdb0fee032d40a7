"""A virtual machine as the guest of experiments: one boot, programs with and without a stretch, daemons that take over from one another."""

import contextlib
import os
from pathlib import Path

import pytest

from backend_host.vm.vcpus import vcpu_threads
from benchmarks.devices import private_device
from benchmarks.errors import ProgramFailedError
from benchmarks.guests import Pinning, Setting, open_guests, run
from benchmarks.guests.machine import Machines
from benchmarks.stretch import run_together
from benchmarks.workloads import parse_report, sized, spin
from scheduler.registry import DEFAULT_POLICY

pytestmark = pytest.mark.vm


def command_line(process: Path) -> list[str]:
    """Empty for one that has ended."""
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_text().split("\0")
    return []


def assert_pinned(machines: Machines, pinning: Pinning) -> None:
    """The vCPU's thread has the guests' core, and all others of its QEMU the others."""
    [guest] = machines.guests
    [emulator] = [path for path in Path("/proc").iterdir() if path.name.isdigit() and guest.uuid in command_line(path)]
    [vcpu] = vcpu_threads(emulator)
    assert os.sched_getaffinity(vcpu) == {pinning.core}
    others = {int(task.name) for task in (emulator / "task").iterdir()} - {vcpu}
    assert others
    assert all(os.sched_getaffinity(thread) == pinning.others for thread in others)


def test_a_guest_may_be_a_virtual_machine() -> None:
    product, kernels = sized("matrixMul", "soft"), spin(391, 4)
    programs = [product.path(), kernels.path()]
    pinning = Pinning.to(min(os.sched_getaffinity(0)))
    setting = Setting("soft", "vm", pinning=pinning, has_doorbell=True)
    with private_device("soft"), open_guests(DEFAULT_POLICY, setting, (2,), programs) as machines:
        assert isinstance(machines, Machines)
        assert_pinned(machines, pinning)
        with machines.session() as machine:
            output = run(machine, 0, product.path(), ["--json", "--rounds", "2"]).checked("matrixMul")
            assert parse_report(output)["checked"] is True
            [outcome] = run_together(machine, [kernels], 0.5)
            assert outcome.throughput > 0
            assert outcome.charged_s
        with machines.session(coscheduling="off") as machine:
            with pytest.raises(ProgramFailedError, match=r"exit status 2: .*matrixMul"):
                run(machine, 0, product.path(), ["--size", "33"]).checked("matrixMul")
            child = machine.start(0, product.path(), [*product.arguments, "--together"])
            child.stop()
            assert run(machine, 0, product.path(), ["--json", "--rounds", "1"]).exit_code == 0, (
                "the shell is there again"
            )
