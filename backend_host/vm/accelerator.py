"""Finds out whether KVM really boots guests here, and falls back to software emulation when it does not.

That /dev/kvm is there says little: where the host is itself a paravirtual guest, QEMU accepts `-accel kvm` and a stock
kernel hangs before its first message. So a guest that does nothing is booted under a time limit, and the answer
is remembered for as long as kernel, QEMU and boot stay the same.

Wrong when: the host is so loaded that a good KVM needs more than `KVM_BOOT_LIMIT_S`; emulation is then slower, never
wrong.
"""

import enum
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import tempfile
import threading
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

from backend_host.vm.errors import VmError
from backend_host.vm.initramfs import GuestImage, build_image

EMULATOR = "qemu-system-x86_64"
KVM_DEVICE = Path("/dev/kvm")
KVM_BOOT_LIMIT_S = 20
SAID_CHARACTERS, SAID_LINES = 300, 20


class Accelerator(enum.StrEnum):
    """As QEMU's `-accel` names them."""

    KVM = "kvm"
    TCG = "tcg"


@dataclass(frozen=True)
class AcceleratorChoice:
    """What guests run with here, and in `reason` one line for the user."""

    accelerator: Accelerator
    reason: str

    @property
    def domain_type(self) -> str:
        """The `type` of a libvirt domain."""
        return "kvm" if self.accelerator is Accelerator.KVM else "qemu"


def find_emulator() -> Path:
    """The QEMU that runs x86-64 guests. Raises VmError when it is not installed."""
    found = shutil.which(EMULATOR)
    if not found:
        raise VmError(f"{EMULATOR} is not installed: install the package qemu-system-x86")
    return Path(found)


def choose_accelerator(cache_folder: Path | None = None) -> AcceleratorChoice:
    """KVM where a guest has been seen to boot with it, else emulation. Boots a guest when the answer is not remembered
    yet.
    """
    if not KVM_DEVICE.exists():
        return AcceleratorChoice(Accelerator.TCG, "guests run in software emulation: this machine offers no /dev/kvm")
    if not os.access(KVM_DEVICE, os.R_OK | os.W_OK):
        advice = "sudo usermod -aG kvm $USER, then log in again"
        return AcceleratorChoice(Accelerator.TCG, f"guests run in software emulation: no access to /dev/kvm ({advice})")
    emulator = find_emulator()
    remembered = (cache_folder or _user_cache_folder()) / f"accelerator-{_machine_key(emulator)}.json"
    if (choice := _recall(remembered)) is None:
        choice = _try_kvm(emulator)
        _remember(remembered, choice)
    return choice


def boot(emulator: Path, accelerator: Accelerator, image: GuestImage, limit_s: float) -> str:
    """Boots a guest with nothing but a kernel and an initramfs. "" when it reports to be done within `limit_s`; else why not, with the end of
    what it said, for a person."""
    command = [str(emulator), *_bare_machine(accelerator), *_direct_boot(image)]
    said: deque[bytes] = deque(maxlen=SAID_LINES)
    machine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    limit = threading.Timer(limit_s, machine.kill)
    limit.start()
    try:
        assert machine.stdout is not None
        for line in machine.stdout:
            if f"{image.marker} done".encode() in line:
                return ""  # whether it then switches off, and how soon, is nothing that we ask of it
            said.append(line)
        status = machine.wait()
    finally:
        limit.cancel()
        machine.kill()
        machine.communicate()
    words = b" ".join(said).decode(errors="replace").split()
    quoted = f" and said: {' '.join(words)[-SAID_CHARACTERS:]}" if words else ""
    ended = f" within {limit_s} s" if status == -signal.SIGKILL else f", QEMU ended with status {status}"
    return f"a guest did not boot with it{ended}{quoted}"


def _try_kvm(emulator: Path) -> AcceleratorChoice:
    with tempfile.TemporaryDirectory(prefix="fairgv-kvm-") as folder:
        image = build_image(Path(folder), copy_kernel=False)
        why_not = boot(emulator, Accelerator.KVM, image, KVM_BOOT_LIMIT_S)
    if not why_not:
        return AcceleratorChoice(Accelerator.KVM, "guests run under KVM")
    return AcceleratorChoice(Accelerator.TCG, f"guests run in software emulation: /dev/kvm is there, but {why_not}")


def _bare_machine(accelerator: Accelerator) -> list[str]:
    cpu = "host" if accelerator is Accelerator.KVM else "max"
    bare = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"]
    return [*bare, "-machine", "q35", "-accel", accelerator.value, "-cpu", cpu, "-m", "256"]


def _direct_boot(image: GuestImage) -> list[str]:
    return ["-kernel", str(image.kernel), "-initrd", str(image.initramfs), "-append", image.kernel_parameters]


def _machine_key(emulator: Path) -> str:
    """Changes with everything that can change the answer, a reboot into another hypervisor included."""
    version = subprocess.run([str(emulator), "--version"], capture_output=True, text=True, check=False).stdout
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    return hashlib.sha256(json.dumps([platform.release(), version, boot]).encode()).hexdigest()[:16]


def _user_cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fairgv"


def _recall(path: Path) -> AcceleratorChoice | None:
    try:
        stored = json.loads(path.read_text())
        return AcceleratorChoice(Accelerator(stored["accelerator"]), str(stored["reason"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(path: Path, choice: AcceleratorChoice) -> None:
    """Keeps the one newest answer. A cache that cannot be written costs time at the next start, and nothing else."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for stale in path.parent.glob("accelerator-*.json"):
            stale.unlink(missing_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(asdict(choice)))
        new.replace(path)
    except OSError:
        return
