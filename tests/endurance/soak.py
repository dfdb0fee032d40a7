"""`make soak`: hours of clients and vGPUs that come and go beside two that stay, and whether anything grows.

Two guests of weights 1 and 2 keep the device busy throughout. Beside them programs that check their results come one after another, each on a
vGPU of its own with a weight of its own. Meanwhile memory and descriptors of the daemon and of the two workers that stay are looked at, and how
GPU time was shared between the two that stay. Figures go to build/soak.json, a picture to build/soak.png; `flatness` says what flat means.
Wrong when: the machine's load makes a guest that stays miss its turns for lack of a core: the min-max ratio then tells of the machine.
"""

import argparse
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from backend_host.config import PACKAGE_ROOT
from benchmarks.ratios import min_max_ratio
from benchmarks.style import THEMES, figure_of
from tests.endurance import processes
from tests.endurance.flatness import NR_BLOCKS, Trend, trend
from tests.endurance.programs import Ending, Guest, ask, await_served
from tests.endurance.scene import LIMIT_S, House, end_all, small_disk

STAYING = {"one": 1, "two": 2}
"""vGPUs that stay, and their weights."""
ENDLESS = ("matrix_mul", "3", "2000000000")
CHURN = (
    ("vector_add",),
    ("matrix_mul", "6", "50"),
    ("async_api",),
    ("simple_streams",),
    ("managed_memory",),
    ("graph_threads",),
    ("pool_memory",),
    ("simple_printf",),
    ("threads",),
)
NR_SAMPLES = 240
LEAST_GROWTH = 0.02
"""Part of the mean: what memory or a ratio may drift in a run. One descriptor is never a drift."""
MIB = 1 << 20


@dataclass
class Series:
    """One figure over time. `tolerance`: see `flatness`; as a part of the mean where it is below 1."""

    unit: str
    panel: str
    tolerance: float = LEAST_GROWTH
    bad: int = 1
    values: list[float] = field(default_factory=list)

    def trend(self) -> Trend:
        mean = sum(self.values) / len(self.values)
        return trend(self.values, self.tolerance * mean if self.tolerance < 1 else self.tolerance, bad=self.bad)


@dataclass
class Soak:
    """All that was seen."""

    at_s: list[float] = field(default_factory=list)
    series: dict[str, Series] = field(default_factory=dict)
    endings: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    used_ns: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, unit: str, panel: str, value: float, **more: float) -> None:
        self.series.setdefault(name, Series(unit, panel, **more)).values.append(value)  # type: ignore[arg-type]

    def look(self, house: House, workers: dict[str, int], at_s: float) -> None:
        """One sample of everything."""
        used_ns = {vgpu["name"]: vgpu["used_ns"] for vgpu in ask(house.host, "status")["vgpus"]}
        before, self.used_ns = self.used_ns, used_ns
        if not before:
            return
        self.at_s.append(at_s)
        for who, pid in {"daemon": house.daemon, **{f"worker {name}": pid for name, pid in workers.items()}}.items():
            rss, anonymous = processes.memory_bytes(pid)
            self.add(f"{who}, RSS", "MiB", who.partition(" ")[0], rss / MIB)
            self.add(f"{who}, anonymous", "MiB", who.partition(" ")[0], anonymous / MIB)
            self.add(f"{who}, descriptors", "descriptors", "descriptors", len(processes.descriptors(pid)), tolerance=1)
        shares = [(used_ns[name] - before[name]) / weight for name, weight in STAYING.items()]
        self.add("min-max ratio", "1 is fair", "shares", min_max_ratio(shares), bad=-1)

    def is_flat(self) -> bool:
        return all(series.trend().is_flat for series in self.series.values())

    def verdict(self) -> str:
        """A line for each figure, then one for all."""
        if len(self.at_s) < 2 * NR_BLOCKS:
            return f"{len(self.at_s)} samples are too few to say whether anything grows"
        lines = []
        for name, series in self.series.items():
            seen = series.trend()
            says = "flat" if seen.is_flat else "NOT FLAT"
            lines.append(
                f"{name}: mean {seen.mean:.2f}, over the run {seen.growth:+.2f} ± {seen.half_width:.2f} {series.unit}: {says}"
            )
        return "\n".join([*lines, f"the whole: {'flat' if self.is_flat() else 'NOT FLAT'}"])

    def is_good(self) -> bool:
        return set(self.endings) <= {Ending.PASSED.value} and (len(self.at_s) < 2 * NR_BLOCKS or self.is_flat())

    def write(self, path: Path) -> None:
        trends = {
            name: asdict(series.trend()) for name, series in self.series.items() if len(self.at_s) >= 2 * NR_BLOCKS
        }
        series = {name: asdict(series) for name, series in self.series.items()}
        document = {
            "programs": self.endings,
            "at_s": self.at_s,
            "series": series,
            "trends": trends,
            "findings": self.findings,
        }
        path.write_text(json.dumps(document, indent=1) + "\n")

    def draw(self, path: Path) -> None:
        """A picture with a panel for each kind of figure."""
        panels = list(dict.fromkeys(series.panel for series in self.series.values()))
        with figure_of((9, 2.6 * len(panels)), THEMES["light"]) as figure:
            axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)
            for panel, (axis,) in zip(panels, axes, strict=True):
                for name, series in self.series.items():
                    if series.panel == panel:
                        axis.plot([at_s / 60 for at_s in self.at_s], series.values, label=name, linewidth=1)
                        axis.set_ylabel(series.unit)
                axis.set_ylim(bottom=0)
                axis.legend(loc="lower right", fontsize=7, ncols=3)
            axes[-1][0].set_xlabel("minutes")
            figure.savefig(path)


def churn(house: House, number: int, soak: Soak, dice: random.Random) -> Guest:
    """The next program of those that come and go."""
    return Guest.start(house.host, f"churn-{number % 5}", *dice.choice(CHURN), weight=dice.choice((1, 2, 5)))


def run(house: House, duration_s: float, soak: Soak, dice: random.Random, into: Path) -> None:
    """For so long; figures are written on the way, so that a run of hours can be looked at, and one that is killed has told something."""
    staying = [Guest.start(house.host, name, *ENDLESS, weight=weight) for name, weight in STAYING.items()]
    workers = await_served(house.host, staying, LIMIT_S)
    begun_s, step_s, number = time.monotonic(), max(1.0, duration_s / NR_SAMPLES), 0
    guest = churn(house, number, soak, dice)
    for sample in range(int(duration_s / step_s) + 1):
        while time.monotonic() < begun_s + sample * step_s:
            if not guest.has_ended():
                time.sleep(0.05)
                continue
            ended = guest.end(LIMIT_S)  # it has; what it said may still have to be read
            soak.endings[ended.ending.value] += 1
            if ended.ending is not Ending.PASSED:
                soak.findings.append(f"{guest.vgpu}: {ended.said}")
                print(f"FOUND {soak.findings[-1]}", flush=True)
            number += 1
            guest = churn(house, number, soak, dice)
        soak.look(house, workers, time.monotonic() - begun_s)
        if sample % 12 == 0:
            soak.write(into / "soak.json")
            print(f"{(time.monotonic() - begun_s) / 60:.1f} min, {number} programs", flush=True)
    if guest.end(LIMIT_S).ending is Ending.HANG:
        soak.endings[Ending.HANG.value] += 1
        soak.findings.append(processes.where(guest.command.pid))
    for stayed in staying:
        stayed.kill()
    if left := house.left_behind():
        soak.endings["left behind"] += 1
        soak.findings += left


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="which programs come when (default: %(default)s)")
    parser.add_argument(
        "--into", type=Path, default=PACKAGE_ROOT / "build", metavar="FOLDER", help="for figures and picture"
    )
    options = parser.parse_args(arguments)
    options.into.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT is ignored in a shell's background job
        signal.signal(number, signal.default_int_handler)
    processes.adopt_orphans()
    soak, status = Soak(), 0
    with small_disk() as (place, _):
        house = House(place / "state")
        house.settle()
        try:
            run(house, options.hours * 3600, soak, random.Random(options.seed), options.into)
        except KeyboardInterrupt:
            status = 128 + signal.SIGINT
        finally:
            house.end()
            end_all()
    soak.write(options.into / "soak.json")
    soak.draw(options.into / "soak.png")
    print(
        "\n".join(
            [*soak.findings, f"programs: {dict(soak.endings)}", soak.verdict(), f"{options.into}/soak.png, soak.json"]
        )
    )
    return status or int(not soak.is_good())


if __name__ == "__main__":
    sys.exit(main())
