"""Waiting in a virtual machine, three ways in one run: `python -m benchmarks.wakeup [--json FILE]`.

    sysfs        no kernel module; both sides look now and then
    module       the kernel module, and the same naps
    interrupts   the kernel module, and a doorbell: whoever sleeps is woken

One guest with a doorbell runs the program (benchmarks/wakeup.cu) in each way, in turn, several times. Each row is a median over the rounds, and
its ratio to `sysfs` the median of the rounds' ratios, so that a machine that gets busy meanwhile changes little. Needs what VM tests need, and
the headers of the kernel that guests boot.

Wrong when: guests are emulated, which the document says. An interrupt then goes through QEMU's main loop, and every instruction of the guest
takes ten to thirty times as long; only the naps do not.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from backend_host.config import PACKAGE_ROOT
from backend_host.demo.daemon import PrivateDaemon
from backend_host.errors import FairGVError
from backend_host.vm.accelerator import AcceleratorChoice, choose_accelerator
from backend_host.vm.guest import Guest, follow_guests
from backend_host.vm.initramfs import GUEST_LIBRARY_PATH, GuestCommand, GuestImage, build_image
from backend_host.vm.interrupts import InterruptedBySignalError, raised_signals
from backend_host.vm.kernel import find_kernel
from backend_host.vm.private_libvirt import PrivateLibvirt
from benchmarks.guests.kernel_module import MODULE_IN_GUEST, build_module
from benchmarks.nvcc import find_nvcc, rebuilding, seal_of

SOURCE = Path(__file__).with_suffix(".cu")
PROGRAM = PACKAGE_ROOT / "build/benchmarks/wakeup"
GUEST_LIBRARY = PACKAGE_ROOT / "build/guest/libcuda.so.1"
NAME = "wakeup"
RUN_LIMIT_S = 120
BOOT_LIMIT_S = 180
WAYS = {
    "sysfs": "FAIRGV_REGION=$(dirname $(grep -l 0x1110 /sys/bus/pci/devices/*/device))/resource2",
    "module": "FAIRGV_WAKE=poll",
    "interrupts": "FAIRGV_WAKE=bell",
}
"""What the program's environment has more, in the words of the guest's shell."""
MEASURES = ("call", "after_pause", "synchronise")


@dataclass(frozen=True)
class Row:
    """One way of waiting. Microseconds, and their ratios to those of `sysfs`; below 1 is faster."""

    way: str
    us: dict[str, float]
    ratio: dict[str, float]
    nr_rounds: int


def build_program() -> Path:
    """The guest's program, compiled where that is due."""
    nvcc = find_nvcc()
    command = [str(nvcc.path), "-O2", "-std=c++17", "-L", str(nvcc.libraries)]
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    with rebuilding(PROGRAM, seal_of([command], [SOURCE], nvcc.path)) as unfinished:
        if unfinished:
            subprocess.run([*command, "-o", str(unfinished), str(SOURCE)], check=True)
    return PROGRAM


def image_of(folder: Path, nr_rounds: int, nr_repetitions: int) -> GuestImage:
    """A guest that loads the module and runs the program in each way, round by round."""
    kernel = find_kernel()

    def shell(name: str, line: str) -> GuestCommand:
        return GuestCommand(name, None, ("/bin/busybox", "sh", "-c", line), timeout_s=RUN_LIMIT_S)

    runs = [
        shell(way, f"{environment} /programs/{PROGRAM.name} {nr_repetitions}")
        for _ in range(nr_rounds)
        for way, environment in WAYS.items()
    ]
    files = {
        GUEST_LIBRARY_PATH: GUEST_LIBRARY,
        PurePosixPath("/programs") / PROGRAM.name: build_program(),
        MODULE_IN_GUEST: build_module(kernel.release),
    }
    return build_image(folder, [shell("insmod", f"insmod {MODULE_IN_GUEST}"), *runs], files, kernel=kernel)


def run(nr_rounds: int, nr_repetitions: int) -> tuple[AcceleratorChoice, str, list[dict[str, dict[str, float]]]]:
    """How guests run here, the device's name, and for each round what each way measured. Raises FairGVError."""
    choice = choose_accelerator()
    print(choice.reason, file=sys.stderr)
    with ExitStack() as stack:
        libvirt = stack.enter_context(PrivateLibvirt())
        state_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fairgv-wakeup-")))
        state_dir.chmod(0o711)
        daemon = stack.enter_context(PrivateDaemon(state_dir, libvirt.uri))
        folder = libvirt.folder / NAME
        folder.mkdir(mode=0o755)
        libvirt.hand_over(folder)
        image = image_of(folder, nr_rounds, nr_repetitions)
        guest = stack.enter_context(Guest(libvirt, NAME, image, choice))
        daemon.command("attach", NAME, "--region", "64M", "--doorbell")
        guest.start()
        follow_guests([guest], BOOT_LIMIT_S + len(image.commands) * RUN_LIMIT_S)
        device = str(daemon.status()["device"]["name"])
        return choice, device, read_rounds(guest)


def read_rounds(guest: Guest) -> list[dict[str, dict[str, float]]]:
    """What the programs printed. Raises FairGVError when one failed."""
    rounds: list[dict[str, dict[str, float]]] = []
    for result in guest.results():
        if result.exit_code != 0:
            raise FairGVError(f"{result.command.name} failed in the guest ({result.exit_code}): {result.output}")
        if result.command.name not in WAYS:
            continue
        if not rounds or result.command.name in rounds[-1]:
            rounds.append({})
        rounds[-1][result.command.name] = json.loads(result.output.splitlines()[-1])
    return rounds


def rows_of(rounds: Sequence[dict[str, dict[str, float]]]) -> list[Row]:
    """Medians over the rounds, ratios within each."""

    def ratio(way: str, measure: str) -> float:
        return statistics.median(each[way][measure] / each["sysfs"][measure] for each in rounds)

    return [
        Row(
            way,
            {measure: statistics.median(each[way][measure] for each in rounds) for measure in MEASURES},
            {measure: ratio(way, measure) for measure in MEASURES},
            len(rounds),
        )
        for way in WAYS
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table, and with --json writes a document; returns the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks.wakeup", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="each way once in each (default %(default)s)"
    )
    parser.add_argument("--repetitions", type=int, default=40, metavar="N", help="in each run (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    try:
        with raised_signals():
            choice, device, rounds = run(options.rounds, options.repetitions)
    except FairGVError as error:
        print(f"benchmarks.wakeup: {error}", file=sys.stderr)
        return 1
    except InterruptedBySignalError as interruption:
        return interruption.exit_code
    rows = rows_of(rounds)
    print(f"{'':12}" + "".join(f"{measure:>24}" for measure in MEASURES))
    for row in rows:
        cells = "".join(f"{row.us[measure]:12.1f} us ({row.ratio[measure]:5.2f})" for measure in MEASURES)
        print(f"{row.way:12}{cells}")
    if options.json:
        document = {
            "kind": "wakeup",
            "date": time.strftime("%Y-%m-%d"),
            "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release().partition('-')[0]}",
            "device": device,
            "accelerator": choice.accelerator.value,
            "load_before": load,
            "command": f"python -m benchmarks.wakeup --rounds {options.rounds} --repetitions {options.repetitions}",
            "rows": [asdict(row) for row in rows],
            "rounds": rounds,
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
