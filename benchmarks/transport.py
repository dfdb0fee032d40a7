"""What FairGV itself does for a launch and its synchronisation, and for copies of pageable memory: `python -m benchmarks.transport`.

A real guest and a real worker, on a device that does nothing (transport_device.c): its calls cost nothing, or what they are told to cost, so
no GPU is needed, and what it prints is the transport's share. Calls of the driver are counted: for each launch and synchronisation, the
difference of two runs of which one has twice as many. Times are the guest's; `over the device` is without what the device was told to take.

Wrong when other work is on the machine's cores: read the least times then, or the counts.
"""

import argparse
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from backend_host.config import PACKAGE_ROOT, load_config
from backend_host.launching import daemon_for_now
from backend_host.walls.tenants import name_of

SOFTGPU = PACKAGE_ROOT / "build/softgpu/libcuda.so.1"
GUEST = PACKAGE_ROOT / "build/guest/libcuda.so.1"
SETTINGS = ("launch_ns", "record_ns", "look_ns", "kernel_ns", "wake_ns", "copy_mb_s")
COUNTS_BYTES = 4096
_COUNT = struct.Struct("24sQ")
REGION = "512M"


@dataclass(frozen=True)
class Synchronisation:
    """Of launches that are waited for: calls of the driver by name, and nanoseconds."""

    calls: dict[str, float]
    ns: dict[str, int]


class Scene:
    """A private daemon on the quick device, for one setting of it."""

    def __init__(self, state_dir: Path, program: Path, counts: Path) -> None:
        self._state_dir, self._program, self._counts = state_dir, program, counts

    def run(self, *arguments: str) -> dict[str, float]:
        """What the guest printed, by name. Raises CalledProcessError when it fails."""
        command = [sys.executable, "-m", "backend_host.run", "--state-dir", str(self._state_dir), "--region", REGION]
        answer = subprocess.run(
            [*command, "--", str(self._program), *arguments],
            cwd=PACKAGE_ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return {name: float(value) for name, value, _ in map(str.split, answer.stdout.splitlines())}

    def calls(self) -> dict[str, int]:
        """Of the driver, so far. A worker behind walls has the file in its cache."""
        kept = self._counts.with_name("cache") / name_of("session", "", os.getuid()) / self._counts.name
        content = (kept if kept.exists() else self._counts).read_bytes()
        found = _COUNT.iter_unpack(content[: len(content) // _COUNT.size * _COUNT.size])
        return {name.rstrip(b"\0").decode(): nr for name, nr in found if nr}

    def synchronisation(
        self, nr_rounds: int, nr_launches: int = 1, nr_bytes: int = 0, rest_us: int = 0
    ) -> Synchronisation:
        """Of each of `nr_rounds`, which are measured, and twice as many, which are counted with them.

        A round sleeps for `rest_us`, copies `nr_bytes` to the device, 0 for nothing, launches so many kernels and waits.
        """
        before = self.calls()
        rounds = (str(nr_launches), str(nr_bytes), str(rest_us))
        ns = self.run("sync", str(nr_rounds), *rounds)
        between = self.calls()
        self.run("sync", str(2 * nr_rounds), *rounds)
        after = self.calls()

        def extra(name: str) -> int:
            first = between.get(name, 0) - before.get(name, 0)
            return after[name] - between.get(name, 0) - first

        calls = {name: extra(name) / nr_rounds for name in after if extra(name) > 0}
        return Synchronisation(calls, {name: int(value) for name, value in ns.items()})


def build(folder: Path) -> tuple[Path, Path]:
    """The device library and the guest's program, in `folder`."""
    sources = PACKAGE_ROOT / "benchmarks"
    include = PACKAGE_ROOT / "cuda_api/include"
    compiler = ["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{include}"]
    device, guest = folder / "libcuda_quick.so", folder / "transport_guest"
    library = ["-shared", "-fPIC", "-Wl,--no-as-needed", str(SOFTGPU), f"-Wl,-rpath,{SOFTGPU.parent}"]
    subprocess.run([*compiler, "-o", str(device), str(sources / "transport_device.c"), *library], check=True)
    subprocess.run([*compiler, "-o", str(guest), str(sources / "transport_guest.c"), str(GUEST)], check=True)
    return device, guest


@contextmanager
def open_scene(setting: dict[str, int]) -> Iterator[Scene]:
    """`setting`: what the device's calls cost, by the names of SETTINGS. Changes this process's environment for good."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fairgv-transport-")))
        folder.chmod(0o711)  # workers of another user pass through
        device, program = build(folder)
        counts, state_dir = folder / "counts", folder / "state"
        counts.write_bytes(bytes(COUNTS_BYTES))
        counts.chmod(0o666)
        os.environ |= {f"FAIRGV_QUICK_{name.upper()}": str(value) for name, value in setting.items()}
        os.environ |= {"FAIRGV_QUICK_COUNTS": str(counts)}
        config = load_config(
            None,
            state_dir=state_dir,
            device="soft",
            softgpu_library=str(device),
            adopt="attached",
            is_private=True,
        )
        config = replace(config, walls=replace(config.walls, cache_dir=str(folder / "cache")))
        stack.enter_context(daemon_for_now(config))
        yield Scene(state_dir, program, counts)


def main() -> int:
    """Entry point."""
    options = _parser().parse_args()
    setting = {name: getattr(options, name) for name in SETTINGS}
    with open_scene(setting) as scene:
        for _ in range(options.repetitions):
            found = scene.synchronisation(options.rounds)
            times = ", ".join(f"{name} {ns - options.launch_ns - options.kernel_ns}" for name, ns in found.ns.items())
            calls = ", ".join(f"{name} {nr:.3f}" for name, nr in sorted(found.calls.items()))
            print(f"launch and synchronise, ns over the device: {times}; calls: {calls}", flush=True)
        for _ in range(options.repetitions if options.copies else 0):
            rates = scene.run("copy", str(options.copies), str(options.mib))
            print("pageable, GB/s: " + ", ".join(f"{name} {rate:.2f}" for name, rate in rates.items()), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="transport", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20000, help="launches of a run (20000)")
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each kind (3)")
    parser.add_argument("--copies", type=int, default=4, help="of a run, the best of which counts; 0: none (4)")
    parser.add_argument("--mib", type=int, default=256, help="size of a copy (256)")
    parser.add_argument("--launch-ns", type=int, default=0, help="that a launch or copy costs the worker (0)")
    parser.add_argument("--record-ns", type=int, default=0, help="the same for an event's record (0)")
    parser.add_argument("--look-ns", type=int, default=0, help="the same for a question about an event or a stream (0)")
    parser.add_argument("--kernel-ns", type=int, default=0, help="from the launch to its end (0)")
    parser.add_argument(
        "--wake-ns", type=int, default=0, help="after a rest of a millisecond, before a kernel begins (0)"
    )
    parser.add_argument("--copy-mb-s", type=int, default=55000, help="between host and device (55000)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
