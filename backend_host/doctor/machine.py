"""Whether this host can run virtual machines that have our device: KVM, and QEMU.

Wrong when: a domain names another emulator than the one on the path. And a guest is not booted: where the host is a virtual machine itself, KVM
may make machines and a guest hang in them (backend_host/vm/accelerator.py, which `make demo` asks).
"""

import errno
import fcntl
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from backend_host.doctor.verdict import Verdict, failed, passed, warned
from backend_host.vm.accelerator import EMULATOR, KVM_DEVICE, find_emulator
from backend_host.vm.domain_xml import MEMORY_DEVICE
from backend_host.vm.errors import VmError

_KVM_CREATE_VM = 0xAE01
_QEMU_LIMIT_S = 60
_CPU_FLAGS = {"vmx", "svm"}
RHEL_EMULATOR = Path("/usr/libexec/qemu-kvm")
"""Of Red Hat Enterprise Linux and what is made from it. It has a fraction of QEMU's devices, and no ivshmem."""


@dataclass(frozen=True)
class KvmReading:
    """`error` is the errno with which the kernel refused a machine, 0 when it made one."""

    is_there: bool
    has_cpu_flag: bool
    error: int = 0
    is_root: bool = True


def read_kvm(device: Path = KVM_DEVICE) -> KvmReading:
    """Makes a machine, and throws it away."""
    flags = re.findall(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    has_cpu_flag = bool(_CPU_FLAGS & set(" ".join(flags[:1]).split()))
    if not device.exists():
        return KvmReading(False, has_cpu_flag)
    try:
        fd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.close(fcntl.ioctl(fd, _KVM_CREATE_VM, 0))
        finally:
            os.close(fd)
    except OSError as error:
        return KvmReading(True, has_cpu_flag, error.errno or errno.EIO, os.geteuid() == 0)
    return KvmReading(True, has_cpu_flag)


def kvm(reading: KvmReading) -> Verdict:
    """Without it domains of type kvm do not start; those of type qemu do, emulated."""
    if not reading.is_there and not reading.has_cpu_flag:
        remedy = "switch virtualization on in the firmware (VT-x, AMD-V), or nested virtualization where this host is a guest"
        return failed("kvm", f"there is no {KVM_DEVICE}, and the CPU offers no virtualization", remedy)
    if not reading.is_there:
        return failed("kvm", f"there is no {KVM_DEVICE}", "modprobe kvm_intel, or kvm_amd")
    if reading.error == 0:
        return passed("kvm", f"{KVM_DEVICE} makes virtual machines")
    refusal = f"{KVM_DEVICE} refuses: {os.strerror(reading.error)}"
    if reading.error in (errno.EACCES, errno.EPERM) and not reading.is_root:
        text = f"{refusal}. The system's libvirt is another user; one of a session needs it"
        return warned("kvm", text, "sudo usermod -aG kvm $USER, then log in again")
    return failed(
        "kvm", refusal, "dmesg tells what kvm_intel or kvm_amd lack; in a container its host lets it have the device"
    )


@dataclass(frozen=True)
class QemuReading:
    """`trouble` says why QEMU could not be asked. `is_of_rhel`: it was RHEL_EMULATOR."""

    version: str = ""
    devices: frozenset[str] = frozenset()
    trouble: str = ""
    is_of_rhel: bool = False


def read_qemu() -> QemuReading:
    """Asks the emulator on the path which devices it has; where there is none, RHEL's, which is on no path."""
    is_of_rhel = shutil.which(EMULATOR) is None and RHEL_EMULATOR.exists()
    try:
        emulator = RHEL_EMULATOR if is_of_rhel else find_emulator()
        version = _said(str(emulator), "--version")
        devices = re.findall(r'^name "([^"]+)"', _said(str(emulator), "-device", "help"), re.MULTILINE)
    except (VmError, OSError, subprocess.SubprocessError) as error:
        return QemuReading(trouble=str(error))
    found = re.search(r"version (\S+)", version)
    return QemuReading(found[1] if found else "", frozenset(devices), is_of_rhel=is_of_rhel)


def _said(*command: str) -> str:
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_QEMU_LIMIT_S)
    return answer.stdout


def qemu(reading: QemuReading) -> Verdict:
    """A domain with our device does not start where QEMU has no ivshmem."""
    if reading.trouble:
        return failed("qemu", reading.trouble, f"install {EMULATOR} (on Debian and Ubuntu the package qemu-system-x86)")
    name = f"QEMU {reading.version}"
    if "ivshmem-plain" not in reading.devices:
        text = f"{name} was built without ivshmem-plain, the device of a vGPU"
        if reading.is_of_rhel:
            text += f": {RHEL_EMULATOR} of RHEL and its relatives has no ivshmem, and there is no option for it"
        remedy = (
            "a QEMU that has it, as Debian's, Ubuntu's and Fedora's do, as <emulator> of the domains (docs/hosts.md)"
        )
        return failed("qemu", text, remedy)
    if "ivshmem-doorbell" not in reading.devices:
        return warned(
            "qemu", f"{name} has no ivshmem-doorbell", "attach without --doorbell, or build QEMU with eventfd"
        )
    more = f", and {MEMORY_DEVICE}" if MEMORY_DEVICE in reading.devices else ""
    return passed("qemu", f"{name} has ivshmem-plain and ivshmem-doorbell{more}")
