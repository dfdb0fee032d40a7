"""`fairgv-bench`: measures FairGV on this machine, natively and through FairGV in one run, with the paper's figures beside ours."""

import argparse
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path

from backend_host.arguments import path_argument
from backend_host.errors import FairGVError
from benchmarks.document import command_line
from benchmarks.experiment import Conduct, add_common_options, positive
from benchmarks.experiments import EXPERIMENTS
from benchmarks.suite import SUITES, run_suite
from scheduler.command_line import OutputError, Parser, abandon, finish
from scheduler.help_text import Paragraphs
from scheduler.version import VersionAction

EXIT_REFUSED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 measured, 1 refused or not all measured, 2 wrong usage, 128 + n ended by signal n, after what was measured was shown."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(words)
    try:
        status = run_suite(options, conduct_of) if options.experiment == "suite" else conduct_of(words).run()
        finish()
        return status
    except (FairGVError, OutputError) as error:
        print(f"fairgv-bench: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except BrokenPipeError:
        abandon()
        return EXIT_REFUSED


def conduct_of(words: Sequence[str]) -> Conduct:
    """The experiment that a command line names, ready to run."""
    options = parser().parse_args(words)
    outputs = (options.json, *options.plot)
    return Conduct(EXPERIMENTS[options.experiment], options, command_line("fairgv-bench", words, *outputs))


def parser() -> argparse.ArgumentParser:
    """Of the whole command."""
    found = Parser(
        prog="fairgv-bench",
        description="Measures FairGV on this machine: each experiment beside native runs of the same minute, and beside the paper.",
        epilog="fairgv-bench EXPERIMENT --help tells what it measures, and its options.",
    )
    found.add_argument("--version", action=VersionAction)
    commands = found.add_subparsers(dest="experiment", required=True, metavar="EXPERIMENT")
    for name, experiment in EXPERIMENTS.items():
        module = inspect.getmodule(experiment)
        command = commands.add_parser(
            name,
            help=experiment.summary,
            description=module.__doc__ if module else None,
            formatter_class=Paragraphs,
        )
        experiment.add_options(command)
        add_common_options(command, experiment)
    suite = commands.add_parser("suite", help=f"several of them: {', '.join(SUITES)}")
    told = f"of {', '.join(SUITES)}; all but quick are for a GPU, ten minutes at most each"
    suite.add_argument("suite", choices=SUITES, metavar="SUITE", help=told)
    suite.add_argument("--device", choices=("auto", "cuda", "soft"), default="auto")
    suite.add_argument(
        "--minutes", type=positive, metavar="M", help="begin nothing new after so many, or after the suite's own"
    )
    suite.add_argument(
        "--output", type=path_argument, default=Path("build/bench"), metavar="FOLDER", help="(%(default)s)"
    )
    return found


if __name__ == "__main__":
    sys.exit(main())
