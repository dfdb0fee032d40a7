"""Managed memory in the ways that programs use it, natively and through FairGV in turn: `python -m benchmarks.managed [--mib MIB ...]`.

Each row is a pattern of benchmarks/programs/managed.cu at one size: the milliseconds from its allocation to the last read on the CPU, natively
and through `fairgv-run`, by each way of noticing touches and with the memory left on the host, medians over the rounds. Sums must be the same.
Wrong when: the machine is loaded; on softgpu, where the device's memory is the host's.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from backend_host.config import Config
from backend_host.errors import FairGVError
from benchmarks.build import build
from benchmarks.devices import SOFTGPU, choose_device, device_name
from benchmarks.errors import ProgramFailedError
from benchmarks.guests.process import daemon

PATTERNS = ("streaming", "gather", "ping-pong", "read-mostly", "prefetched")
WAYS: dict[str, dict[str, str]] = {
    "fairgv": {},
    "by signal": {"FAIRGV_TRAP": "signal"},
    "on host": {"FAIRGV_MANAGED": "host"},
}
"""What the program's environment has more."""
RUN_LIMIT_S = 300
PRINTED = re.compile(r"ms (\d+\.\d) sum (\d+)")


def run_once(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, int]:
    """Milliseconds and sum. Raises ProgramFailedError."""
    done = subprocess.run(
        command, check=False, env={**os.environ, **environment}, capture_output=True, text=True, timeout=RUN_LIMIT_S
    )
    found = PRINTED.search(done.stdout)
    if done.returncode != 0 or not found:
        raise ProgramFailedError(f"{' '.join(command)} failed ({done.returncode}): {done.stdout}{done.stderr}")
    return float(found[1]), int(found[2])


def measure(
    device: str, state_dir: Path, pattern: str, mib: int, ways: Sequence[str], nr_rounds: int
) -> dict[str, float]:
    """The median of each way's milliseconds. Raises ProgramFailedError, also when sums differ."""
    program = [str(build("managed")), pattern, str(mib)]
    through = [sys.executable, "-m", "backend_host.run", "--state-dir", str(state_dir), "--", *program]
    native = {} if device == "cuda" else {"LD_LIBRARY_PATH": str(SOFTGPU)}
    taken: dict[str, list[float]] = {"native": [], **{way: [] for way in ways}}
    for _ in range(nr_rounds):
        ms, right = run_once(program, native)
        taken["native"].append(ms)
        for way in ways:
            ms, found = run_once(through, WAYS[way])
            taken[way].append(ms)
            if found != right:
                raise ProgramFailedError(f"{pattern} of {mib} MiB, {way}: the sum is {found} and should be {right}")
    return {way: statistics.median(each) for way, each in taken.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table, and with --json writes a document; returns the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks.managed", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=("auto", "soft", "cuda"), default="auto")
    parser.add_argument("--mib", type=int, nargs="+", default=[1024], help="sizes (default: 1024)")
    parser.add_argument("--patterns", nargs="+", choices=PATTERNS, default=PATTERNS)
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=tuple(WAYS))
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="each way once in each (default %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    rows = []
    try:
        device = choose_device(options.device)
        name = device_name(device)
        with tempfile.TemporaryDirectory(prefix="fairgv-managed-") as folder:
            state_dir = Path(folder)
            state_dir.chmod(0o711)
            print(f"{name}\n{'ms':20}{'native':>10}" + "".join(f"{way:>18}" for way in options.ways))
            with daemon(Config(state_dir=state_dir, device=device), None):
                for mib in options.mib:
                    for pattern in options.patterns:
                        medians = measure(device, state_dir, pattern, mib, options.ways, options.rounds)
                        rows.append({"pattern": pattern, "mib": mib, "ms": medians})
                        native = medians["native"]
                        cells = "".join(f"{medians[way]:9.0f} ({medians[way] / native:6.2f})" for way in options.ways)
                        print(f"{pattern:12}{mib:8}{native:10.0f}{cells}", flush=True)
    except FairGVError as error:
        print(f"benchmarks.managed: {error}", file=sys.stderr)
        return 1
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"kind": "managed", "device": name, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
