"""Each port in its three ways, natively and as a guest. Kernels count; of grep, whose kernel reads and writes, a round."""

import argparse
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from benchmarks.document import Document, Record, records
from benchmarks.experiment import Reporter
from benchmarks.gloop.build import PORTS
from benchmarks.gloop.ports import GLOOP, PLAIN, SPLIT, port, report_of
from benchmarks.guests import NATIVE, Setting, open_session
from benchmarks.part import Part
from benchmarks.sheet import Sheet
from benchmarks.style import LESS
from benchmarks.systems import OURS

KIND = "gloop app"
COLD = "gloop, cold"
"""The page cache in the device's memory is empty when a round begins."""
WHOLE = ("grep",)
APPS = tuple(name for name in PORTS if name != "throttle")
Key = tuple[str, str, str]
"""Port, way, system."""
ROUND_PART = 0.25
"""Of the seconds of a measurement, for each run of each port; of which there are many."""


def _runs() -> list[tuple[str, str, str]]:
    ways = {name: (PLAIN, SPLIT, GLOOP, *((COLD,) if name == "images" else ())) for name in APPS}
    return [
        *((name, way, NATIVE) for name in APPS for way in ways[name]),
        *((name, way, OURS) for name in APPS for way in (PLAIN, GLOOP)),
    ]


def _nr_records(_: argparse.Namespace) -> int:
    return len(_runs())


def _measure(options: argparse.Namespace, settings: Setting, reporter: Reporter) -> Iterator[Record]:
    for name, way, system in _runs():
        label = f"{name}, {way}, {system}"
        reporter.doing(label)
        with reporter.tolerating(label), open_session(system, settings) as session:
            is_cold = way == COLD
            workload = port(name, GLOOP if is_cold else way, options.device, *(("--cold",) if is_cold else ()))
            report = report_of(session, workload, "--seconds", f"{ROUND_PART * options.seconds:g}")
            found = {key: report[key] for key in ("kernel_s", "round_s", "rounds")}
            yield {"kind": KIND, "app": name, "way": way, "system": system, **found}


def _seconds(document: Document) -> Mapping[Key, float]:
    """Means over repetitions of each run's median."""
    found: dict[Key, list[float]] = {}
    for record in records(document, KIND):
        seconds = record["round_s" if record["app"] in WHOLE else "kernel_s"]
        found.setdefault((record["app"], record["way"], record["system"]), []).append(seconds)
    return {key: fmean(each) for key, each in found.items()}


def _over(seconds: Mapping[Key, float], one: Key, other: Key) -> str:
    return f"{seconds[one] / seconds[other]:.3f}" if one in seconds and other in seconds else "-"


def _sheet(document: Document) -> Sheet | None:
    seconds = _seconds(document)
    rows = []
    for name in APPS:
        plain, split, gloop = ((name, way, NATIVE) for way in (PLAIN, SPLIT, GLOOP))
        if plain in seconds:
            cold = _over(seconds, (name, COLD, NATIVE), plain)
            guest = _over(seconds, (name, GLOOP, OURS), (name, PLAIN, OURS))
            cells = (_over(seconds, gloop, plain), cold, _over(seconds, split, gloop), guest)
            rows.append((name, f"{1000 * seconds[plain]:.4g}", *cells))
    if not rows:
        return None
    columns = ("port", "plain, ms", "gloop over plain", "cold", "split over gloop", "gloop over plain, as guests")
    return Sheet("Ports in their three ways", columns, tuple(rows), ("Kernels; of grep the whole program.",))


def _figures(document: Document) -> dict[str, float]:
    seconds, found = _seconds(document), {}
    for name in APPS:
        plain, split, gloop = ((name, way, NATIVE) for way in (PLAIN, SPLIT, GLOOP))
        pairs = {
            "gloop over plain": (gloop, plain),
            "split over gloop": (split, gloop),
            "cold over plain": ((name, COLD, NATIVE), plain),
        }
        for what, (one, other) in pairs.items():
            if one in seconds and other in seconds:
                found[f"apps/{name}/{what}"] = seconds[one] / seconds[other]
    return found


def _draw(axes: Any, document: Document) -> str | None:
    figures = _figures(document)
    names = [name for name in APPS if f"apps/{name}/gloop over plain" in figures]
    if not names:
        return None
    ratios = [figures[f"apps/{name}/gloop over plain"] for name in names]
    axes.bar(range(len(names)), ratios, 0.5)
    axes.axhline(1, color=axes.xaxis.label.get_color(), linewidth=1, linestyle=":")
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel(f"time by callbacks over plain\n{LESS}")
    return f"Ports run {min(ratios):.2f} to {max(ratios):.2f} times as long by callbacks as plain"


PART = Part("apps", _nr_records, _measure, _sheet, _figures, _draw)
