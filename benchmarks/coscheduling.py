"""What coscheduling gives where CPUs are short: `python -m benchmarks.coscheduling [--guests vm] [--hogs N] [--ways off,best,...]`.

The setting of the FairGV paper's Figure 8, in its interactive rows: all guests on one core, each program waits for the GPU after each
kernel, or nearly. A guest is a program of this host (`fairgv-run`), or with `--guests vm` a virtual machine with one vCPU. Beside them run as
many programs that only burn that core. Everything else has the other cores: the daemon, its workers, the device, and of an emulator all threads
but the vCPU's (benchmarks/guests/pinning.py). Each way runs in each of `--rounds`, under a daemon of its own; machines boot once for all of
them. A figure is the median over the rounds, in brackets the least and the largest; ratios to the first way are those within each round.

Wrong when the other cores are busy too: then everybody waits for everything. What emulation distorts stands in docs/lab/coscheduling.md.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from backend_host.config import COSCHEDULING
from backend_host.errors import FairGVError
from backend_host.state_dir import DEVICE_KINDS
from backend_host.vm.accelerator import choose_accelerator
from backend_host.vm.interrupts import InterruptedBySignalError, raised_signals
from benchmarks.build import NAMES
from benchmarks.devices import choose_device, private_device
from benchmarks.errors import ProgramFailedError
from benchmarks.experiments.sharing import EDGE_FRACTION, weights_of
from benchmarks.guests import Guests, Pinning, Setting, open_guests
from benchmarks.guests.open import GUEST_KINDS
from benchmarks.ratios import min_max_ratio
from benchmarks.stretch import run_together
from benchmarks.systems import OURS
from benchmarks.workloads import SPIN, Workload, sized, spin

HOG = "while True: pass"
TABLE_WIDTH = 120


@dataclass(frozen=True)
class Round:
    """One stretch: what each guest got done in a second, the GPU time it used, how often it got the GPU, and how often it was boosted while its
    program ran. `load` is the machine's before it, over the last minute."""

    throughputs: tuple[float, ...]
    charged_s: tuple[float, ...]
    turns: tuple[int, ...]
    boosts: tuple[int, ...]
    load: float

    @property
    def total(self) -> float:
        """Of all guests."""
        return sum(self.throughputs)

    def min_max_ratio(self, weights: Sequence[int]) -> float:
        """Of throughput over weight: all guests run the same program."""
        return min_max_ratio([done / weight for done, weight in zip(self.throughputs, weights, strict=True)])


def measure(
    guests: Guests, way: str, workload: Workload, nr_guests: int, nr_hogs: int, pinning: Pinning, stretch_s: float
) -> Round:
    """One round under a daemon of its own. ProgramFailedError when nothing was done."""
    load = os.getloadavg()[0]
    with guests.session(coscheduling=way) as session, burning(pinning, nr_hogs):
        outcomes = run_together(session, [workload] * nr_guests, stretch_s, stretch_s * EDGE_FRACTION)
        boosts = tuple(account.nr_boosts for account in session.accounts())
    found = Round(
        tuple(outcome.throughput for outcome in outcomes),
        tuple(outcome.charged_s or 0.0 for outcome in outcomes),
        tuple(outcome.nr_grants or 0 for outcome in outcomes),
        boosts,
        load,
    )
    if not found.total:
        raise ProgramFailedError(f"{way}: no guest got anything done in {stretch_s:g} s")
    return found


@contextlib.contextmanager
def burning(pinning: Pinning, nr_hogs: int) -> Iterator[None]:
    """For the block, the guests share their core with so many programs that want nothing else."""
    hogs = []
    try:
        with pinning.guests():
            hogs = [subprocess.Popen([sys.executable, "-c", HOG], stdin=subprocess.DEVNULL) for _ in range(nr_hogs)]
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def table(title: str, weights: Sequence[int], rounds: Mapping[str, Sequence[Round]]) -> Table:
    """One row for each way; throughput beside that of the first, whose rounds were the same."""
    first, base = next(iter(rounds.items()))
    found = Table("way", f"throughput, of {first}'s", "min-max ratio", "GPU s each", "boosts each", title=title)
    for way, each in rounds.items():
        gains = [one.total / beside.total for one, beside in zip(each, base, strict=True)]
        fairness = [one.min_max_ratio(weights) for one in each]
        charges = " ".join(
            f"{statistics.median(guest):.2f}" for guest in zip(*(one.charged_s for one in each), strict=True)
        )
        boosts = " ".join(
            f"{statistics.median(guest):.0f}" for guest in zip(*(one.boosts for one in each), strict=True)
        )
        found.add_row(way, _spread(gains), _spread(fairness), charges, boosts)
    return found


def _spread(values: Sequence[float]) -> str:
    """The median, and between what all lie."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def workload_of(options: argparse.Namespace) -> Workload:
    """The program of all guests."""
    if options.program == SPIN:
        return spin(options.kernel_us, 1)
    chosen = sized(options.program, options.device)
    if options.size is None:
        return chosen
    words = ("--json", "--no-check", "--size", str(options.size))
    return Workload(chosen.program, f"{chosen.program}, size {options.size}", words)


def run(options: argparse.Namespace) -> dict[str, list[Round]]:
    """All rounds of each way. FairGVError."""
    ways: list[str] = options.ways
    workload, pinning = workload_of(options), Pinning.to(options.core)
    setting = Setting(options.device, options.guests, pinning=pinning, has_doorbell=options.doorbell)
    rounds: dict[str, list[Round]] = {way: [] for way in ways}
    console = Console(stderr=True)
    with (
        private_device(options.device),
        open_guests(OURS, setting, options.weights, [workload.path()]) as guests,
    ):
        for number in range(options.rounds):
            for way in ways:
                console.print(f"round {number + 1}: {way}")
                rounds[way].append(
                    measure(guests, way, workload, len(options.weights), options.hogs, pinning, options.seconds)
                )
    return rounds


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = _parser().parse_args(arguments)
    try:
        with raised_signals():
            options.device = choose_device(options.device)
            rounds = run(options)
    except FairGVError as error:
        print(f"coscheduling: {error}", file=sys.stderr)
        return 1
    except InterruptedBySignalError as interruption:
        return interruption.exit_code
    weights = ":".join(map(str, options.weights))
    kind = "process" if options.guests == "process" else choose_accelerator().accelerator.value
    title = f"{workload_of(options).label}; weights {weights} ({kind}), {options.hogs} hogs, all on core {options.core}"
    Console(width=TABLE_WIDTH).print(table(title, options.weights, rounds))
    if options.json:
        document = {
            "kind": "coscheduling",
            "date": time.strftime("%Y-%m-%d"),
            "guests": kind,
            "setting": {name: value for name, value in vars(options).items() if name != "json"},
            "rounds": {way: [asdict(one) for one in each] for way, each in rounds.items()},
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def _ways(text: str) -> list[str]:
    ways = text.split(",")
    if unknown := set(ways) - set(COSCHEDULING):
        names = ", ".join(sorted(unknown))
        raise argparse.ArgumentTypeError(f"there is no way {names}; there are {', '.join(COSCHEDULING)}")
    return ways


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="coscheduling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", type=weights_of, default=(1, 2, 3), help="one guest each (default 1:2:3)")
    parser.add_argument("--guests", choices=GUEST_KINDS, default=GUEST_KINDS[0], help="(default %(default)s)")
    parser.add_argument("--doorbell", action="store_true", help="machines have one, and their kernel module")
    parser.add_argument("--program", choices=(SPIN, *NAMES), default=SPIN, metavar="NAME", help="in all guests (spin)")
    parser.add_argument("--kernel-us", type=float, default=100.0, metavar="US", help="of spin (default 100)")
    parser.add_argument("--size", type=int, metavar="N", help="of other programs (default: the device's)")
    parser.add_argument("--hogs", type=int, default=0, help="programs that burn the core beside the guests (default 0)")
    parser.add_argument("--core", type=int, default=0, help="the guests' only one (default 0)")
    parser.add_argument(
        "--ways", type=_ways, default=["off", "best"], help=f"some of {','.join(COSCHEDULING)} (off,best)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of each way (default 3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each round (default 5)")
    parser.add_argument("--device", choices=DEVICE_KINDS, default="soft")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


if __name__ == "__main__":
    sys.exit(main())
