"""Pairs of programs live, through FairGV: what a critical program's rounds take beside a best-effort one, once the search has settled.

Each pair has a space of its own. First both programs work alone there, one after the other: what rounds take, and how fast best effort is.
Then both work. Rounds are compared, on the program's own clock, with the median alone, from when the search for the split has settled, or when
the time for that is over. Best effort's progress is by the blocks that it counts itself.

Use of the GPU is the time that rounds take alone, over the stretch, plus best effort's progress. At last the same two give and take all of the
GPU (`whole`, the paper's FLEP): what sharing gains is over that.

Two parts are alike: `pairs` has the recorder's programs, `programs` whole ones as critical programs (networks.py).

Wrong when a round's time is mostly the host's: a round that waits for a core is over the target as one that waits for the GPU is.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from statistics import fmean, median
from typing import Any

from backend_host.config import Config
from benchmarks.document import Document, Record, records
from benchmarks.errors import ProgramFailedError
from benchmarks.experiment import Reporter, amount, positive, positives
from benchmarks.guests import Setting
from benchmarks.paper import Finding
from benchmarks.part import Part
from benchmarks.sheet import Sheet
from benchmarks.space import live, networks
from benchmarks.space.live import BEST_EFFORT, LARGE, PERCENTILES, Program, Worked, percentiles
from benchmarks.space.record import BEST_EFFORT as LASTING
from benchmarks.space.record import PAIRS, SIZES
from benchmarks.style import LESS, MORE
from scheduler.space.command import TARGETS
from scheduler.space.feedback import NR_ROUNDS

KIND, PROGRAM_KIND = "space pair", "space program"
ALONE_S = 1.0
"""In which each program works alone."""
WITHIN = 0.99
"""Of the rounds are to be within the target."""
COUNTS = ("nr_launches", "nr_sliced", "nr_parts", "nr_variants", "nr_rounds", "out_of_turn_ns", "whole")
PROGRAM_PAIRS = tuple(product(LASTING, networks.NAMES))
MOST_NAMED = 12
"""Of pairs in a picture: more names would lie on each other."""
SOFT_TARGETS = (2.0,)

Pair = tuple[str, str]


@dataclass(frozen=True)
class Plan:
    """A part about pairs. `kind`: of its records; `pairs_of`: which ones, by the options."""

    name: str
    kind: str
    title: str
    nr_of_paper: int
    findings: Mapping[str, str]
    """Of the paper's claims that are about all of them, the figures."""
    pairs_of: Callable[[argparse.Namespace], Sequence[Pair]]

    def part(self) -> Part:
        """As the experiment has it."""
        each = (_nr_records, _measure, _sheet, _figures, _draw)
        return Part(self.name, *(partial(function, self) for function in each))  # type: ignore[arg-type]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which pairs, and how long."""
    parser.add_argument(
        "--pairs",
        type=_pairs_of,
        metavar="BEST_EFFORT:CRITICAL,...",
        help="of pairs (default: all 25; a few on softgpu)",
    )
    parser.add_argument(
        "--targets",
        type=positives,
        metavar="N,...",
        help="of pairs: how much slower rounds may get (default 1.2,1.5,2)",
    )
    parser.add_argument(
        "--settle-seconds",
        type=positive,
        default=12.0,
        metavar="S",
        help="of pairs: the longest wait for the search (default %(default)g)",
    )
    parser.add_argument(
        "--pause-us",
        type=amount,
        default=2000.0,
        metavar="US",
        help="of pairs: between rounds, in the mean (default %(default)g)",
    )


def _pairs_of(text: str) -> list[Pair]:
    """For argparse."""
    found = [tuple(word.split(":")) for word in text.split(",")]
    for pair in found:
        if pair not in PAIRS:
            best, critical = ({one[role] for one in PAIRS} for role in (0, 1))
            raise argparse.ArgumentTypeError(
                f"{':'.join(pair)} is no pair: best effort, one of {', '.join(sorted(best))}, a colon, and one of "
                f"{', '.join(sorted(critical))}"
            )
    return found  # type: ignore[return-value] # PAIRS has pairs


def _wanted(plan: Plan, options: argparse.Namespace) -> list[tuple[float, Pair]]:
    targets = options.targets or (TARGETS if options.device == "cuda" else SOFT_TARGETS)
    return list(product(targets, plan.pairs_of(options)))


def _nr_records(plan: Plan, options: argparse.Namespace) -> int:
    return len(_wanted(plan, options))


def _measure(plan: Plan, options: argparse.Namespace, settings: Setting, reporter: Reporter) -> Iterator[Record]:
    without = {name: why for name in networks.NAMES if (why := networks.why_not(name, options.device))}
    for why in dict.fromkeys(without[critical] for _, critical in plan.pairs_of(options) if critical in without):
        reporter.refused(why)
    with reporter.tolerating(plan.name), live.serving(settings) as config:
        for number, (target, pair) in enumerate(_wanted(plan, options)):
            if pair[1] in without:
                continue
            what = f"{pair[0]} beside {pair[1]}, rounds at most {target:g}"
            reporter.doing(what)
            with reporter.tolerating(what):
                yield {"kind": plan.kind, **_record(config, f"{plan.name}-{number}", pair, target, options)}


def _record(config: Config, space: str, pair: Pair, target: float, options: argparse.Namespace) -> Record:
    large, pause = LARGE[options.device], ("--pause-us", f"{options.pause_us:g}")
    entitlements = (live.critical(target, space), live.best_effort(space))
    with (
        live.members(config, space, entitlements) as session,
        networks.critical_program(session, pair[1], options.device, pause) as critical,
    ):
        rounds_alone = live.worked_alone(critical, ALONE_S)  # the search begins once best effort has a program
        with live.program(session, BEST_EFFORT, ("best-effort", pair[0], *large)) as best_effort:
            alone = live.worked_alone(best_effort, ALONE_S)
            best_effort.work()
            critical.work()
            settled = live.settled(config, space, options.settle_seconds)
            before = live.space_of(config, space)
            parts_settled = _watched(config, space, (critical, best_effort), options.seconds)
            rounds, work = critical.rest(), best_effort.rest()
            told = live.space_of(config, space)
            counts = _counts(config)
            live.give_all_up(config, space)
            all_given_up = _stretch((critical, best_effort), options.seconds / 2)
    whole = compared(rounds_alone, alone, *all_given_up, target)
    return {
        "best_effort": pair[0],
        "critical": pair[1],
        "target": target,
        "pause_us": options.pause_us,
        **asdict(settled),
        "settled_part": fmean(parts_settled),
        "within_as_told": within_as_told(before, told),
        **compared(rounds_alone, alone, rounds, work, target),
        "whole": {key: whole[key] for key in ("slowdowns", "within", "progress", "use")},
        "told": {key: told[key] for key in ("way", "split", "slowdowns", "nr_rounds", "nr_missed", "why", "nr_faults")},
        "counts": counts,
    }


def _stretch(programs: tuple[Program, Program], seconds: float) -> tuple[Worked, Worked]:
    """What both do beside each other from a while after they have begun."""
    for program in programs:
        program.work()
    time.sleep(live.LOOK_S)
    for program in programs:
        program.look()
    time.sleep(seconds)
    return programs[0].rest(), programs[1].rest()


def gain(record: Record) -> float:
    """Use of the GPU over that by giving all up for each round."""
    return float(record["use"] / record["whole"]["use"])


def within_as_told(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """The part of rounds that the daemon says were within the target; None: it compared hardly any, as with all of the GPU for each."""
    nr_rounds, nr_missed = (after[key] - before[key] for key in ("nr_rounds", "nr_missed"))
    return 1 - nr_missed / nr_rounds if nr_rounds >= NR_ROUNDS else None


def _counts(config: Config) -> dict[str, dict[str, Any]]:
    """Of each vGPU, what its programs did on their way to the device."""
    vgpus = live.status(config)["vgpus"]
    return {vgpu["vgpu_class"]: {key: vgpu["totals"][key] for key in COUNTS} for vgpu in vgpus}


def _watched(config: Config, space: str, programs: Sequence[Program], seconds: float) -> list[bool]:
    """Whether the search was settled, in each look of a stretch that begins now."""
    for program in programs:
        program.look()
    end_s, found = time.monotonic() + seconds, []
    while time.monotonic() < end_s:
        found.append(bool(live.space_of(config, space)["is_settled"]))
        time.sleep(live.LOOK_S)
    return found


def compared(rounds_alone: Worked, alone: Worked, rounds: Worked, work: Worked, target: float) -> dict[str, Any]:
    """Both programs beside each other over both alone. ProgramFailedError where one did nothing."""
    if not rounds_alone.times_us or not rounds.times_us or not alone.blocks:
        raise ProgramFailedError("no round ended, or no block of best effort alone")
    alone_us = median(rounds_alone.times_us)
    slowdowns = sorted(each / alone_us for each in rounds.times_us)
    progress = work.rate / alone.rate
    return {
        "alone_us": alone_us,
        "alone_slowdowns": percentiles(sorted(each / alone_us for each in rounds_alone.times_us)),
        "nr_rounds": len(slowdowns),
        "slowdowns": percentiles(slowdowns),
        "within": fmean(each <= target for each in slowdowns),
        "progress": progress,
        "use": len(slowdowns) * alone_us / 1e6 / rounds.seconds + progress,
    }


def _sheet(plan: Plan, document: Document) -> Sheet | None:
    found = records(document, plan.kind)
    if not found:
        return None
    rows = tuple(
        (
            f"{each['best_effort']} beside {each['critical']}",
            f"{each['target']:g}",
            f"{each['split'][0]}, {each['split'][1]}",
            f"{each['settle_s']:.1f}" if each["is_settled"] else "-",
            f"{each['alone_us']:.0f}",
            *(f"{each['slowdowns'][name]:.2f}" for name in PERCENTILES),
            f"{100 * each['within']:.1f}",
            "-" if each["within_as_told"] is None else f"{100 * each['within_as_told']:.1f}",
            f"{100 * _persistent(each):.0f}",
            f"{each['progress']:.2f}",
            f"{each['use']:.2f}",
            f"{each['whole']['use']:.2f}",
            f"{gain(each):.2f}",
        )
        for each in found
    )
    columns = (
        *("pair", "target", "split", "settled, s", "round alone, us", "slowdown, median", "95 %", "99 %"),
        *("within, %", "as told, %", "persistent, %", "progress", "use", "all given up", "gain"),
    )
    notes = (
        "Rounds once the search has settled, over the median alone. Within the target is by the program's clock, and as the daemon tells.",
        "Progress is best effort's over its own alone; use is the time that rounds take alone over the stretch, plus progress. All given up:",
        "the use where each round has all of the GPU, and the gain over it. Launches of best effort that are not persistent do not give way.",
        "The split is that where the search settled, or where it was when the time was over (-).",
    )
    return Sheet(plan.title, columns, rows, notes)


def _persistent(record: Record) -> float:
    """The part of best effort's launches that can give way."""
    counts = record["counts"]["best-effort"]
    return float(counts["nr_sliced"] / counts["nr_launches"]) if counts["nr_launches"] else 0.0


def _of_target(plan: Plan, document: Document, target: float) -> list[Record]:
    return [each for each in records(document, plan.kind) if each["target"] == target]


def _targets(plan: Plan, document: Document) -> list[float]:
    return sorted({each["target"] for each in records(document, plan.kind)})


def _figures(plan: Plan, document: Document) -> dict[str, float]:
    found: dict[str, float] = {}
    for target in _targets(plan, document):
        all_pairs, name = _of_target(plan, document, target), f"{plan.name}/{target:g}"
        found |= {
            f"{name}/pairs": len(all_pairs),
            f"{name}/pairs settled": sum(each["is_settled"] for each in all_pairs),
            f"{name}/pairs with 99 % within": sum(each["within"] >= WITHIN for each in all_pairs),
            f"{name}/least within": min(each["within"] for each in all_pairs),
            f"{name}/mean progress": fmean(each["progress"] for each in all_pairs),
            f"{name}/mean use": fmean(each["use"] for each in all_pairs),
            f"{name}/pairs that gain": sum(gain(each) > 1 for each in all_pairs),
            f"{name}/least gain": min(map(gain, all_pairs)),
            f"{name}/greatest gain": max(map(gain, all_pairs)),
            f"{name}/mean gain": fmean(gain(each) - 1 for each in all_pairs),
            f"{name}/least persistent": min(map(_persistent, all_pairs)),
            f"{name}/longest search, s": max(each["settle_s"] for each in all_pairs),
        }
    return found


def findings(document: Document) -> list[Finding]:
    """Of targets with which all pairs of the paper were measured."""
    found = []
    for plan in PLANS:
        figures = _figures(plan, document)
        for target in (f"{plan.name}/{target:g}" for target in _targets(plan, document)):
            if figures[f"{target}/pairs"] == plan.nr_of_paper:
                detail = f"live, rounds at most {target.partition('/')[2]}"
                found += [Finding(name, detail, figures[f"{target}/{key}"]) for name, key in plan.findings.items()]
    return found


def _of_its_target(record: Record) -> float:
    """Of the target, the 99th percentile."""
    return float(record["slowdowns"]["p99"] / record["target"])


def _draw(plan: Plan, axes: Any, document: Document) -> str | None:
    found = records(document, plan.kind)
    if not found:
        return None
    for target in _targets(plan, document):
        mine = _of_target(plan, document, target)
        axes.plot([_of_its_target(each) for each in mine], [gain(each) for each in mine], "o", label=f"{target:g}")
    for each in found if len(found) <= MOST_NAMED else ():
        name = f" {each['best_effort']}, {each['critical']}"
        axes.text(_of_its_target(each), gain(each), name, fontsize="xx-small", va="bottom")
    axes.axhline(1, color="grey")
    axes.axvline(1, color="grey")
    axes.legend(title="rounds at most", fontsize="x-small")
    axes.set_xlabel(f"99th percentile of rounds over the target {LESS}")
    axes.set_ylabel(f"use of the GPU over that by giving all up\n{MORE}")
    held = sum(each["within"] >= WITHIN for each in found)
    return f"Through FairGV 99 % of rounds are within the target in {held} of {len(found)} cases"


PLANS = (
    Plan(
        "pairs",
        KIND,
        "Pairs through FairGV",
        len(PAIRS),
        {"gspace_better": "pairs that gain", "gspace_greatest": "greatest gain"},
        lambda options: options.pairs or SIZES[options.device].pairs,
    ),
    Plan(
        "programs",
        PROGRAM_KIND,
        "Whole programs through FairGV",
        len(PROGRAM_PAIRS),
        {"gspace_programs_better": "pairs that gain", "gspace_programs_gain": "mean gain"},
        lambda options: PROGRAM_PAIRS if options.device == "cuda" else PROGRAM_PAIRS[-1:],
    ),
)
PARTS = tuple(plan.part() for plan in PLANS)
