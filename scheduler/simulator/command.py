"""`fairgv-sim`: simulates vGPUs under one or more policies and prints what each got. The only file of the simulator that prints or writes."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from scheduler.command_line import OutputError, Parser, abandon, finish, writing
from scheduler.help_text import Paragraphs
from scheduler.quota import DEFAULT_MOST_NS, QUOTAS
from scheduler.registry import DEFAULT_POLICY
from scheduler.simulator.bounds import BoundsError, check_bounds, join_dashes, percentages
from scheduler.simulator.host import command as host_command
from scheduler.simulator.host.plot import plot_runs
from scheduler.simulator.host.tables import print_runs
from scheduler.simulator.plot import PlotError, plot, require_matplotlib
from scheduler.simulator.policies.registry import ALL_POLICIES
from scheduler.simulator.report import Report
from scheduler.simulator.settings import PREEMPTIVE_SLICE_NS, SLICE_NS, Settings, VgpuSpec
from scheduler.simulator.simulation import simulate
from scheduler.simulator.tables import print_reports
from scheduler.simulator.workloads import WORKLOADS, UnknownWorkloadError, find_workload
from scheduler.version import VersionAction

MAX_VGPUS = 100_000
MOST = 1e9
_WIDE = 1000
"""Columns where there is no terminal; a table takes what it needs."""

_EPILOG = f"""\
workloads: {", ".join(WORKLOADS)} (Table 3 of the FairGV paper, and matrixMul that sleeps);
kernel-50us launches kernels of that length without end, sync-5ms waits for each; requests-6x6ms-90ms answers
requests of 6 kernels of 6 ms, with a pause of 90 ms behind each, random-6x6ms-90ms with exponential pauses of that
mean, poisson-6x6ms-126ms as they come, at random, one in 126 ms in the mean; any length in us or ms.

examples:
  fairgv-sim --vgpus 1:2:3 --workload mm
  fairgv-sim --policy fair,strict --vgpus 1:2:2:3:3:4 --workload bs --cores 3
  fairgv-sim --vgpus 1:1 --workload kernel-50us,kernel-5ms --preemptive
  fairgv-sim --vgpus 1:1:1 --request 30:40:30 --limit 60 --workload kernel-5ms
  fairgv-sim --workload requests-6x6ms-90ms,kernel-5ms --quota bursts
  fairgv-sim --vgpus 1x2000:2x1000 --gpus 64 --seconds 5 --json report.json
{host_command.EXAMPLES}
docs/scheduling.md tells what the columns mean, docs/devices.md those with --arrivals.
"""


def policy_names(text: str) -> list[str]:
    """`fair,strict`: names of policies."""
    names = text.split(",")
    unknown = [name for name in names if name not in ALL_POLICIES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no policy is called {unknown[0]!r}; there are: {', '.join(sorted(ALL_POLICIES))}"
        )
    return names


def weights(text: str) -> list[int]:
    """`1:2:3`, or `1x100:2x50` for a hundred of weight 1 and fifty of weight 2."""
    found: list[int] = []
    for part in text.split(":"):
        weight, _, count = part.partition("x")
        if not (weight.isdecimal() and int(weight) and (count or "1").isdecimal() and int(count or "1")):
            raise argparse.ArgumentTypeError(f"{part!r} is no weight: write 1:2:3, or 1x100 for a hundred of weight 1")
        if len(found) + int(count or "1") > MAX_VGPUS:
            raise argparse.ArgumentTypeError(f"more than {MAX_VGPUS} vGPUs")
        found += [int(weight)] * int(count or "1")
    return found


class WriteError(Exception):
    """Results cannot be written; the text says where and why."""


def positive(text: str) -> float:
    """A number above 0, of seconds or less, which are counted in ns."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0, and at most {MOST:.0f}")
    return value


def natural(text: str) -> int:
    """A whole number, at least 1."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = Parser(
        prog="fairgv-sim",
        description="Simulates vGPUs that share GPUs, under the daemon's policies and others, and prints what each got.",
        epilog=_EPILOG,
        formatter_class=Paragraphs,
    )
    parser.add_argument(
        "--policy",
        type=policy_names,
        default=[DEFAULT_POLICY],
        metavar="NAME[,NAME..]",
        help=f"of {', '.join(sorted(ALL_POLICIES))} (default: {DEFAULT_POLICY})",
    )
    parser.add_argument(
        "--vgpus",
        type=weights,
        default=[1, 2, 3],
        metavar="W:W..",
        help="weights, one for each vGPU; 1x100 is a hundred of weight 1 (default: 1:2:3)",
    )
    parser.add_argument(
        "--request",
        type=percentages,
        metavar="P:P..",
        help="percent of a GPU that each vGPU is to get whenever it has work for it; - is none, one value is for all",
    )
    parser.add_argument(
        "--limit",
        type=percentages,
        metavar="P:P..",
        help="percent of a GPU that each vGPU is not to exceed, written as for --request",
    )
    parser.add_argument(
        "--workload",
        default="mm",
        metavar="NAME[,NAME..]",
        help="what the guests run, dealt out in turn (default: mm)",
    )
    parser.add_argument(
        "--gpus", type=natural, metavar="N", help="each vGPU is placed on one (default: 1, with --arrivals 4)"
    )
    parser.add_argument("--cores", type=natural, metavar="N", help="that the guests share (default: one for each)")
    parser.add_argument("--seconds", type=positive, default=10.0, metavar="S", help="simulated time (default: 10)")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="the same seed gives the same run (default: 0)"
    )
    parser.add_argument(
        "--preemptive", action="store_true", help="the device time-slices kernels that outlive their slice"
    )
    parser.add_argument(
        "--slice-ms", type=positive, metavar="MS", help="length of a slice (default: 6, with --preemptive 30)"
    )
    parser.add_argument(
        "--quota",
        choices=QUOTAS,
        default=QUOTAS[0],
        help="how long a turn lasts: a slice (the default), or by the bursts of work of the vGPU's program",
    )
    parser.add_argument(
        "--quota-max-ms",
        type=positive,
        default=DEFAULT_MOST_NS / 1e6,
        metavar="MS",
        help="longer bursts have a slice as well (default: 100)",
    )
    parser.add_argument(
        "--keep-turns",
        action="store_true",
        help="turns are kept to their ends, idle or not, as Gemini's tokens without revocation",
    )
    parser.add_argument(
        "--handover-us", type=positive, default=150.0, metavar="US", help="cost of a change of context (default: 150)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes settings and results")
    parser.add_argument("--version", action=VersionAction)
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draws shares and waits; needs matplotlib")
    host_command.add_options(parser, positive, natural)
    return parser


def make_settings(options: argparse.Namespace, policy: str) -> Settings:
    """What the options say. UnknownWorkloadError when a workload has no such name, BoundsError when bounds cannot be kept."""
    workloads = [find_workload(name) for name in options.workload.split(",")]
    default_slice_ns = PREEMPTIVE_SLICE_NS if options.preemptive else SLICE_NS
    requests, limits = check_bounds(options.request, options.limit, options.vgpus, options.gpus, policy)
    return Settings(
        policy=policy,
        vgpus=tuple(
            VgpuSpec(weight, workloads[vgpu % len(workloads)], requests[vgpu], limits[vgpu])
            for vgpu, weight in enumerate(options.vgpus)
        ),
        nr_gpus=options.gpus,
        duration_ns=round(options.seconds * 1e9),
        seed=options.seed,
        is_preemptive=options.preemptive,
        slice_ns=round(options.slice_ms * 1e6) if options.slice_ms else default_slice_ns,
        quota=options.quota,
        quota_max_ns=round(options.quota_max_ms * 1e6),
        keeps_turns=options.keep_turns,
        handover_ns=round(options.handover_us * 1e3),
        nr_cores=options.cores,
    )


def run_all(all_settings: Sequence[Settings]) -> list[Report]:
    """One report for each, with a progress bar where somebody watches."""
    reports = []
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        for settings in all_settings:
            task = progress.add_task(settings.policy, total=1.0)

            def show(done: float, task: object = task) -> None:
                progress.update(task, completed=done)  # type: ignore[arg-type]

            reports.append(simulate(settings, show))
    return reports


def to_json(all_settings: Sequence[Settings], reports: Sequence[Report]) -> str:
    """Settings and results; names as in `Settings` and `Report`, workloads by name."""
    document = [
        {
            "settings": {key: value for key, value in asdict(settings).items() if key != "vgpus"},
            "report": asdict(report),
        }
        for settings, report in zip(all_settings, reports, strict=True)
    ]
    return json.dumps(document, indent=2) + "\n"


def _simulate_hosts(options: argparse.Namespace) -> None:
    if options.plot:
        require_matplotlib()
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=1.0)
        runs = host_command.run_all(
            host_command.all_settings(options),
            lambda told, done: progress.update(task, description=told, completed=done),
        )
    with writing():
        print_runs(runs, _console())
    if options.json:
        _write(options.json, json.dumps(host_command.to_json(runs), indent=2) + "\n")
    if options.plot:
        plot_runs(runs, options.plot)


def _console() -> Console:
    """Where there is no terminal, no number is cut."""
    return Console() if sys.stdout.isatty() else Console(width=_WIDE)


def _write(path: Path, text: str) -> None:
    """Raises WriteError."""
    try:
        path.write_text(text)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point: 0, or 1 when something is missing or cannot be written, or 2 for a wrong command line."""
    parser = make_parser()
    options = parser.parse_args(join_dashes(sys.argv[1:] if arguments is None else arguments))
    options.gpus = options.gpus or (1 if options.arrivals is None else 4)
    host_command.check(options, parser)
    try:
        if options.arrivals is not None:
            _simulate_hosts(options)
            finish()
            return 0
        all_settings = [make_settings(options, policy) for policy in options.policy]
        if options.plot:
            require_matplotlib()
        reports = run_all(all_settings)
        with writing():
            print_reports(reports, _console())
        if options.json:
            _write(options.json, to_json(all_settings, reports))
        if options.plot:
            plot(reports, options.plot)
        finish()
    except (UnknownWorkloadError, BoundsError) as error:
        parser.error(str(error))
    except BrokenPipeError:
        abandon()
        return 1
    except (PlotError, WriteError, OutputError, OSError) as error:
        print(f"fairgv-sim: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
