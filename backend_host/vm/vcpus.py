"""The threads behind a domain's vCPUs, as the host's kernel knows them.

QEMU's monitor would tell them too, but a domain whose monitor was used past libvirt counts as tainted. So the process is found by the UUID that
libvirt gives it on its command line, and the threads by the names that QEMU gives them (`CPU 0/KVM`; libvirt always asks for names). Reading
needs no privilege.

Who may pose as a domain's process is whoever may run processes as QEMU's user, which is checked.

Wrong when: vCPUs are added while the guest runs; they count from its next start on. Where all vCPUs share one thread (emulation of one CPU at
a time) nothing is found.
"""

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_NAME = re.compile(r"CPU (\d+)/\w+")
_MAX_VCPUS = 1024


@dataclass(frozen=True)
class QemuThreads:
    """`tids` in the order of the vCPUs' numbers, 0 for a number that no vCPU has."""

    pid: int
    tids: tuple[int, ...]


def find_vcpus(domain_uuid: str, uid: int) -> QemuThreads | None:
    """Of the running domain whose QEMU belongs to user `uid`; None when there is none, or it has no such threads."""
    for process in _PROC.iterdir():
        if process.name.isdigit() and _is_emulator_of(process, domain_uuid, uid):
            tids = vcpu_threads(process)
            return QemuThreads(int(process.name), tids) if tids else None
    return None


def vcpu_threads(process: Path) -> tuple[int, ...]:
    """Of the process with this folder in /proc; none of one that has ended."""
    found: dict[int, int] = {}
    try:
        tasks = list((process / "task").iterdir())
    except OSError:
        return ()
    for task in tasks:
        try:
            match = _NAME.fullmatch((task / "comm").read_text(errors="replace").rstrip("\n"))
        except OSError:
            continue  # a thread that has ended
        if match is not None and int(match[1]) < _MAX_VCPUS:
            found[int(match[1])] = int(task.name)
    return tuple(found.get(number, 0) for number in range(max(found, default=-1) + 1))


def _is_emulator_of(process: Path, domain_uuid: str, uid: int) -> bool:
    try:
        arguments = (process / "cmdline").read_bytes().split(b"\0")
        is_named = any(pair == (b"-uuid", domain_uuid.encode()) for pair in itertools.pairwise(arguments))
        return is_named and process.stat().st_uid == uid
    except OSError:
        return False  # it has ended, or is none of our business
