"""The process that has a memory file as its guest's device: QEMU, or another one, which libvirt does not know.

It is known by two things together: its command line names the file, and its memory has it mapped. Its end is heard of at once, by a pidfd.

Who may pose as such a process may map the file, and so is whoever may harm that guest anyway.

Wrong when: the file was named to QEMU after its start, through its monitor, or in a file of options. Then its end is not noticed: programs are
missed one by one, as their beats stand still.
"""

import os
import re
import select
from collections.abc import Mapping
from pathlib import Path

from backend_host.region_memory import Identity
from backend_host.vm.vcpus import QemuThreads, vcpu_threads

_PROC = Path("/proc")
_MAPPING = re.compile(r"^\S+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+)", re.MULTILINE)


class MachineProcess:
    """One that lives, or did when it was found. `close` it."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self._ran_ns: int | None = None

    def has_ended(self) -> bool:
        """Whether the process is gone, and its guest with it."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def threads(self) -> QemuThreads | None:
        """Those behind its vCPUs, None: they are not known by their names."""
        tids = vcpu_threads(_PROC / str(self.pid))
        return QemuThreads(self.pid, tids) if tids else None

    def stands_still(self) -> bool:
        """Whether its vCPUs have not run at all since the last such question: somebody paused the machine. The first answer is no."""
        threads = self.threads()
        if threads is None:
            return False
        before, self._ran_ns = self._ran_ns, sum(_ran_ns(self.pid, tid) for tid in threads.tids if tid)
        return before == self._ran_ns

    def close(self) -> None:
        os.close(self.pidfd)


def find_machines(files: Mapping[Path, Identity]) -> dict[Path, MachineProcess]:
    """Who has these files, by path, as far as somebody has; one look at all processes."""
    found: dict[Path, MachineProcess] = {}
    names = {path: _name_of(path) for path in files}
    for process in _PROC.iterdir() if files else ():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            arguments = (process / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        for path in files.keys() - found.keys():
            if names[path].search(arguments):
                machine = _machine(int(process.name), files[path])
                if machine is not None:
                    found[path] = machine
    return found


def _name_of(path: Path) -> re.Pattern[bytes]:
    """As an argument has it, or a value in one; QEMU's options double a comma."""
    text = os.fsencode(path)
    either = b"|".join(re.escape(each) for each in {text, text.replace(b",", b",,")})
    return re.compile(rb"(?:^|[=\0])(?:" + either + rb")(?:[,\0]|$)")


def _machine(pid: int, identity: Identity) -> MachineProcess | None:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    if _has_mapped(pid, identity):  # after it was opened: a number may be another's meanwhile
        return MachineProcess(pid, pidfd)
    os.close(pidfd)
    return None


def _has_mapped(pid: int, identity: Identity) -> bool:
    device, inode = identity
    try:
        text = (_PROC / str(pid) / "maps").read_text(errors="replace")
    except OSError:
        return False
    wanted = (os.major(device), os.minor(device), inode)
    return any(
        (int(major, 16), int(minor, 16), int(number)) == wanted for major, minor, number in _MAPPING.findall(text)
    )


def _ran_ns(pid: int, tid: int) -> int:
    try:
        return int((_PROC / str(pid) / "task" / str(tid) / "schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
