"""What a port gets by its weight beside throttles: equal parts, and two thirds of the GPU; how soon kernels give way when asked."""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.document import Document, Record, records
from benchmarks.errors import ProgramFailedError
from benchmarks.experiment import Reporter
from benchmarks.gloop.ports import GLOOP, port
from benchmarks.guests import Setting, open_session
from benchmarks.part import Part
from benchmarks.ratios import throughput_min_max_ratio
from benchmarks.sheet import Sheet
from benchmarks.stretch import run_together
from benchmarks.style import MORE
from benchmarks.systems import OURS
from benchmarks.workloads import Workload

KIND, ALONE = "gloop shares", "gloop share alone"
EDGE_PART = 0.25
SLICE_MS = 5.0
NR_TURNS = 100
"""Of the program of the least weight: one more or less is 1 % of what it gets."""
THROTTLE_SIZE = {"cuda": "10000", "soft": "soft"}
"""On a GPU a round of some 4 ms, less than a turn: what is done is counted by rounds."""
TARGETS = ("tpacf", "grep")


@dataclass(frozen=True)
class Scene:
    """A target and as many throttles as there are further weights."""

    target: str
    weights: tuple[int, ...]

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.target}, {':'.join(map(str, self.weights))}"


def _scenes(device: str) -> list[Scene]:
    """Equal weights, then one whose target has two thirds."""
    counts = (2, 4, 8) if device == "cuda" else (2,)
    weights = [(1,) * nr for nr in counts] + [(2 * (nr - 1), *(1,) * (nr - 1)) for nr in counts]
    return [Scene(target, each) for target in TARGETS for each in weights]


def _workloads(scene: Scene, device: str) -> list[Workload]:
    return [_port(scene.target, device), *(_port("throttle", device) for _ in scene.weights[1:])]


def _port(name: str, device: str) -> Workload:
    return port(name, GLOOP, device, size=THROTTLE_SIZE[device] if name == "throttle" else None)


def stretch_s(weights: tuple[int, ...], asked_s: float, device: str) -> float:
    """As long as was asked for, and until the program of the least weight has had its turns. softgpu tells nothing of shares."""
    return asked_s if device == "soft" else max(asked_s, NR_TURNS * SLICE_MS / 1000 * sum(weights) / min(weights))


def _nr_records(options: argparse.Namespace) -> int:
    return len(TARGETS) + 1 + len(_scenes(options.device))


def _measure(options: argparse.Namespace, settings: Setting, reporter: Reporter) -> Iterator[Record]:
    alone: dict[str, float] = {}
    for name in (*TARGETS, "throttle"):
        reporter.doing(f"{name} alone")
        with reporter.tolerating(f"{name} alone"):
            outcome = _together([_port(name, options.device)], (1,), options, settings)["guests"][0]
            if outcome["throughput"] <= 0:
                raise ProgramFailedError("nothing was done")
            alone[name] = outcome["throughput"]
            yield {"kind": ALONE, "program": name, "throughput": alone[name]}
    for scene in _scenes(options.device):
        if not {scene.target, "throttle"} <= set(alone):
            continue
        reporter.doing(scene.label)
        with reporter.tolerating(scene.label):
            found = _together(_workloads(scene, options.device), scene.weights, options, settings)
            reached = [alone[scene.target], *(alone["throttle"] for _ in scene.weights[1:])]
            yield {"kind": KIND, "target": scene.target, "weights": list(scene.weights), "alone": reached, **found}


def _together(
    workloads: list[Workload], weights: tuple[int, ...], options: argparse.Namespace, settings: Setting
) -> dict[str, Any]:
    seconds = stretch_s(weights, options.seconds, options.device)
    with open_session(OURS, replace(settings, slice_ms=SLICE_MS), weights) as session:
        outcomes = run_together(session, workloads, seconds, EDGE_PART * seconds)
        accounts = session.accounts()
    guests = [{"throughput": outcome.throughput, "charged_s": outcome.charged_s} for outcome in outcomes]
    gave_way: dict[str, int] = {}
    for account in accounts:
        for bound, nr in account.nr_gave_way.items():
            gave_way[bound] = gave_way.get(bound, 0) + nr
    return {"guests": guests, "gave_way": gave_way}


def ratio(record: Record) -> float:
    """The least over the greatest of what programs get of their due, which is theirs by weight of what they reach alone."""
    return throughput_min_max_ratio(
        [guest["throughput"] for guest in record["guests"]], record["alone"], record["weights"]
    )


def part(record: Record) -> float:
    """Of the GPU time that was charged, the target's."""
    charged = [guest["charged_s"] for guest in record["guests"]]
    return float(charged[0] / sum(charged)) if sum(charged) else 0.0


def bound_us(counts: Mapping[str, int], percent: float) -> float | None:
    """What so many of a hundred kernels did not take longer than, from the word to the end; None where nobody gave way.

    Counts are by bounds in ns, of which the last one may be no number.
    """
    total, seen = sum(counts.values()), 0
    for bound, nr in sorted(counts.items(), key=lambda each: _number(each[0])):
        seen += nr
        if nr and seen >= total * percent / 100:
            return _number(bound) / 1000
    return None


def _number(bound: str) -> float:
    return float(bound) if bound.isdigit() else float("inf")


def _text(us: float | None) -> str:
    return "-" if us is None else f"{us:g}"


def _sheet(document: Document) -> Sheet | None:
    rows = tuple(
        (
            record["target"],
            ":".join(map(str, record["weights"])),
            f"{ratio(record):.3f}",
            f"{part(record):.3f}",
            str(sum(record["gave_way"].values())),
            _text(bound_us(record["gave_way"], 50)),
            _text(bound_us(record["gave_way"], 99)),
        )
        for record in records(document, KIND)
    )
    columns = ("target", "weights", "min-max ratio", "target's part", "gave way", "us at most, median", "99 %")
    return Sheet("A port beside throttles, by weight", columns, rows) if rows else None


def _figures(document: Document) -> dict[str, float]:
    found: dict[str, float] = {}
    for record in records(document, KIND):
        label = f"shares/{record['target']}/{':'.join(map(str, record['weights']))}"
        found |= {f"{label}/min-max ratio": ratio(record), f"{label}/part": part(record)}
    return found


def _draw(axes: Any, document: Document) -> str | None:
    found = records(document, KIND)
    if not found:
        return None
    labels = [f"{record['target']}\n{':'.join(map(str, record['weights']))}" for record in found]
    axes.bar(range(len(found)), [ratio(record) for record in found], 0.5)
    axes.axhline(1, color=axes.xaxis.label.get_color(), linewidth=1, linestyle=":")
    axes.set_xticks(range(len(found)), labels, fontsize="x-small")
    axes.set_ylabel(f"min-max ratio\n{MORE}")
    return (
        f"A port beside throttles: every program gets at least {min(map(ratio, found)):.2f} of what any gets of its due"
    )


PART = Part("shares", _nr_records, _measure, _sheet, _figures, _draw)
