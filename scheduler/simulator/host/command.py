"""The part of `fairgv-sim` that simulates a host: `--arrivals` and what goes with it."""

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler.balance import MODES
from scheduler.simulator.host.host import simulate_host
from scheduler.simulator.host.programs import GIB, PROGRAMS, Program
from scheduler.simulator.host.report import HostReport
from scheduler.simulator.host.settings import HostSettings, MoveCosts, Power

MAX_GPUS = 64
EXAMPLES = """\
  fairgv-sim --arrivals 5 --balance off,balance --orders 3
  fairgv-sim --arrivals 7,5 --balance off,compact --orders 50 --plot orders.png
  fairgv-sim --arrivals 5 --programs alexnet,nw --pause-ms 1050 --moves-gbs 25
"""
_OF_VGPUS = (
    *("vgpus", "request", "limit", "workload", "cores", "seconds", "keep_turns"),
    *("preemptive", "quota", "quota_max_ms", "handover_us"),
)
"""Options by name, of simulations without arrivals alone. Devices preempt here, and programs say themselves what they want and for how long."""
_OF_HOSTS = ("balance", "orders", "programs", "gpu_gib", "pause_ms", "moves_gbs", "watts")
"""Of simulations with arrivals alone."""


@dataclass(frozen=True)
class Run:
    """One order of programs, in one mode."""

    order: int
    settings: HostSettings
    report: HostReport


def add_options(
    parser: argparse.ArgumentParser, positive: Callable[[str], float], natural: Callable[[str], int]
) -> None:
    """Beside those of vGPUs that are there from the begin to the end."""
    group = parser.add_argument_group(
        "programs that arrive and end, on several GPUs",
        "Twenty programs of half a minute each come one after the other, in orders at random; each has a vGPU of its own.",
    )
    group.add_argument("--arrivals", type=_numbers(positive), metavar="S[,S..]", help="one program in so many seconds")
    group.add_argument(
        "--balance",
        type=_modes,
        default=[MODES[0], MODES[1]],
        metavar="MODE[,MODE..]",
        help=f"of {', '.join(MODES)} (default: {MODES[0]},{MODES[1]})",
    )
    group.add_argument("--orders", type=natural, default=1, metavar="N", help="orders of the programs (default: 1)")
    group.add_argument(
        "--programs", type=_programs, metavar="NAME[,NAME..]", help=f"of {', '.join(PROGRAMS)} (default: all)"
    )
    group.add_argument("--gpu-gib", type=positive, default=80.0, metavar="GIB", help="memory of each GPU (default: 80)")
    costs = MoveCosts()
    group.add_argument(
        "--pause-ms",
        type=positive,
        default=costs.pause_ns / 1e6,
        metavar="MS",
        help=f"pause of a move of no memory (default: {costs.pause_ns / 1e6:g})",
    )
    group.add_argument(
        "--moves-gbs",
        type=positive,
        default=costs.rate,
        metavar="GB/S",
        help=f"how much of a program's memory a pause moves in a second (default: {costs.rate:g})",
    )
    watts = Power()
    group.add_argument(
        "--watts",
        type=_watts,
        default=watts,
        metavar="W:W:W",
        help=f"of a GPU without vGPUs, with idle ones, at work (default: {watts.idle:g}:{watts.awake:g}:{watts.busy:g})",
    )


def check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Ends the program for options that do not go together."""
    is_host = options.arrivals is not None
    for name in _OF_VGPUS if is_host else _OF_HOSTS:
        if getattr(options, name) != parser.get_default(name):
            option = f"--{name.replace('_', '-')}"
            parser.error(f"{option} does not go with --arrivals" if is_host else f"{option} goes with --arrivals")
    if not is_host:
        return
    if len(options.policy) > 1:
        parser.error("--arrivals goes with one --policy")
    for program in options.programs or PROGRAMS.values():
        if program.memory > options.gpu_gib * GIB:
            parser.error(f"--gpu-gib: {program.name} wants {program.memory / GIB:g} GiB, and would wait for ever")
    if options.gpus > MAX_GPUS:
        parser.error(f"--gpus: {MAX_GPUS} at most go with --arrivals")


def orders(programs: Sequence[Program], nr: int, seed: int) -> list[tuple[Program, ...]]:
    """So many orders of them, each from the seed and its number alone."""
    found = []
    for order in range(nr):
        shuffled = list(programs)
        random.Random(f"{seed}/order {order}").shuffle(shuffled)
        found.append(tuple(shuffled))
    return found


def all_settings(options: argparse.Namespace) -> list[tuple[int, HostSettings]]:
    """Of each run with the number of its order; modes of one order follow each other."""
    costs = MoveCosts(pause_ns=round(options.pause_ms * 1e6), rate=options.moves_gbs)
    slicing = {"slice_ns": round(options.slice_ms * 1e6)} if options.slice_ms else {}
    return [
        (
            order,
            HostSettings(
                programs,
                round(interval_s * 1e9),
                nr_gpus=options.gpus,
                balance=mode,
                memory=round(options.gpu_gib * GIB),
                costs=costs,
                power=options.watts,
                policy=options.policy[0],
                seed=options.seed,
                **slicing,
            ),
        )
        for interval_s in options.arrivals
        for order, programs in enumerate(
            orders(options.programs or list(PROGRAMS.values()), options.orders, options.seed)
        )
        for mode in options.balance
    ]


def run_all(found: Sequence[tuple[int, HostSettings]], progress: Callable[[str, float], None]) -> list[Run]:
    """One after the other; `progress` is told which one, and the part of all that is done."""
    runs = []
    for number, (order, settings) in enumerate(found):
        told = f"{settings.balance}, one in {settings.interval_ns / 1e9:g} s, order {order}"

        def show(done: float, told: str = told, number: int = number) -> None:
            progress(told, (number + done) / len(found))

        runs.append(Run(order, settings, simulate_host(settings, show)))
    return runs


def to_json(runs: Sequence[Run]) -> list[dict[str, object]]:
    """What each was, its figures, and what it did in detail."""
    return [
        {
            "order": run.order,
            "programs": [program.name for program in run.settings.programs],
            "interval_s": run.settings.interval_ns / 1e9,
            "gpus": run.settings.nr_gpus,
            "balance": run.settings.balance,
            "figures": run.report.figures(),
            "devices": [vars(device) for device in run.report.devices],
            "jobs": [vars(job) for job in run.report.jobs],
            "moves": [vars(move) for move in run.report.moves],
        }
        for run in runs
    ]


def _numbers(positive: Callable[[str], float]) -> Callable[[str], list[float]]:
    def numbers(text: str) -> list[float]:
        return [positive(word) for word in text.split(",")]

    return numbers


def _modes(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in MODES:
            raise argparse.ArgumentTypeError(f"there is no {name!r}; there are: {', '.join(MODES)}")
    return names


def _programs(text: str) -> list[Program]:
    names = text.split(",")
    for name in names:
        if name not in PROGRAMS:
            raise argparse.ArgumentTypeError(f"no program is called {name!r}; there are: {', '.join(PROGRAMS)}")
    return [PROGRAMS[name] for name in names]


def _watts(text: str) -> Power:
    try:
        idle, awake, busy = map(float, text.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not three numbers, as 78:120:510 is") from None
    if not 0 <= idle <= awake <= busy < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: watts rise from a GPU without vGPUs to one at work")
    return Power(idle, awake, busy)
