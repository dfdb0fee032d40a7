"""A program without end in each machine, for the part of the demo that shows shares: `endless` of benchmarks/programs, by its head.

Its kernels are of seconds, and large: they go in parts on the host, and between two parts the GPU is handed on. A guest is asked once for
each kernel. So its share does not hang on how soon its CPU runs, and that may be late: two emulated guests, and a device that is software, want
the same few cores. A program that queues short kernels and waits for them needs its CPU each time that its queue is empty. If it comes late the
GPU is the other's meanwhile, as the rules have it, and the shares tell of the cores.

Its blocks are short. softgpu needs some us for one, an H200 some ns. On either a kernel has more blocks than a launch needs to go in parts
(docs/slicing.md), and less than 2**31.

Wrong when: a device is so much faster that it would have more. The program says so then, and ends.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from backend_host.config import PACKAGE_ROOT
from backend_host.vm.guest import Guest
from backend_host.vm.initramfs import PROGRAM_FOLDER, GuestCommand

PROGRAM = PACKAGE_ROOT / "build/benchmarks/endless"
FILES: Mapping[PurePosixPath, Path] = {PROGRAM_FOLDER / PROGRAM.name: PROGRAM}
"""What the guest's image must have besides."""
_OPTIONS = ("--together", "--kernel-seconds", "5", "--rounds", "50")


def command(limit_s: int) -> GuestCommand:
    """The last one of a guest: it is told on the console when to end."""
    line = shlex.join([str(PROGRAM_FOLDER / PROGRAM.name), *_OPTIONS])
    return GuestCommand(
        PROGRAM.name, None, ("/bin/busybox", "sh", "-c", f"exec {line} </dev/console"), timeout_s=limit_s
    )


def is_computing(guest: Guest) -> bool:
    """Its first long kernel is on the device: whatever had to be compiled and measured is done."""
    return "ready" in guest.results()[-1].output.splitlines()


def end(guest: Guest) -> None:
    """The program checks that no block of its kernels was lost, and ends. It counts in a stretch of its own first, at which nobody looks."""
    guest.send(b"0 0.1 0\nend\n")
