"""Programs of PyTorch, JAX, CuPy and Triton, natively and through FairGV: `python -m benchmarks.frameworks [--python PYTHON] [NAME ...]`.

Each of PROGRAMS prints what it computed, and how long one step took. The table says for each step whether the two runs computed
the same, to the last digit printed, and the time through FairGV over the native one, both the best of all runs. A framework that is not
installed, or fails natively, is left out, and said to be.
"""

import argparse
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from backend_host.config import PACKAGE_ROOT
from benchmarks import document as documents
from benchmarks.devices import device_name
from benchmarks.frameworks.sheet import frameworks_sheet
from benchmarks.ratios import geometric_mean

FOLDER = Path(__file__).parent
PROGRAMS = {
    "torch_train": "torch",
    "torch_graphs": "torch",
    "torch_loading": "torch",
    "torch_nccl": "torch",
    "cupy_numeric": "cupy",
    "jax_train": "jax",
    "triton_kernel": "triton",
    "numba_kernel": "numba",
}
"""Each with what it needs."""
LIMIT_S = 300.0


@dataclass(frozen=True)
class Output:
    """What one run printed: results and seconds for each step."""

    results: dict[str, str]
    times_s: dict[str, float]
    error: str | None = None


@dataclass(frozen=True)
class Step:
    """One step of a program. Times in seconds, the best of all runs; NaN where it did not run."""

    program: str
    name: str
    agrees: bool
    native_s: float
    fairgv_s: float

    @property
    def ratio(self) -> float:
        """Time through FairGV over native."""
        return self.fairgv_s / self.native_s


def parse(text: str) -> Output:
    """The lines `NAME: RESULT` and `time NAME SECONDS`."""
    times = {name: float(seconds) for name, seconds in re.findall(r"^time (.+) ([\d.e+-]+)$", text, re.MULTILINE)}
    results = dict(re.findall(r"^((?!time )[^:\n]+): (.*)$", text, re.MULTILINE))
    return Output({name: value for name, value in results.items() if name in times}, times)


def run(command: Sequence[str]) -> Output:
    """One run; `error` is the end of what it said when it failed."""
    # The compilers of frameworks keep what they made: each side starts with nothing, so that both do the same.
    with tempfile.TemporaryDirectory(prefix="fairgv-frameworks-") as caches:
        environment = os.environ | {
            "TORCHINDUCTOR_CACHE_DIR": caches,
            "TRITON_CACHE_DIR": caches,
            "CUPY_CACHE_DIR": caches,
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "XLA_FLAGS": "--xla_gpu_deterministic_ops=true",
        }
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=LIMIT_S, env=environment, cwd=PACKAGE_ROOT, check=False
            )
        except subprocess.TimeoutExpired:
            return Output({}, {}, f"not done after {LIMIT_S:.0f} s")
    found = parse(done.stdout)
    if done.returncode != 0:
        return Output(
            found.results, found.times_s, f"exit status {done.returncode}: {(done.stdout + done.stderr)[-300:]}"
        )
    return found


def compare(program: str, native: Sequence[Output], fairgv: Sequence[Output]) -> list[Step]:
    """The steps that the native runs made."""
    steps = []
    for name, result in native[0].results.items():
        agrees = all(output.results.get(name) == result for output in (*native, *fairgv))
        best = [
            min((output.times_s.get(name, math.nan) for output in side), default=math.nan) for side in (native, fairgv)
        ]
        steps.append(Step(program, name, agrees, *best))
    return steps


def is_there(python: str, module: str) -> bool:
    """Whether that Python can import it."""
    asked = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", asked], check=False).returncode == 0


def document_of(options: argparse.Namespace, steps: Sequence[Step], errors: dict[str, str]) -> documents.Document:
    """Everything that was measured, with how."""
    rows: list[dict[str, Any]] = [asdict(step) | {"ratio": step.ratio} for step in steps]
    mean = geometric_mean([step.ratio for step in steps if not math.isnan(step.ratio)])
    head = documents.head("frameworks", device_name("cuda"), options.command)
    return head | {"load_before": options.load, "steps": rows, "geometric_mean": mean, "errors": errors}


def main() -> int:
    """Entry point; 1 when anything failed or differed."""
    parser = argparse.ArgumentParser(prog="frameworks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROGRAMS)} (default: all)")
    parser.add_argument("--python", default=sys.executable, help="the one that has the frameworks")
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="in each measurement (default 100)")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="of each program, in turn (default 5)")
    parser.add_argument("--memory", default="40G", help="of the vGPU (default 40G)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    options.load = os.getloadavg()[0]
    options.command = documents.command_line("python -m benchmarks.frameworks", sys.argv[1:], options.json)
    steps: list[Step] = []
    errors: dict[str, str] = {}
    for name in options.names or PROGRAMS:
        if name not in PROGRAMS:
            parser.error(f"there is no program {name}; there are {', '.join(PROGRAMS)}")
        if not is_there(options.python, PROGRAMS[name]):
            Console(stderr=True).print(f"{name}: left out, {options.python} has no {PROGRAMS[name]}")
            continue
        program = [options.python, str(FOLDER / f"{name}.py"), str(options.steps)]
        through = [
            sys.executable,
            "-m",
            "backend_host.run",
            "--device",
            "cuda",
            "--memory",
            options.memory,
            "--",
            *program,
        ]
        Console(stderr=True).print(name)
        first = run(program)
        if first.error:
            Console(stderr=True).print(f"{name}: left out, it fails natively: {first.error}", markup=False)
            continue
        pairs = [(run(program) if number else first, run(through)) for number in range(options.repetitions)]
        native, fairgv = ([pair[side] for pair in pairs] for side in (0, 1))
        steps += compare(name, native, fairgv)
        for side, outputs in (("native", native), ("FairGV", fairgv)):
            errors |= {f"{name}, {side}": output.error for output in outputs if output.error}
    document = document_of(options, steps, errors)
    Console().print(frameworks_sheet(document).on_terminal())
    for where, error in errors.items():
        Console().print(f"{where}: {error}", markup=False)
    if options.json:
        documents.write(options.json, document)
    return 1 if errors or not all(step.agrees for step in steps) else 0


if __name__ == "__main__":
    sys.exit(main())
