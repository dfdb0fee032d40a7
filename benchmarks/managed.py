"""Managed memory in the ways that programs use it, natively and through FairGV in turn: `python -m benchmarks.managed [--mib MIB ...]`.

Each row is a pattern of benchmarks/programs/managed.cu at one size: the milliseconds from its allocation to the last read on the CPU, natively
and through `fairgv-run`, by each way of noticing touches and with the memory left on the host, medians over the rounds. Sums must be the same.
Wrong when: the machine is loaded; on softgpu, where the device's memory is the host's.
"""

import re
import statistics
import sys
from collections.abc import Sequence

from backend_host.errors import FairGVError
from benchmarks.beside import Beside, beside, parser
from benchmarks.build import build
from benchmarks.errors import ProgramFailedError

PATTERNS = ("streaming", "gather", "ping-pong", "read-mostly", "prefetched", "preferred", "words")
WAYS: dict[str, dict[str, str]] = {
    "fairgv": {},
    "by signal": {"FAIRGV_TRAP": "signal"},
    "on host": {"FAIRGV_MANAGED": "host"},
}
"""What the program's environment has more."""
PRINTED = re.compile(r"ms (\d+\.\d) sum (\d+)")


def read(printed: str) -> tuple[float, int]:
    """Milliseconds and sum. Raises ProgramFailedError."""
    found = PRINTED.search(printed)
    if not found:
        raise ProgramFailedError(f"no figures: {printed}")
    return float(found[1]), int(found[2])


def measure(both: Beside, pattern: str, mib: int, ways: Sequence[str], nr_rounds: int) -> dict[str, float]:
    """The median of each way's milliseconds. Raises ProgramFailedError, also when sums differ."""
    program = [str(build("managed")), pattern, str(mib)]
    taken: dict[str, list[float]] = {"native": [], **{way: [] for way in ways}}
    for _ in range(nr_rounds):
        ms, right = read(both.native(program, {}))
        taken["native"].append(ms)
        for way in ways:
            ms, found = read(both.through(program, WAYS[way]))
            taken[way].append(ms)
            if found != right:
                raise ProgramFailedError(f"{pattern} of {mib} MiB, {way}: the sum is {found} and should be {right}")
    return {way: statistics.median(each) for way, each in taken.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table, and with --json writes a document; returns the exit status."""
    options_of = parser("managed", __doc__, rounds=3)
    options_of.add_argument("--mib", type=int, nargs="+", default=[1024], help="sizes (default: 1024)")
    options_of.add_argument("--patterns", nargs="+", choices=PATTERNS, default=PATTERNS)
    options_of.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=tuple(WAYS))
    options = options_of.parse_args(arguments)
    rows = []
    try:
        with beside(options.device) as both:
            print(f"{both.name}\n{'ms':20}{'native':>10}" + "".join(f"{way:>18}" for way in options.ways))
            for mib in options.mib:
                for pattern in options.patterns:
                    medians = measure(both, pattern, mib, options.ways, options.rounds)
                    rows.append({"pattern": pattern, "mib": mib, "ms": medians})
                    native = medians["native"]
                    cells = "".join(f"{medians[way]:9.0f} ({medians[way] / native:6.2f})" for way in options.ways)
                    print(f"{pattern:12}{mib:8}{native:10.0f}{cells}", flush=True)
            both.write(options.json, "managed", rows)
    except FairGVError as error:
        print(f"benchmarks.managed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
