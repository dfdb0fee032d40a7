"""`python -m scheduler.space replay FILE`: the searches over recorded surfaces.

The only file of scheduler/space/ that reads files or
writes."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import track

from scheduler.space.predict import PREDICTORS
from scheduler.space.recorded import Pair, Recording, RecordingError, parse
from scheduler.space.registry import SEARCHES
from scheduler.space.replay import Replayed, replay
from scheduler.space.summary import Errors, Summary, prediction_errors, summary
from scheduler.space.surface import Surface
from scheduler.space.tables import print_errors, print_replays, print_summaries

TARGETS = (1.2, 1.5, 2.0)

_EPILOG = f"""\
searches: {", ".join(SEARCHES)}

columns: of optimum: best effort's progress at the end, over the greatest that is within the target and no worse
than turns; 0 if the end is over the target. time: until it settled, over that of 20 rounds of every split. over:
rounds over the target until then. tried, (over): splits, and those over the target. settled: rounds over the target
once it had settled. ends: replays that end over the target. use, least: critical time alone over the time it took,
plus best effort's progress, in the mean and the least; turns have 1, and better counts replays above that.

examples:
  python -m scheduler.space replay benchmarks/space/surfaces.json --micro benchmarks/space/micro.json
  python -m scheduler.space replay surfaces.json --search climb --target 1.2 --pairs
  python -m scheduler.space replay surfaces.json --json > replays.json
"""


def targets(text: str) -> list[float]:
    """`1.2,1.5`: slowdowns."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = [0.0]
    if not all(1 < target < float("inf") for target in found):
        raise argparse.ArgumentTypeError(f"{text!r}: targets are slowdowns above 1, as 1.2,1.5")
    return found


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m scheduler.space",
        description="Searches for the split of a GPU between a critical and a best-effort program, over recorded surfaces.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    of_replay = commands.add_parser(
        "replay",
        help="run searches over a file of recorded surfaces",
        description="Runs searches over a file of recorded surfaces, as `fairgv-bench space --calibrate` writes it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    of_replay.add_argument("file", type=Path, metavar="FILE", help="recorded surfaces of programs")
    of_replay.add_argument(
        "--micro", type=Path, metavar="FILE", help="those of the micro-benchmark, for the searches that predict"
    )
    of_replay.add_argument(
        "--target", type=targets, default=list(TARGETS), metavar="T[,T..]", help="slowdowns (default: 1.2,1.5,2.0)"
    )
    of_replay.add_argument(
        "--search", choices=tuple(SEARCHES), action="append", metavar="NAME", help="only this one; may be repeated"
    )
    of_replay.add_argument("--pairs", action="store_true", help="a line for each pair, target and search as well")
    of_replay.add_argument("--json", action="store_true", help="print JSON: means, errors of predictions, replays")
    return parser


def read(path: Path) -> Recording:
    """RecordingError, which names the file, when it is no recording."""
    try:
        return parse(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"{path}: cannot be read: {error}") from None
    except RecordingError as error:
        raise RecordingError(f"{path}: {error}") from None


def predictions_of(pairs: Sequence[Pair], micro: Recording) -> list[Mapping[str, Surface]]:
    """Of each pair, by predictor. RecordingError when the files' features do not fit together."""
    if len(pairs[0].features) != len(micro.pairs[0].features) or not micro.pairs[0].features:
        raise RecordingError("features: the two files have not as many, or none")
    fitted = {name: predictor(micro.pairs) for name, predictor in PREDICTORS.items()}
    return [{name: each.predict(pair.features, pair.surface.grid) for name, each in fitted.items()} for pair in pairs]


def run(options: argparse.Namespace) -> None:
    """RecordingError when a file is wrong."""
    pairs = read(options.file).pairs
    predictions: list[Mapping[str, Surface]] = [{} for _ in pairs]
    all_errors: list[Errors] = []
    if options.micro:
        predictions = predictions_of(pairs, read(options.micro))
        all_errors = prediction_errors(pairs, predictions)
    names = options.search or [name for name, search in SEARCHES.items() if options.micro or not search.predictor]
    blind = [name for name in names if SEARCHES[name].predictor and not options.micro]
    if blind:
        raise RecordingError(f"{blind[0]} predicts: give the surfaces of the micro-benchmark by --micro FILE")
    wanted = [
        (name, pair, target, predicted)
        for name in names
        for target in options.target
        for pair, predicted in zip(pairs, predictions, strict=True)
    ]
    shown = track(wanted, "", console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    replays = [replay(*each) for each in shown]
    summaries = [summary([each for each in replays if each.search == name]) for name in names]
    if options.json:
        print(to_json(summaries, all_errors, replays))
    else:
        show(summaries, all_errors, replays if options.pairs else [])


def show(summaries: Sequence[Summary], all_errors: Sequence[Errors], replays: Sequence[Replayed]) -> None:
    """As text; wide where somebody reads it from a file."""
    console = Console() if sys.stdout.isatty() else Console(width=110)
    if replays:
        print_replays(replays, console)
        console.print()
    print_summaries(summaries, console)
    if all_errors:
        console.print()
        print_errors(all_errors, console)


def to_json(summaries: Sequence[Summary], all_errors: Sequence[Errors], replays: Sequence[Replayed]) -> str:
    """Names as in `Summary`, `Errors` and `Replayed`."""
    document = {
        name: [asdict(each) for each in kind]
        for name, kind in (("searches", summaries), ("errors", all_errors), ("replays", replays))
    }
    return json.dumps(document, indent=2)


def main(arguments: Sequence[str] | None = None) -> int:
    """0; 1 when a file is wrong; 2 for a wrong command line."""
    options = make_parser().parse_args(arguments)
    try:
        run(options)
    except RecordingError as error:
        print(f"python -m scheduler.space: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
