"""Ways out of a worker that its guest took over, and which wall holds each: the table of docs/security.md, which test_escapes.py tries.

An attack is a line that escapes.c understands; `call` below writes those of one system call. What stands in braces is known when it is tried:
numbers of processes and paths of the host that a worker has no business with.

`python -m tests.backend_host.escapes` writes the table into the page.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
_PLACE = re.compile(r"(<!-- escapes: begin\b[^>]*-->).*?(<!-- escapes: end -->)", re.DOTALL)

NUMBERS = {
    "open": 2,
    "mmap": 9,
    "getuid": 102,
    "kill": 62,
    "ptrace": 101,
    "syslog": 103,
    "setuid": 105,
    "setpriority": 141,
    "capset": 126,
    "rt_sigqueueinfo": 129,
    "mknod": 133,
    "personality": 135,
    "sched_setscheduler": 144,
    "modify_ldt": 154,
    "pivot_root": 155,
    "prctl": 157,
    "chroot": 161,
    "acct": 163,
    "settimeofday": 164,
    "mount": 165,
    "umount2": 166,
    "swapon": 167,
    "reboot": 169,
    "sethostname": 170,
    "iopl": 172,
    "init_module": 175,
    "quotactl": 179,
    "chown": 92,
    "chmod": 90,
    "shmget": 29,
    "socket": 41,
    "setgroups": 116,
    "setresuid": 117,
    "setresgid": 119,
    "semget": 64,
    "msgget": 68,
    "tkill": 200,
    "io_setup": 206,
    "tgkill": 234,
    "mq_open": 240,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "migrate_pages": 256,
    "vmsplice": 278,
    "unshare": 272,
    "perf_event_open": 298,
    "fanotify_init": 300,
    "prlimit64": 302,
    "open_by_handle_at": 304,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "memfd_create": 319,
    "bpf": 321,
    "execveat": 322,
    "userfaultfd": 323,
    "sched_setaffinity": 203,
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "pidfd_open": 434,
    "clone3": 435,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "memfd_secret": 447,
    "x32 getpid": 0x40000000 | 39,
}
"""Of x86-64, of calls that the attacks make."""


def call(name: str, *arguments: object) -> str:
    """The line for one system call: numbers; text, of which it gets the address; bytes, likewise."""
    words = []
    for argument in arguments:
        if isinstance(argument, bytes):
            words.append(f"#{argument.hex()}")
        elif isinstance(argument, str) and not argument.startswith("{"):
            words.append(f'"{argument}')
        else:
            words.append(str(argument))
    return " ".join(["call", str(NUMBERS[name]), *words])


def path(name: str, flags: int = 0) -> str:
    """The line that opens a file, by the name that the test has for it or by its path."""
    return f'call {NUMBERS["open"]} "{name} {flags} 384'


READ, WRITE, CREATE = 0, 2, 0o102
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_ALG, AF_VSOCK = 1, 2, 10, 16, 17, 38, 40
STREAM, DATAGRAM, RAW = 1, 2, 3
NEWNS, NEWUSER, NEWPID, NEWNET, PARENT = 0x20000, 0x10000000, 0x20000000, 0x40000000, 0x8000
F_SETOWN, F_SETSIG, F_SETLEASE, F_SETOWN_EX, F_NOTIFY = 8, 10, 1024, 15, 1026
EPERM, ENOENT, ESRCH, EACCES, EROFS, ENOTTY = (
    errno.EPERM,
    errno.ENOENT,
    errno.ESRCH,
    errno.EACCES,
    errno.EROFS,
    errno.ENOTTY,
)
CAPABILITIES = bytes.fromhex("2205082000000000")
ALL_OF_THEM = b"\xff" * 24
NO_LIMIT = b"\0" * 16


@dataclass(frozen=True)
class Escape:
    """One attack; what it gets behind the walls for softgpu, and behind those for a GPU."""

    what: str
    wall: str
    line: str
    on_soft: int
    on_cuda: int


def row(what: str, wall: str, line: str, on_soft: int, on_cuda: int | None = None) -> Escape:
    """One whose errno is the same on a GPU, unless it is said."""
    return Escape(what, wall, line, on_soft, on_soft if on_cuda is None else on_cuda)


def _files() -> Iterator[Escape]:
    for what, name in (
        ("/dev/kvm", "/dev/kvm"),
        ("/dev/mem", "/dev/mem"),
        ("/dev/fuse", "/dev/fuse"),
        ("the terminal", "/dev/tty"),
        ("/etc/shadow", "/etc/shadow"),
        ("/etc/passwd", "/etc/passwd"),
        ("a file of root's home", "/root/.bashrc"),
        ("the daemon's control socket", "{socket}"),
        ("the daemon's log", "{log}"),
        ("another tenant's cache", "{other_cache}"),
        ("it where all caches were", "/.caches/{other}"),
        ("the checkout beside our packages", "{checkout}"),
        ("the old root below the new one", "/.outside"),
        ("the host's cgroups", "/sys/fs/cgroup/memory/tasks"),
    ):
        yield row(f"read {what}", "mount", path(name), ENOENT)
    yield row("read the daemon's memory", "pid", path("/proc/{daemon}/mem", WRITE), ENOENT)
    yield row("read a neighbour's command line", "pid", path("/proc/{neighbour}/cmdline"), ENOENT)
    yield row("read its own memory as a file", "filter", path("/proc/self/mem", WRITE), EACCES)
    yield row("read its environment as a file", "filter", path("/proc/self/environ"), EACCES)
    yield row("the kernel's settings", "mount, user", path("/proc/sys/kernel/core_pattern", WRITE), ENOENT, EACCES)
    yield row("write to our packages", "user, mount", path("{package}", WRITE), EACCES)
    yield row("write to its Python", "user, mount", path("{python}", WRITE), EACCES)
    yield row("write to a library that all may write", "mount", path("{library}", WRITE), EROFS)
    yield row("a new file in its root", "mount", path("/new", CREATE), EROFS)
    yield row("other rights for a device", "user", call("chmod", "/dev/null", 0o777), EPERM)
    yield row("another owner for a file", "filter", call("chown", "/dev/null", 0, 0), EPERM)
    yield row("a device node of its own", "filter", call("mknod", "/tmp/kvm", 0o20666, 10 << 8 | 232), EPERM)
    yield row("a file by its handle", "filter", call("open_by_handle_at", 0, b"\0", 0), EPERM)
    yield row("a program of its own, in /tmp", "mount; filter", "execute /tmp", EACCES, EPERM)
    yield row("a program of its own, in its cache", "filter", "execute /cache", 0, EPERM)


def _processes() -> Iterator[Escape]:
    for who in ("daemon", "neighbour"):
        yield row(f"kill: the {who}", "pid; filter", call("kill", f"{{{who}}}", 0), ESRCH, EPERM)
        yield row(f"tgkill: the {who}", "pid; filter", call("tgkill", f"{{{who}}}", f"{{{who}}}", 0), ESRCH, EPERM)
        yield row(f"prlimit: the {who}", "pid; filter", call("prlimit64", f"{{{who}}}", 4, NO_LIMIT, 0), ESRCH, EPERM)
        yield row(f"sched_setaffinity: the {who}", "pid", call("sched_setaffinity", f"{{{who}}}", 8, b"\1"), ESRCH)
        for name in ("tkill", "pidfd_open", "rt_sigqueueinfo", "kcmp", "migrate_pages"):
            yield row(f"{name}: the {who}", "filter", call(name, f"{{{who}}}", 0, 0, 0), EPERM)
        for name in ("process_vm_readv", "process_vm_writev"):
            yield row(f"{name}: the {who}", "filter", call(name, f"{{{who}}}", b"\0", 1, b"\0", 1, 0), EPERM)
        yield row(f"ptrace: the {who}", "filter", call("ptrace", 0x4206, f"{{{who}}}", 0, 0), EPERM)
        yield row(f"setpriority: the {who}", "filter", call("setpriority", 0, f"{{{who}}}", 0), EPERM)
    yield row("all processes at once", "pid; filter", call("kill", -1, 0), ESRCH, EPERM)
    yield row("pidfd_send_signal", "filter", call("pidfd_send_signal", 0, 9, 0, 0), EPERM)
    yield row("pidfd_getfd", "filter", call("pidfd_getfd", 0, 0, 0), EPERM)
    yield row("process_madvise", "filter", call("process_madvise", 0, 0, 0, 0, 0), EPERM)
    yield row("a signal about the daemon's socket: F_SETSIG", "filter", f"fcntl {F_SETSIG} 9", EPERM)
    yield row("to the daemon: F_SETOWN", "filter", f"fcntl {F_SETOWN} {{daemon}}", EPERM)
    yield row("to the daemon: F_SETOWN_EX", "filter", f"fcntl {F_SETOWN_EX} #{'00' * 8}", EPERM)
    yield row("to the daemon: FIOSETOWN", "filter", "ioctl 0x8901 #01000000", ENOTTY)
    yield row("F_SETLEASE, F_NOTIFY", "filter", f"fcntl {F_SETLEASE} 0", EPERM)
    yield row("to pass for a worker that died: its life", "filter", "life 3 0", 0, EPERM)


def _calls() -> Iterator[Escape]:
    for name, arguments in (
        ("setuid", (0,)),
        ("setresuid", (0, 0, 0)),
        ("setresgid", (0, 0, 0)),
        ("setgroups", (0, 0)),
        ("capset", (CAPABILITIES, ALL_OF_THEM)),
        ("sched_setscheduler", (0, 1, b"\1")),
        ("mount", ("none", "/tmp", "tmpfs", 0, 0)),
        ("umount2", ("/tmp", 2)),
        ("pivot_root", ("/tmp", "/tmp")),
        ("chroot", ("/tmp",)),
        ("open_tree", (-100, "/", 1)),
        ("move_mount", (0, "x", 0, "y", 0)),
        ("fsopen", ("tmpfs", 0)),
        ("mount_setattr", (-100, "/", 0, b"\0", 32)),
        ("unshare", (NEWUSER,)),
        ("setns", (0, 0)),
        ("io_uring_setup", (8, b"\0")),
        ("bpf", (0, b"\0", 64)),
        ("perf_event_open", (b"\0", 0, -1, -1, 0)),
        ("userfaultfd", (0,)),
        ("keyctl", (0, -3, 0)),
        ("add_key", ("user", "x", "y", 1, -3)),
        ("request_key", ("user", "x", 0, -3)),
        ("shmget", (0, 4096, 0o1600)),
        ("semget", (0, 1, 0o1600)),
        ("msgget", (0, 0o1600)),
        ("mq_open", ("x", 0o102, 0o600, 0)),
        ("modify_ldt", (0, b"\0", 16)),
        ("iopl", (3,)),
        ("init_module", (b"\0", 1, "")),
        ("kexec_load", (0, 0, 0, 0)),
        ("reboot", (0, 0, 0, 0)),
        ("swapon", ("/tmp", 0)),
        ("acct", ("/tmp",)),
        ("quotactl", (0, "x", 0, 0)),
        ("syslog", (3, b"\0", 16)),
        ("settimeofday", (b"\0", 0)),
        ("sethostname", ("x", 1)),
        ("fanotify_init", (0, 0)),
        ("memfd_secret", (0,)),
        ("vmsplice", (0, 0, 0, 0)),
        ("execveat", (-100, "/x", 0, 0, 0)),
        ("io_setup", (64, b"\0")),
    ):
        yield row(name, "filter", call(name, *arguments), EPERM)
    yield row("another personality", "filter", call("personality", 0x0040000), EPERM, 0)
    yield row("clone: a user namespace", "filter", f"clone {NEWUSER}", EPERM)
    yield row("clone: a mount namespace", "filter", f"clone {NEWNS}", EPERM)
    yield row("clone: a child of the daemon's", "filter", f"clone {PARENT}", EPERM)
    yield row("clone3, whose flags no filter sees", "filter", call("clone3", b"\0", 88), errno.ENOSYS)
    yield row("the calls of x32", "filter", call("x32 getpid"), EPERM)
    yield row("a core file, by PR_SET_DUMPABLE", "filter", call("prctl", 4, 1, 0, 0, 0), EPERM)
    yield row("PR_SET_KEEPCAPS", "filter", call("prctl", 8, 1, 0, 0, 0), EPERM)
    yield row("PR_SET_PTRACER", "filter", call("prctl", 0x59616D61, -1, 0, 0, 0), EPERM)
    yield row("PR_SET_MM", "filter", call("prctl", 35, 1, 0, 0, 0), EPERM)
    yield row("PR_CAP_AMBIENT_RAISE", "filter", call("prctl", 47, 2, 21, 0, 0), EPERM)
    yield row("the host's huge pages: mmap", "filter", call("mmap", 0, 2 << 20, 3, 0x40022, -1, 0), EPERM)
    yield row("the host's huge pages: memfd_create", "filter", call("memfd_create", "x", 4), EPERM)


def _sockets() -> Iterator[Escape]:
    for family, kind, number in (
        ("TCP", STREAM, AF_INET),
        ("UDP", DATAGRAM, AF_INET),
        ("TCP over IPv6", STREAM, AF_INET6),
        ("netlink", RAW, AF_NETLINK),
        ("packets", RAW, AF_PACKET),
        ("the kernel's ciphers", STREAM, AF_ALG),
        ("vsock", STREAM, AF_VSOCK),
    ):
        yield row(f"socket: {family}", "filter", call("socket", number, kind, 0), EPERM)
    yield row(
        "socket: an abstract name of the host's",
        "filter; net, landlock",
        "abstract {abstract}",
        EPERM,
        errno.ECONNREFUSED,
    )
    for what, number in (
        ("TIOCSTI", 0x5412),
        ("FIOASYNC", 0x5452),
        ("KVM_CREATE_VM", 0xAE01),
        ("VFIO_GET_API_VERSION", 0x3B64),
        ("NS_GET_USERNS", 0xB701),
        ("TUNSETIFF", 0x400454CA),
        ("SIOCGIFCONF", 0x8912),
    ):
        yield row(f"ioctl: {what}", "filter", f"ioctl {number} #01000000", ENOTTY)


ESCAPES = (*_files(), *_processes(), *_calls(), *_sockets())


def _name(number: int) -> str:
    return errno.errorcode[number] if number else "comes through"


def table() -> Iterator[str]:
    """Lines of Markdown."""
    yield from ("| attack | held by | on softgpu | on a GPU |", "|---|---|---|---|")
    for escape in ESCAPES:
        yield f"| {escape.what} | {escape.wall} | {_name(escape.on_soft)} | {_name(escape.on_cuda)} |"


def page(text: str) -> str:
    """The page with its table made anew."""
    made = "\n".join(table())
    fresh, nr = _PLACE.subn(lambda place: f"{place[1]}\n\n{made}\n\n{place[2]}", text)
    assert nr == 1, f"{PAGE.name} has {nr} places for the table"
    return fresh


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
