"""Code that took over the process of a guest's kernels can do nothing there but compute.

taken_kernel.c makes any system call in that process. What is there of others is tried by name: the worker, a neighbour, the files of the
device and of regions. That nothing else is there is tried by number.
"""

import base64
import os
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ivshmem.region import Region
from tests.backend_host.test_worker_kernel_wall import REGION_ADDRESS, children, is_alive, mappings
from tests.backend_host.worker_guest import FUNCTION, MODULE, NO_CHUNK, ROOT, Guest, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served

EPERM, ENOSYS, EFBIG, EFAULT, EBADF = -1, -38, -27, -14, -9
ILLEGAL_ADDRESS, LAUNCH_FAILED = 700, 719
NUMBERS = dict(
    re.findall(r"#define __NR_(\w+) (\d+)", Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").read_text())
)
ALLOWED = {
    *("read", "write", "recvfrom", "sendto", "futex", "brk", "munmap", "madvise", "sched_yield", "sched_getaffinity"),
    *("mremap", "clock_gettime", "gettid", "getpid", "rt_sigreturn", "rt_sigaction", "rt_sigprocmask", "sigaltstack"),
    *("set_robust_list", "rseq", "exit", "exit_group", "mmap", "mprotect"),
}
MOST = 600
"""More than there are."""
MAY_MOVE = 1
PROBES = {335, 336}
"""uretprobe and uprobe, which the kernel of the host does not ask filters about: they end whoever calls them from anywhere but its own page."""
COMPILER = """#!{python}
import base64, os, sys
output = sys.argv[sys.argv.index("--output") + 1]
with open(output + ".new", "wb") as made:
    made.write(base64.b64decode({module!r}))
os.chmod(output + ".new", 0o600)
os.replace(output + ".new", output)
"""
"""One file that needs no other: a worker sees few."""
SHARED_ANONYMOUS, PRIVATE_ANONYMOUS, READ, WRITE, EXECUTE = 0x21, 0x22, 1, 2, 4
CLONE_THREAD_ALL, CLONE_NEWUSER = 0x3D0F00, 0x10000000
AT_FDCWD = (1 << 64) - 100


@dataclass
class Taken:
    """A guest whose kernels' process is its own. `at` is eight bytes of its memory, behind which there is a page for texts."""

    served: Served
    guest: Guest
    at: int
    process: int = 0

    def attempt(self, call: str | int, *arguments: int, is_i386: bool = False) -> int:
        """What that system call answers there."""
        number = call if isinstance(call, int) else int(NUMBERS[call])
        self.guest.write(self.at, b"unmoved!")
        fields = struct.pack("<7Q", number, *arguments, *[0] * (6 - len(arguments)))
        self.guest.launch(FUNCTION + 32, fields + struct.pack("<QQ", self.guest.address + self.at, is_i386))
        result = self.guest.call("cuCtxSynchronize").result
        assert result == 0, (call, result)
        answer = self.guest.read(self.at, 8)
        assert answer != b"unmoved!"
        return int.from_bytes(answer, "little", signed=True)

    def text(self, text: str | bytes) -> int:
        """Where kernels find it."""
        encoded = text.encode() if isinstance(text, str) else text
        self.guest.write(self.at + 64, encoded + b"\0")
        return self.guest.address + self.at + 64


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("taken") / "taken.so"
    command = ["cc", "-std=gnu11", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-nostdlib"]
    source = Path(__file__).with_name("taken_kernel.c")
    subprocess.run([*command, "-I", str(ROOT / "softgpu/driver"), str(source), "-o", str(path)], check=True)
    return path


@pytest.fixture
def taken(module: Path, region: Region, tmp_path: Path) -> Iterator[Taken]:
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER.format(python=sys.executable, module=base64.b64encode(module.read_bytes())))
    compiler.chmod(0o755)
    host = Host(
        SOFTGPU,
        {
            "FAIRGV_SOFTGPU_COMPILER": str(compiler),
            "FAIRGV_SOFTGPU_CACHE": str(tmp_path / "cache"),
            "FAIRGV_SOFTGPU_TIERS": "1",
        },
        shared=[tmp_path],
    )
    served = Served(host, region, address=REGION_ADDRESS)
    guest = served.primary()
    assert guest.load(b".version 8.0\n.target sm_80\n\0", handle=MODULE + 32, blob=39).result == 0
    fields = {"module": MODULE + 32, "handle": FUNCTION + 32, "name_bytes": 7}
    guest.ok("cuModuleGetFunction", b"attempt", chunk=NO_CHUNK, **fields)
    at = guest.allocate(8192)
    guest.ok("host_register", address=guest.address + at, bytes=8192)
    taken = Taken(served, guest, at)
    assert taken.attempt("getpid") > 0
    [taken.process] = children(served.worker.process.pid)
    yield taken
    guest.close()
    host.close()


def test_it_runs_beside_the_worker(taken: Taken) -> None:
    """Both have a namespace of processes, where their numbers are others."""
    assert taken.process != taken.served.worker.process.pid
    [numbers] = re.findall(r"^NSpid:(.*)$", Path(f"/proc/{taken.process}/status").read_text(), re.MULTILINE)
    assert taken.attempt("getpid") == int(numbers.split()[-1])


def test_no_call_but_those_that_running_kernels_takes(taken: Taken) -> None:
    assert len(NUMBERS) > 300
    allowed = {int(NUMBERS[name]) for name in ALLOWED}
    for number in range(MOST):
        if number in allowed | PROBES or number == int(NUMBERS["clone3"]):
            continue
        assert taken.attempt(number) == EPERM, number
        assert taken.attempt(0x4000_0000 | number) == EPERM, number  # the second way to each call
    assert taken.attempt("clone3") == ENOSYS
    assert is_alive(taken.process)


def test_the_door_of_32_bit_programs_ends_it(taken: Taken) -> None:
    taken.guest.launch(FUNCTION + 32, struct.pack("<7QQQ", 20, 0, 0, 0, 0, 0, 0, taken.guest.address + taken.at, 1))
    assert taken.guest.call("cuCtxSynchronize").result == LAUNCH_FAILED
    assert not is_alive(taken.process)
    assert not taken.served.worker.process.has_ended()


def test_no_process(taken: Taken) -> None:
    sigchld = int(signal.SIGCHLD)
    for flags in (0, sigchld, 0x100, 0x4100, 0x1200011, CLONE_THREAD_ALL ^ 0x10000, CLONE_THREAD_ALL | CLONE_NEWUSER):
        assert taken.attempt("clone", flags) == EPERM, hex(flags)
    for call in ("fork", "vfork", "execve", "execveat", "unshare", "setns", "setsid", "prctl", "prlimit64"):
        assert taken.attempt(call, taken.text("/bin/true")) == EPERM
    assert children(taken.process) == []


def test_no_code(taken: Taken) -> None:
    for access in (EXECUTE, READ | EXECUTE, READ | WRITE | EXECUTE):
        assert taken.attempt("mmap", 0, 4096, access, PRIVATE_ANONYMOUS, (1 << 64) - 1, 0) == EPERM
        assert taken.attempt("mprotect", taken.guest.address, 4096, access) == EPERM
    mine = taken.attempt("mmap", 0, 4096, READ | WRITE, PRIVATE_ANONYMOUS, (1 << 64) - 1, 0)
    assert mine > 0
    moved = taken.attempt("mremap", mine, 4096, 8192, MAY_MOVE)
    assert moved > 0
    assert taken.attempt("mprotect", moved, 8192, READ | EXECUTE) == EPERM, "what was moved is what it was"
    assert taken.attempt("mremap", moved, 0, 4096, MAY_MOVE) < 0, "private memory has no second place"


def test_nobody_is_hurt(taken: Taken) -> None:
    """Neither the worker nor a neighbour, both processes of the same user here."""
    other = subprocess.Popen(["sleep", "600"])
    for pid in (taken.served.worker.process.pid, other.pid):
        for call in ("kill", "tkill", "rt_sigqueueinfo", "sched_setaffinity", "sched_setscheduler", "pidfd_open"):
            assert taken.attempt(call, pid, int(signal.SIGKILL)) == EPERM
        assert taken.attempt("tgkill", pid, pid, int(signal.SIGKILL)) == EPERM
        assert taken.attempt("ptrace", 16, pid) == EPERM
        for call in ("process_vm_writev", "process_vm_readv", "process_madvise", "get_robust_list"):
            assert taken.attempt(call, pid) == EPERM
    assert not taken.served.worker.process.has_ended()
    assert other.poll() is None
    other.kill()
    other.wait()


def test_no_file(taken: Taken) -> None:
    """The device's state, the region of another, the memory of the worker."""
    state = Path(taken.served.host.state.name) / "device.0"
    before = state.read_bytes()
    with make_region() as region:
        names = [str(state), f"/dev/shm/{region.name}", f"/proc/{taken.served.worker.process.pid}/mem", "/etc/passwd"]
        for name in names:
            assert Path(name).exists(), name
            assert taken.attempt("open", taken.text(name), os.O_RDWR) == EPERM
            for call in ("openat", "openat2"):
                assert taken.attempt(call, AT_FDCWD, taken.text(name), os.O_RDWR) == EPERM
    descriptors = [int(path.name) for path in Path(f"/proc/{taken.process}/fd").iterdir()]
    for fd in sorted({*descriptors, *range(64)} - {*descriptors}):
        assert taken.attempt("read", fd, taken.guest.address, 0) == EBADF
        assert taken.attempt("mmap", 0, 4096, READ | WRITE, 1, fd, 0) == EBADF
    assert state.read_bytes()[32:] == before[32:]


def test_no_descriptor_is_passed(taken: Taken) -> None:
    for call in ("sendmsg", "sendmmsg", "recvmsg", "recvmmsg", "pidfd_getfd", "dup", "dup2", "fcntl", "socketpair"):
        assert taken.attempt(call, 2, taken.text("")) == EPERM


def test_what_it_says_is_bounded(taken: Taken) -> None:
    """What kernels say waits in memory of the worker until the guest fetches it."""
    piece = 1 << 20
    answers = set()
    held = taken.guest.ok("cuMemAlloc_v2", bytesize=piece).dptr
    for _ in range(80):
        answers.add(taken.attempt("write", 2, held, piece))
    assert answers <= {piece, EFBIG}
    said = Path(f"/proc/{taken.served.worker.process.pid}/fd/2").stat().st_size
    assert said <= 64 << 20
    assert is_alive(taken.process)


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"\xff",
        b"\xff" * 64,
        bytes(4112),
        b"\0" * 8 + b"\xff" * 8,
        b"\2" + b"\xff" * 15,
        b"\1\0\0\0" + b"\xff" * 4108,
    ],
)
def test_what_it_tells_the_worker_is_not_believed(taken: Taken, words: bytes) -> None:
    """It is on the other end of a socket of the worker's, and may say anything there, now and later."""
    [socket] = [
        int(path.name)
        for path in Path(f"/proc/{taken.process}/fd").iterdir()
        if path.readlink().name.startswith("socket")
    ]
    at = taken.text(b"x") - 64 + 128
    taken.guest.write(taken.at + 128, words)
    fields = struct.pack("<7Q", int(NUMBERS["sendto"]), socket, at, len(words), 0, 0, 0)
    for _ in range(3):
        taken.guest.launch(FUNCTION + 32, fields + struct.pack("<QQ", taken.guest.address + taken.at, 0))
        taken.guest.call("cuCtxSynchronize")
        assert not taken.served.worker.process.has_ended()


def test_nothing_is_there_that_the_worker_shares_with_others(taken: Taken, region: Region) -> None:
    """The page, the accounts, whatever else: the kernel of the host would store the time there, were it mapped."""
    pid = taken.served.worker.process.pid
    theirs = [found for found in mappings(pid) if found.access.endswith("s") and "/dev/zero" not in found.what]
    theirs = [found for found in theirs if region.name not in found.what]
    assert sum("memfd:fairgv-" in found.what for found in theirs) >= 3
    for found in theirs:
        for at in (found.start, found.end - 64):
            assert taken.attempt("clock_gettime", 0, at) == EFAULT, found
    assert taken.attempt("clock_gettime", 0, taken.text("")) == 0
