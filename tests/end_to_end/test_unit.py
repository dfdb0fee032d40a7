"""The daemon with the system calls and capabilities of its unit, and no others: it puts up all walls that this machine has, and serves a
program.

A filter as systemd makes it is put before the daemon by a few lines of BPF. What else the unit says, its mounts above all, takes a systemd that
runs, and is not tried here.
"""

import ctypes
import errno
import functools
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from backend_host.config import PACKAGE_ROOT
from backend_host.ipc import Connection
from tests.children import running
from tests.end_to_end.host import WALLS, Host, own_device

UNIT = PACKAGE_ROOT / "packaging/systemd/fairgv.service"
HEADERS = map(Path, ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"))
NUMBERS = next((path for path in HEADERS if path.exists()), None)
CAPABILITIES = Path("/usr/include/linux/capability.h")
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("systemd-analyze") is None or NUMBERS is None or not CAPABILITIES.exists(),
    reason="needs root, systemd-analyze and the kernel's headers",
)
_EPERM, _ALLOW, _ERRNO = 1, 0x7FFF0000, 0x00050000
_LD, _JEQ, _JSET, _RET = 0x20, 0x15, 0x45, 0x06
_ARGUMENT = 16
"""Where the first argument of a call lies."""
_NAMESPACES = {
    "mnt": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
_PR_CAPBSET_DROP, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER = 24, 22, 38, 2


def said(key: str) -> list[str]:
    """Words of all lines of that key."""
    return [
        word
        for line in UNIT.read_text().splitlines()
        if line.startswith(f"{key}=")
        for word in line.partition("=")[2].split()
    ]


@functools.cache
def calls(group: str) -> frozenset[str]:
    """Of a group of system calls, as systemd has it."""
    text = subprocess.run(
        ["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, check=True
    ).stdout
    words = [line.strip() for line in text.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
    return frozenset[str]().union(*(calls(word) if word.startswith("@") else {word} for word in words))


def program() -> bytes:
    """Instructions of BPF: an allowed number is let through, any other fails with EPERM. clone3 is said not to exist, clone is let through with
    the namespaces of the unit alone, and socket with its address families, as systemd does it."""
    assert NUMBERS is not None
    known = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", NUMBERS.read_text())}
    names = frozenset[str]().union(
        *(calls(word) if word.startswith("@") else {word} for word in said("SystemCallFilter"))
    )
    numbers = sorted(known[name] for name in names if name in known)
    spaces = sum(_NAMESPACES.values()) - sum(_NAMESPACES[name] for name in said("RestrictNamespaces"))
    families = [getattr(socket, name) for name in said("RestrictAddressFamilies")]
    steps = [(_LD, 0, 0, 0), (_JEQ, 0, 1, known["clone3"]), (_RET, 0, 0, _ERRNO | errno.ENOSYS)]
    steps += [
        (_JEQ, 0, 4, known["clone"]),
        (_LD, 0, 0, _ARGUMENT),
        (_JSET, 0, 1, spaces),
        (_RET, 0, 0, _ERRNO | _EPERM),
    ]
    steps += [(_RET, 0, 0, _ALLOW), (_JEQ, 0, len(families) + 3, known["socket"]), (_LD, 0, 0, _ARGUMENT)]
    steps += [(_JEQ, len(families) - place, 0, family) for place, family in enumerate(families)]
    steps += [(_RET, 0, 0, _ERRNO | errno.EAFNOSUPPORT), (_RET, 0, 0, _ALLOW)]
    for number in numbers:
        steps += [(_JEQ, 0, 1, number), (_RET, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in [*steps, (_RET, 0, 0, _ERRNO | _EPERM)])


def confine() -> None:
    """This process, and all that it starts, as the unit says."""
    numbers = dict(re.findall(r"#define (CAP_\w+)\s+(\d+)$", CAPABILITIES.read_text(), re.MULTILINE))
    libc = ctypes.CDLL(None, use_errno=True)
    for name, number in numbers.items():
        if name not in said("CapabilityBoundingSet"):
            libc.prctl(_PR_CAPBSET_DROP, int(number), 0, 0, 0)
    text = program()
    buffer = ctypes.create_string_buffer(text, len(text))
    whole = struct.pack("HxxxxxxQ", len(text) // 8, ctypes.addressof(buffer))
    assert libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(_PR_SET_SECCOMP, _FILTER, whole, 0, 0) == 0


def test_the_daemon_does_its_work_as_the_unit_lets_it(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    file = tmp_path / "config.toml"
    file.write_text(f'adopt = "attached"\n[walls]\ncache_dir = "{WALLS.cache_dir}"\n')
    command = ["--state-dir", str(state_dir), "start", "--foreground", "--device", "soft", "--config", str(file)]
    command += [f"--allow-missing-wall={wall}" for wall in WALLS.allow_missing]
    code = (
        "import os, sys\nfrom tests.end_to_end.test_unit import confine\nconfine()\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'backend_host.cli', *sys.argv[1:]])"
    )
    with running(
        [sys.executable, "-c", code, *command],
        stderr=subprocess.PIPE,
        env={**os.environ, **own_device(state_dir), "PYTHONPATH": str(PACKAGE_ROOT)},
    ) as child:
        assert child.stderr is not None
        lines = []
        for line in iter(child.stderr.readline, ""):
            lines.append(line)
            if line.startswith("device: "):
                break
        assert lines and lines[-1].startswith("device: "), "".join(lines)
        host = Host(state_dir, "soft")
        result = host.guest("vector_add")
        assert result.returncode == 0, result.stdout + result.stderr
        [gpu] = host.status()["gpus"]
        assert {"user", "mount", "pid", "filter", *gpu["walls"]} == set(gpu["walls"])
        status = Path(f"/proc/{child.pid}/status").read_text()
        assert "NoNewPrivs:\t1" in status
        [capabilities] = re.findall(r"CapEff:\t([0-9a-f]+)", status)
        assert int(capabilities, 16).bit_count() <= len(said("CapabilityBoundingSet"))
        assert "Seccomp:\t2" in status
        with Connection(state_dir / "control.sock") as connection:
            connection.ask("stop")
        _, errors = child.communicate()
        assert child.returncode == 0, errors
