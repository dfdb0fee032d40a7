"""What coscheduling gives where CPUs are short: `python -m benchmarks.coscheduling [--weights 1:2:3] [--hogs N] [--ways off,best,...]`.

The setting of the FairGV paper's Figure 8, in its interactive rows: all guests on one core, each program waits for each of its kernels. Here a
guest is a program of this host (`fairgv-run`), pinned to `--core` as a VM's vCPU would be; beside them run as many programs that only burn
that core (the paper's congested case). Everything else (daemon, workers, the device) has the other cores. Each way runs `--rounds` times, in
turn with the others, and the median counts; every figure is a ratio to `off` in the same run.

Wrong when the other cores are busy too: then everybody waits for everything.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from backend_host.cli import start_in_background, wait_for_end
from backend_host.config import COSCHEDULING, DEVICE_KINDS, PACKAGE_ROOT, load_config
from backend_host.ipc import Connection
from benchmarks.build import build

LEAD_S = 0.5
HOG = "while True: pass"


@dataclass(frozen=True)
class Setting:
    """What runs: one program for each weight, `nr_hogs` programs beside them, all on `core`."""

    weights: tuple[int, ...]
    kernel_us: float
    nr_hogs: int
    core: int
    device: str
    window_s: float


@dataclass(frozen=True)
class Round:
    """One window: kernels of each program, and how often each vGPU's thread was boosted."""

    kernels: tuple[int, ...]
    boosts: tuple[int, ...]

    def min_max_ratio(self, weights: Sequence[int]) -> float:
        """Of kernels over weight."""
        normalised = [count / weight for count, weight in zip(self.kernels, weights, strict=True)]
        return min(normalised) / max(normalised) if max(normalised) else 0.0


def measure(setting: Setting, way: str) -> Round:
    """One round under a daemon of its own."""
    with _daemon(setting, way) as state_dir, contextlib.ExitStack() as ends:
        programs = [ends.enter_context(_program(setting, state_dir, index)) for index in range(len(setting.weights))]
        for child in programs:
            assert child.stdout is not None
            if child.stdout.readline() != "ready\n":
                sys.exit("spin did not start")
        for _ in range(setting.nr_hogs):
            ends.enter_context(_pinned([sys.executable, "-c", HOG], setting.core))
        begin_s = time.monotonic() + LEAD_S
        for child in programs:
            assert child.stdin is not None
            child.stdin.write(f"{max(0.0, begin_s - time.monotonic()):.6f} {setting.window_s:.6f} 0\n")
            child.stdin.flush()
        time.sleep(max(0.0, begin_s + setting.window_s - time.monotonic()))
        vgpus = _vgpus(state_dir)
        kernels = tuple(int(json.loads(child.communicate()[0])["kernels"]) for child in programs)
        boosts = tuple(int(vgpus[f"vgpu-{index}"]["coscheduling"]["nr_boosts"]) for index in range(len(programs)))
        return Round(kernels, boosts)


@contextlib.contextmanager
def _daemon(setting: Setting, way: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fairgv-bench-") as directory:
        state_dir = Path(directory)
        state_dir.chmod(0o711)  # workers of another user pass through
        start_in_background(
            load_config(None, state_dir=state_dir, device=setting.device, adopt="attached", coscheduling=way)
        )
        try:
            yield state_dir
        finally:
            with Connection(state_dir / "control.sock") as connection:
                pid = int(connection.ask("stop")["pid"])
            wait_for_end(pid)


def _program(setting: Setting, state_dir: Path, index: int) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "backend_host.run", "--state-dir", str(state_dir)]
    command += ["--vgpu", f"vgpu-{index}", "--weight", str(setting.weights[index]), "--"]
    command += [str(build("spin")), "--kernel-us", str(setting.kernel_us), "--queue", "1", "--together"]
    return _pinned(command, setting.core)


@contextlib.contextmanager
def _pinned(command: list[str], core: int) -> Iterator[subprocess.Popen[str]]:
    """A child that has this core alone; ended at the end."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})  # inherited
    try:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PACKAGE_ROOT)
    finally:
        os.sched_setaffinity(0, before)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def _vgpus(state_dir: Path) -> dict[str, Any]:
    with Connection(state_dir / "control.sock") as connection:
        return {vgpu["name"]: vgpu for vgpu in connection.ask("status")["vgpus"]}


def table(setting: Setting, rounds: dict[str, list[Round]]) -> Table:
    """One row for each way; throughput beside that of the first."""
    weights = ":".join(map(str, setting.weights))
    found = Table("way", "kernels, of off's", "min-max ratio", "kernels each", "boosts each")
    found.title = (
        f"weights {weights}, kernels of {setting.kernel_us:g} us, {setting.nr_hogs} hogs, all on core {setting.core}"
    )
    base = None
    for way, each in rounds.items():
        total = statistics.median(sum(one.kernels) for one in each)
        base = base or total
        ratio = statistics.median(one.min_max_ratio(setting.weights) for one in each)
        last = each[-1]
        counts, boosts = (" ".join(map(str, numbers)) for numbers in (last.kernels, last.boosts))
        found.add_row(way, f"{total / base:.2f}" if base else "-", f"{ratio:.3f}", counts, boosts)
    return found


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="coscheduling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", default="1:2:3", help="one guest each (default 1:2:3)")
    parser.add_argument("--kernel-us", type=float, default=100.0, metavar="US", help="(default 100)")
    parser.add_argument("--hogs", type=int, default=0, help="programs that burn the core beside the guests (default 0)")
    parser.add_argument("--core", type=int, default=0, help="the guests' only one (default 0)")
    parser.add_argument("--ways", default="off,best", help=f"some of {','.join(COSCHEDULING)} (default off,best)")
    parser.add_argument("--rounds", type=int, default=3, help="of each way (default 3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each round (default 5)")
    parser.add_argument("--device", choices=DEVICE_KINDS, default="soft")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    ways = options.ways.split(",")
    if unknown := set(ways) - set(COSCHEDULING):
        parser.error(f"there is no way {', '.join(sorted(unknown))}; there are {', '.join(COSCHEDULING)}")
    weights = tuple(int(word) for word in options.weights.split(":"))
    setting = Setting(weights, options.kernel_us, options.hogs, options.core, options.device, options.seconds)
    rounds: dict[str, list[Round]] = {way: [] for way in ways}
    for number in range(options.rounds):
        for way in ways:
            Console(stderr=True).print(f"round {number + 1}: {way}")
            rounds[way].append(measure(setting, way))
    Console().print(table(setting, rounds))
    if options.json:
        document = {
            "setting": vars(setting),
            "rounds": {way: [vars(one) for one in each] for way, each in rounds.items()},
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
