"""What single operations cost through FairGV, beside native, in one run: `python -m benchmarks.overhead [--device soft|cuda] [--json FILE]`.

Runs `benchmarks/programs/overhead.cu` alternately natively and as a guest, several times, takes medians, prints ratios. Timings of one machine
mean little; the ratio of two neighbours in one run means something.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from backend_host.cli import start_in_background, wait_for_end
from backend_host.config import PACKAGE_ROOT, load_config
from backend_host.ipc import Connection
from benchmarks.build import build

AIMS = {
    "launch_async": "at most 0.5 us",
    "launch_sync": "native + 2 us",
    "pinned_to_device": "0.97",
    "pinned_from_device": "0.97",
}
AIMS |= {"pageable_to_device": "0.9", "pageable_from_device": "0.9"}


@dataclass(frozen=True)
class Row:
    """One operation: medians over the repetitions. `ratio` is above 1 when FairGV is better: faster, or more bytes a second."""

    name: str
    unit: str
    native: float
    guest: float

    @property
    def ratio(self) -> float:
        """Native over guest for times, guest over native for rates."""
        return self.guest / self.native if self.unit == "GB/s" else self.native / self.guest


def measure(command: Sequence[str], environment: dict[str, str]) -> dict[str, tuple[float, str]]:
    """One run of the program: name to value and unit."""
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{command[0]} failed: {result.stderr.strip()}")
    lines = (line.split() for line in result.stdout.splitlines())
    return {name: (float(value), unit) for name, value, unit in lines}


def compare(program: Path, device: str, nr_repetitions: int, arguments: Sequence[str]) -> tuple[str, list[Row]]:
    """Native and guest runs in turn; the device's name and the medians."""
    native_environment = dict(os.environ)
    if device == "soft":
        native_environment["LD_LIBRARY_PATH"] = str(PACKAGE_ROOT / "build/softgpu")
    native, guest = [], []
    with tempfile.TemporaryDirectory(prefix="fairgv-bench-") as directory:
        start_in_background(load_config(None, state_dir=Path(directory), device=device, adopt="attached"))
        guest_command = [sys.executable, "-m", "backend_host.run", "--state-dir", directory, "--region", "1G", "--"]
        try:
            for _ in track(range(nr_repetitions), "native and guest in turn", console=Console(stderr=True)):
                native.append(measure([str(program), *arguments], native_environment))
                guest.append(measure([*guest_command, str(program), *arguments], dict(os.environ)))
        finally:
            with Connection(Path(directory) / "control.sock") as connection:
                device_name = str(connection.ask("status")["device"]["name"])
                pid = int(connection.ask("stop")["pid"])
            wait_for_end(pid)
    names = native[0]
    return device_name, [
        Row(
            name,
            names[name][1],
            statistics.median(run[name][0] for run in native),
            statistics.median(run[name][0] for run in guest),
        )
        for name in names
    ]


def write_json(path: Path, options: argparse.Namespace, device_name: str, rows: Sequence[Row]) -> None:
    """What benchmarks/results.py makes the page of."""
    document = {
        "device_name": device_name,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}",
        "nr_repetitions": options.repetitions,
        "command": f"make bench DEVICE={options.device}",
        "results": {row.name: {**asdict(row), "ratio": row.ratio, "aim": AIMS.get(row.name, "")} for row in rows},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="overhead", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("soft", "cuda"), default="soft")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=20, help="of each operation in one run")
    parser.add_argument("--mib", type=int, default=256, help="size of the large copies")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    program = build("overhead")
    device_name, rows = compare(program, options.device, options.repetitions, [str(options.rounds), str(options.mib)])
    table = Table("operation", "native", "FairGV", "unit", "ratio", "aim")
    for row in rows:
        table.add_row(
            row.name, f"{row.native:.3g}", f"{row.guest:.3g}", row.unit, f"{row.ratio:.2f}", AIMS.get(row.name, "")
        )
    if options.json:
        write_json(options.json, options, device_name, rows)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
