"""The first second: short programs as whole processes, natively and through `fairgv-run` in turn: `python -m benchmarks.first [--rounds N]`.

Each row is a program from exec to its end: pieces of benchmarks/programs/first.cu, and, where they are installed, a first product of cuBLAS by
CuPy, PyTorch's import and first step, and JAX's first jit. Medians in milliseconds over the rounds; what they print must be the same.
Wrong when: the machine is loaded. The first round is not counted: it fills the file cache, and what compilers and drivers keep, for both.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from backend_host.config import Config
from backend_host.errors import FairGVError
from benchmarks.build import build
from benchmarks.devices import SOFTGPU, choose_device, device_name
from benchmarks.errors import ProgramFailedError
from benchmarks.frameworks.__main__ import is_there
from benchmarks.guests.process import daemon

PIECES = ("vectors", "grid", "mallocs", "kept")
SCRIPTS = {
    "cupy": "import cupy; a = cupy.ones((256, 256), dtype='f'); print(float((a @ a).sum()))",
    "torch": """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(torch.ones(64, 256, device="cuda")).square().mean()
loss.backward()
optimizer.step()
print(loss.item())
""",
    "jax": "import jax, jax.numpy as np; print(jax.jit(lambda x: (x @ x).sum())(np.ones((256, 256))))",
}
RUN_LIMIT_S = 300
ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def run_once(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, str]:
    """Milliseconds and what it printed. Raises ProgramFailedError."""
    begun_s = time.perf_counter()
    done = subprocess.run(
        command, check=False, env={**os.environ, **ENVIRONMENT, **environment}, capture_output=True, text=True,
        timeout=RUN_LIMIT_S,
    )  # fmt: skip
    took_ms = (time.perf_counter() - begun_s) * 1e3
    if done.returncode != 0:
        raise ProgramFailedError(f"{' '.join(command)} failed ({done.returncode}): {done.stdout}{done.stderr}")
    return took_ms, done.stdout


def measure(device: str, state_dir: Path, program: Sequence[str], nr_rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each round, natively and through FairGV. Raises ProgramFailedError, also when outputs differ."""
    through = [sys.executable, "-m", "backend_host.run", "--state-dir", str(state_dir), "--", *program]
    native = {} if device == "cuda" else {"LD_LIBRARY_PATH": str(SOFTGPU)}
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(nr_rounds + 1):
        native_ms, right = run_once(program, native)
        ours_ms, found = run_once(through, {})
        if found != right:
            raise ProgramFailedError(f"{' '.join(program[:2])} printed {found!r} and should {right!r}")
        if number != 0:
            taken[0].append(native_ms)
            taken[1].append(ours_ms)
    return taken


def programs(names: Sequence[str]) -> dict[str, list[str]]:
    """The command of each row that can run here."""
    found = {name: [str(build("first")), name] for name in names if name in PIECES}
    return found | {
        name: [sys.executable, "-c", SCRIPTS[name]]
        for name in names
        if name in SCRIPTS and is_there(sys.executable, name)
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table, and with --json writes a document; returns the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks.first", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=("auto", "soft", "cuda"), default="auto")
    parser.add_argument("--programs", nargs="+", choices=(*PIECES, *SCRIPTS), default=(*PIECES, *SCRIPTS))
    parser.add_argument(
        "--rounds", type=int, default=7, metavar="N", help="each way once in each (default %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    rows = []
    try:
        device = choose_device(options.device)
        name = device_name(device)
        with tempfile.TemporaryDirectory(prefix="fairgv-first-") as folder:
            state_dir = Path(folder)
            state_dir.chmod(0o711)
            print(f"{name}\n{'ms':12}{'native':>10}{'fairgv':>10}{'more':>10}{'ratio':>8}")
            with daemon(Config(state_dir=state_dir, device=device), None):
                for row, command in programs(options.programs).items():
                    native, ours = measure(device, state_dir, command, options.rounds)
                    rows.append({"program": row, "native_ms": native, "fairgv_ms": ours})
                    middle, own = statistics.median(native), statistics.median(ours)
                    print(f"{row:12}{middle:10.0f}{own:10.0f}{own - middle:10.0f}{own / middle:8.2f}", flush=True)
    except FairGVError as error:
        print(f"benchmarks.first: {error}", file=sys.stderr)
        return 1
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"kind": "first", "device": name, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
