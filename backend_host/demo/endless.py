"""A program without end in each machine, for the part of the demo that shows shares: `endless` of benchmarks/programs, by its head.

Its kernels are of ten seconds, and large: they go in parts on the host, and between two parts the GPU is handed on. A guest is asked once for
each kernel. So its share does not hang on how soon its CPU runs, and that may be late: two emulated guests, and a device that is software,
want the same few cores. A program that queues short kernels and waits for them needs its CPU each time that its queue is empty. If it comes
late the GPU is the other's meanwhile, as the rules have it, and the shares tell of the cores. Beside two busy processes on two cores these
kernels gave min-max ratios of 0.99 and 1.00, and rows of 64 kernels of 5 ms 0.98.

A launch goes in parts from 360000 blocks on (docs/slicing.md). A GPU runs so many of the program's own blocks in a moment. softgpu does not,
so its blocks have fewer rounds: some us each.

Wrong when: softgpu's cores are so busy, as the program measures what a kernel may be, that one has fewer blocks. It goes whole then, and
shares of a few seconds are coarse.
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
_OPTIONS = ("--together",)
_OPTIONS_SOFT = ("--rounds", "10")


def command(device_kind: str, limit_s: int) -> GuestCommand:
    """The last one of a guest: it is told on the console when to end."""
    options = [*_OPTIONS, *(_OPTIONS_SOFT if device_kind == "soft" else ())]
    line = shlex.join([str(PROGRAM_FOLDER / PROGRAM.name), *options])
    return GuestCommand(
        PROGRAM.name, None, ("/bin/busybox", "sh", "-c", f"exec {line} </dev/console"), timeout_s=limit_s
    )


def is_computing(guest: Guest) -> bool:
    """Its first long kernel is on the device: whatever had to be compiled and measured is done."""
    return "ready" in guest.results()[-1].output.splitlines()


def end(guest: Guest) -> None:
    """The program checks that no block of its kernels was lost, and ends. It counts in a stretch of its own first, at which nobody looks."""
    guest.send(b"0 0.1 0\nend\n")
