"""What shares vGPUs get of one device: `python -m benchmarks.fairness [--policy NAME,...] [--weights 1:2:3] [--kernel-us US,...]`.

Each vGPU runs `benchmarks/programs/spin.cu` through the rings, all at once, and kernels are counted in one common window. The min-max
ratio is that of the FairGV paper's section 5.4.1: of each vGPU's throughput over its fair part of what its program reaches alone, the least
over the greatest; 1 when all is fair. Alone each program ran before, in the same way. Beside it stand the same ratio over kernel time, and
over GPU time that was charged, which tells policy from accounting.

Wrong when guests, workers and the device's threads have no core each: a guest that is not run cannot ask for its share.
"""

import argparse
import ctypes
import json
import os
import platform
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from backend_host.cli import start_in_background, wait_for_end
from backend_host.config import DEVICE_KINDS, PACKAGE_ROOT, load_config
from backend_host.ipc import Connection
from benchmarks.build import build
from benchmarks.command import command_line
from scheduler.registry import POLICIES

DERIVED = ("min_max_ratio", "kernel_min_max_ratio", "charged_min_max_ratio", "utilisation")
ALONE_PART = 0.5
"""Of the window, for each program alone."""
START_S = 120.0
"""A program that has not run its first kernel by then will not."""
LEAD_S = 0.5
"""From the last program's first kernel to the window: by then the shares are what they stay."""


@dataclass(frozen=True)
class Mixture:
    """What the vGPUs run: kernels of so many us, so many in a row before a synchronisation, so many us of sleep. Shorter lists are repeated."""

    weights: tuple[int, ...]
    kernel_us: tuple[float, ...]
    queue: tuple[float, ...]
    sleep_us: tuple[float, ...] = (0.0,)

    def options(self, index: int) -> list[str]:
        """The command line of one vGPU's program, without the window."""
        values = {"--kernel-us": self.kernel_us, "--queue": self.queue, "--sleep-us": self.sleep_us}
        return [word for name, each in values.items() for word in (name, str(each[index % len(each)]))]

    def alone(self, index: int) -> "Mixture":
        """One vGPU of it, and nobody else."""

        def one(each: tuple[float, ...]) -> tuple[float, ...]:
            return (each[index % len(each)],)

        return Mixture((1,), one(self.kernel_us), one(self.queue), one(self.sleep_us))


@dataclass(frozen=True)
class Share:
    """What one vGPU got in the window: `kernel_s` its program counted, `charged_s` the daemon; `nr_grants` turns. Alone its program would have
    counted `alone_s`."""

    weight: int
    kernel_s: float
    charged_s: float
    nr_grants: int
    alone_s: float


@dataclass(frozen=True)
class Result:
    """One policy. `utilisation` is kernel time over the window: beside 1 stands what sharing cost."""

    policy: str
    shares: tuple[Share, ...]
    window_s: float

    @property
    def min_max_ratio(self) -> float:
        """Over throughput, each beside the same program alone."""
        return min_max_ratio([share.kernel_s / share.alone_s / share.weight for share in self.shares])

    @property
    def kernel_min_max_ratio(self) -> float:
        """Over kernel time, whatever a program would do with the device alone."""
        return min_max_ratio([share.kernel_s / share.weight for share in self.shares])

    @property
    def charged_min_max_ratio(self) -> float:
        """Over what was charged."""
        return min_max_ratio([share.charged_s / share.weight for share in self.shares])

    @property
    def utilisation(self) -> float:
        return sum(share.kernel_s for share in self.shares) / self.window_s


def min_max_ratio(normalised: Sequence[float]) -> float:
    """The least over the greatest; 0 when nobody got anything."""
    return min(normalised) / max(normalised) if max(normalised) > 0 else 0.0


def measure_alone(mixture: Mixture, device: str, window_s: float) -> tuple[float, ...]:
    """Kernel seconds for each second, of each vGPU's program with the device to itself."""
    found: dict[Mixture, float] = {}
    for index in range(len(mixture.weights)):
        alone = mixture.alone(index)
        if alone not in found:
            found[alone] = measure("first-come", alone, device, None, window_s, (1.0,)).utilisation
    return tuple(found[mixture.alone(index)] for index in range(len(mixture.weights)))


def measure(
    policy: str,
    mixture: Mixture,
    device: str,
    slice_ms: float | None,
    window_s: float,
    alone: Sequence[float],
    logs: Path | None = None,
) -> Result:
    """One run of all vGPUs together, under a daemon of its own; `alone` is what `measure_alone` found.

    With `logs` each program leaves there when its kernels began and ended: see `log_path`.
    """
    program = build("spin")
    slice_ns = round(slice_ms * 1e6) if slice_ms is not None else None
    with tempfile.TemporaryDirectory(prefix="fairgv-bench-") as directory:
        state_dir = Path(directory)
        state_dir.chmod(0o711)  # workers of another user pass through
        settings = {"device": device, "policy": policy, "slice_ns": slice_ns, "adopt": "attached"}
        start_in_background(load_config(None, state_dir=state_dir, **settings))
        programs = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "backend_host.run", "--state-dir", directory),
                    *("--vgpu", f"vgpu-{index}", "--weight", str(weight), "--"),
                    *(str(program), *mixture.options(index), "--together"),
                    *(("--log", str(log_path(logs, index))) if logs else ()),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=PACKAGE_ROOT,
            )
            for index, weight in enumerate(mixture.weights)
        ]
        try:
            _wait_until_ready(programs)
            begin_s = time.time() + LEAD_S
            end_s = begin_s + window_s
            for child in programs:
                _tell(child, f"{begin_s:.6f} {end_s:.6f}\n")
            accounts = [_accounts(state_dir, at_s) for at_s in (begin_s, end_s)]
            counted = [_counted(child) for child in programs]
        finally:
            for child in programs:
                child.kill()
                child.wait()
            _stop(state_dir)
    shares = (
        Share(
            weight,
            counted[index],
            *_difference(*(account[f"vgpu-{index}"] for account in accounts)),
            alone_s=alone[index] * window_s,
        )
        for index, weight in enumerate(mixture.weights)
    )
    return Result(policy, tuple(shares), window_s)


def _wait_until_ready(programs: Sequence[subprocess.Popen[str]]) -> None:
    """Until each has run its first kernel, with its compilation."""
    deadline_s = time.monotonic() + START_S
    for child in programs:
        assert child.stdout is not None
        readable, _, _ = select.select([child.stdout], [], [], max(0.0, deadline_s - time.monotonic()))
        if not readable or child.stdout.readline() != "ready\n":
            sys.exit(f"spin did not start within {START_S:.0f} s")


def _tell(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(line)
    child.stdin.flush()


def log_path(logs: Path, index: int) -> Path:
    """Of one vGPU's program: pairs of 64-bit ns of the device's clock."""
    return logs / f"vgpu-{index}.spans"


def _accounts(state_dir: Path, at_s: float) -> dict[str, Any]:
    """The vGPUs of the status at a point in time."""
    time.sleep(max(0.0, at_s - time.time()))
    with Connection(state_dir / "control.sock") as connection:
        return {vgpu["name"]: vgpu for vgpu in connection.ask("status")["vgpus"]}


def _difference(before: dict[str, Any], after: dict[str, Any]) -> tuple[float, int]:
    return (after["used_ns"] - before["used_ns"]) / 1e9, after["nr_grants"] - before["nr_grants"]


def _counted(child: subprocess.Popen[str]) -> float:
    """Seconds of kernels that the program counted. Its input is closed, and it ends."""
    output, _ = child.communicate()
    if child.returncode != 0:
        sys.exit(f"spin failed with exit status {child.returncode}")
    told = json.loads(output)
    return float(told["kernels"] * told["kernel_us"] / 1e6)


def _stop(state_dir: Path) -> None:
    with Connection(state_dir / "control.sock") as connection:
        pid = int(connection.ask("stop")["pid"])
    wait_for_end(pid)


def table(results: Sequence[Result], mixture: Mixture) -> Table:
    """One row for each policy."""
    weights = ":".join(map(str, mixture.weights))
    found = Table("policy", "min-max ratio", "of kernel s", "of charges", "utilisation", "kernel s / weight", "turns")
    kernels, rows = (", ".join(f"{number:g}" for number in each) for each in (mixture.kernel_us, mixture.queue))
    found.title = f"weights {weights}; kernels of {kernels} us, {rows} in a row"
    for result in results:
        each = " ".join(f"{share.kernel_s / share.weight:.3g}" for share in result.shares)
        turns = " ".join(str(share.nr_grants) for share in result.shares)
        ratios = tuple(getattr(result, name) for name in DERIVED)
        found.add_row(result.policy, *(f"{ratio:.3f}" for ratio in ratios), each, turns)
    return found


def device_name(kind: str) -> str:
    """What the results call it."""
    if kind != "cuda":
        return "softgpu"
    driver, name = ctypes.CDLL("libcuda.so.1"), ctypes.create_string_buffer(256)
    if driver.cuInit(0) or driver.cuDeviceGetName(name, len(name), 0):
        sys.exit("NVIDIA's driver does not say what its device is called")
    return name.value.decode()


def head_of_document(options: argparse.Namespace) -> dict[str, Any]:
    """Where, when and how something was measured."""
    return {
        "device": device_name(options.device),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}",
        "load_before": options.load,
        "command": options.command,
        "slice_ms": options.slice_ms,
    }


def write_json(path: Path, options: argparse.Namespace, mixture: Mixture, results: Sequence[Result]) -> None:
    """Everything that was measured, with how."""
    document = head_of_document(options) | {
        "mixture": asdict(mixture),
        "results": [asdict(result) | {name: getattr(result, name) for name in DERIVED} for result in results],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in text.split(","))


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="fairness", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policy", default="fair", help=f"some of {','.join(sorted(POLICIES))} (default fair)")
    parser.add_argument("--weights", default="1:2:3", help="one vGPU each (default 1:2:3)")
    parser.add_argument("--kernel-us", type=_numbers, default=(500.0,), metavar="US,...", help="(default 500)")
    parser.add_argument("--queue", type=_numbers, default=(256,), metavar="N,...", help="launches in a row (256)")
    parser.add_argument("--sleep-us", type=_numbers, default=(0.0,), metavar="US,...", help="after each row (0)")
    parser.add_argument("--slice-ms", type=float, metavar="MS", help="(default: the device's)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of the window (default 6)")
    parser.add_argument("--device", choices=DEVICE_KINDS, default="soft")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    options.load = os.getloadavg()[0]
    options.command = command_line("benchmarks.fairness", options.json)
    weights = tuple(int(word) for word in options.weights.split(":"))
    mixture = Mixture(weights, options.kernel_us, tuple(round(number) for number in options.queue), options.sleep_us)
    results = []
    Console(stderr=True).print("each program alone")
    alone = measure_alone(mixture, options.device, options.seconds * ALONE_PART)
    for policy in options.policy.split(","):
        if policy not in POLICIES:
            parser.error(f"there is no policy {policy}; there are {', '.join(sorted(POLICIES))}")
        Console(stderr=True).print(f"{policy}: {options.seconds:.0f} s")
        results.append(measure(policy, mixture, options.device, options.slice_ms, options.seconds, alone))
    Console().print(table(results, mixture))
    if options.json:
        write_json(options.json, options, mixture, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
