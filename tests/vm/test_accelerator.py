"""Whether KVM is taken, with programs in QEMU's place that boot, hang or refuse; and once with the real one."""

from pathlib import Path

import pytest

from backend_host.vm import accelerator
from backend_host.vm.accelerator import Accelerator, boot, choose_accelerator, find_emulator
from backend_host.vm.initramfs import GuestCommand, build_image

pytestmark = pytest.mark.vm

BOOTS = """
while [ "$1" != -initrd ]; do [ "$1" = --version ] && exit 0; shift; done
grep -ao '@fairgv-[0-9a-f]*' "$2" | head -1 | sed 's/$/ done/'
"""
HANGS = '[ "$1" = --version ] || exec sleep 1000'
REFUSES = "exit 1"
EMULATED_BOOT_LIMIT_S = 120


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a /dev/kvm, whose QEMU the test writes; every boot leaves a line in `log`."""
    device = tmp_path / "kvm"
    device.touch()
    monkeypatch.setattr(accelerator, "KVM_DEVICE", device)
    monkeypatch.setattr(accelerator, "find_emulator", lambda: tmp_path / "qemu")
    monkeypatch.setattr(accelerator, "KVM_BOOT_LIMIT_S", 1)
    return tmp_path


def install(machine: Path, behaviour: str) -> None:
    emulator = machine / "qemu"
    emulator.write_text(f'#!/bin/sh\n[ "$1" = --version ] || echo boot >> {machine}/log\n{behaviour}')
    emulator.chmod(0o755)


@pytest.mark.parametrize(
    ("behaviour", "expected", "domain_type"),
    [(BOOTS, Accelerator.KVM, "kvm"), (HANGS, Accelerator.TCG, "qemu"), (REFUSES, Accelerator.TCG, "qemu")],
)
def test_answer_is_tried_once(machine: Path, behaviour: str, expected: Accelerator, domain_type: str) -> None:
    install(machine, behaviour)
    choices = {choose_accelerator(machine / "cache") for _ in range(3)}
    assert [(choice.accelerator, choice.domain_type) for choice in choices] == [(expected, domain_type)]
    assert (machine / "log").read_text() == "boot\n"


def test_a_qemu_that_ends_is_quoted(machine: Path) -> None:
    install(machine, 'echo "ioctl(KVM_CREATE_VM) failed: 16" >&2; exit 1')
    reason = choose_accelerator(machine / "cache").reason
    assert reason.endswith("QEMU ended with status 1 and said: ioctl(KVM_CREATE_VM) failed: 16")


def test_another_qemu_is_tried_anew(machine: Path) -> None:
    install(machine, HANGS)
    assert choose_accelerator(machine / "cache").accelerator is Accelerator.TCG
    install(machine, BOOTS.replace("exit 0", "{ echo newer; exit 0; }"))
    assert choose_accelerator(machine / "cache").accelerator is Accelerator.KVM
    assert len(list((machine / "cache").iterdir())) == 1


def test_damaged_cache_is_ignored(machine: Path) -> None:
    install(machine, BOOTS)
    choose_accelerator(machine / "cache")
    for path in (machine / "cache").iterdir():
        path.write_text('{"accelerator": "warp"}')
    assert choose_accelerator(machine / "cache").accelerator is Accelerator.KVM


def test_machine_without_kvm(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    assert "usermod -aG kvm" in choose_accelerator().reason
    (machine / "kvm").unlink()
    assert "no /dev/kvm" in choose_accelerator().reason


def test_real_guest_boots_in_emulation(tmp_path: Path) -> None:
    image = build_image(tmp_path, [GuestCommand("true", None, ("/bin/busybox", "true"))])
    assert boot(find_emulator(), Accelerator.TCG, image, EMULATED_BOOT_LIMIT_S) == ""
