"""The first second: short programs as whole processes, natively and through `fairgv-run` in turn: `python -m benchmarks.first [--rounds N]`.

Each row is a program from exec to its end: pieces of benchmarks/programs/first.cu, and, where they are installed, a first product of cuBLAS by
CuPy, PyTorch's import and first step, and JAX's first jit. Medians in milliseconds over the rounds; what they print must be the same.
Wrong when: the machine is loaded. The first round is not counted: it fills the file cache, and what compilers and drivers keep, for both.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence

from backend_host.errors import FairGVError
from benchmarks.beside import Beside, beside, parser
from benchmarks.build import build
from benchmarks.errors import ProgramFailedError
from benchmarks.frameworks.__main__ import is_there

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
ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def timed(run: Callable[[], str]) -> tuple[float, str]:
    """Milliseconds, and what it printed."""
    begun_s = time.perf_counter()
    printed = run()
    return (time.perf_counter() - begun_s) * 1e3, printed


def measure(both: Beside, program: Sequence[str], nr_rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each round, natively and through FairGV. Raises ProgramFailedError, also when outputs differ."""
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(nr_rounds + 1):
        native_ms, right = timed(lambda: both.native(program, ENVIRONMENT))
        ours_ms, found = timed(lambda: both.through(program, ENVIRONMENT))
        if found != right:
            raise ProgramFailedError(f"{' '.join(program[:2])} printed {found!r} and should {right!r}")
        if number != 0:
            taken[0].append(native_ms)
            taken[1].append(ours_ms)
    return taken


def programs(names: Sequence[str]) -> dict[str, list[str]]:
    """The command of each row that can run here."""
    found = {name: [str(build("first")), name] for name in names if name in PIECES}
    scripts = [name for name in names if name in SCRIPTS and is_there(sys.executable, name)]
    return found | {name: [sys.executable, "-c", SCRIPTS[name]] for name in scripts}


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table, and with --json writes a document; returns the exit status."""
    options_of = parser("first", __doc__, rounds=7)
    options_of.add_argument("--programs", nargs="+", choices=(*PIECES, *SCRIPTS), default=(*PIECES, *SCRIPTS))
    options = options_of.parse_args(arguments)
    rows = []
    try:
        with beside(options.device) as both:
            print(f"{both.name}\n{'ms':12}{'native':>10}{'fairgv':>10}{'more':>10}{'ratio':>8}")
            for row, command in programs(options.programs).items():
                native, ours = measure(both, command, options.rounds)
                rows.append({"program": row, "native_ms": native, "fairgv_ms": ours})
                middle, own = statistics.median(native), statistics.median(ours)
                print(f"{row:12}{middle:10.0f}{own:10.0f}{own - middle:10.0f}{own / middle:8.2f}", flush=True)
            both.write(options.json, "first", rows)
    except FairGVError as error:
        print(f"benchmarks.first: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
