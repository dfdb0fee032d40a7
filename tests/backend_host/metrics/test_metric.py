"""Which metric a counter becomes, by the rules, and that a new counter becomes one by itself."""

import re
from dataclasses import dataclass, field

import pytest

from backend_host import counters
from backend_host.metrics.catalogue import INFOS, OF_ALL, OF_VGPUS
from backend_host.metrics.metric import Histogram, Metric, of_counters
from cuda_api import table as calls
from cuda_api.value import Value

WHY = Value("why", "Why.", "variants", enum=(("not", 0), ("too_large", 3)))
TABLE = counters.from_text(
    """
nr_calls = { unit = "count", keep = "sum", seen_by = "guest", help = "Calls." }
to_device_bytes = { unit = "bytes", keep = "sum", seen_by = "operator", help = "Copied." }
limited_ns = { unit = "ns", keep = "sum", seen_by = "operator", help = "Held back." }
modules_bytes = { unit = "bytes", keep = "last", seen_by = "guest", help = "Of modules." }
nr_modules = { unit = "count", keep = "last", seen_by = "guest", help = "Modules." }
burst_ns = { unit = "ns", keep = "last", seen_by = "operator", help = "Of a burst." }
last_error = { unit = "CUresult", keep = "last", seen_by = "guest", help = "Of the last call." }
nr_kept = { unit = "count", keep = "sum", seen_by = "operator", help = "Whole.", each = "why", room = 4 }
wait_ns = { unit = "ns", keep = "sum", seen_by = "operator", help = "Of all waits." }
nr_waits = { unit = "count", keep = "sum", seen_by = "operator", help = "Waits.", bounds_ns = [10, 1000000], sum = "wait_ns" }
nr_parks = { unit = "count", keep = "sum", seen_by = "nobody", help = "Naps." }
""",
    (WHY,),
)


@dataclass
class Program:
    modules_bytes: int
    nr_modules: int


@dataclass
class Totals:
    nr_calls: int = 7
    to_device_bytes: int = 8
    limited_ns: int = 2_500_000_000
    why: dict[str, int] = field(default_factory=lambda: {"too_large": 2})
    wait_ns: int = 3_000_000
    nr_waits: dict[str, int] = field(default_factory=lambda: {"1000000": 4, "longer": 1})


@dataclass
class VGpu:
    totals: Totals = field(default_factory=Totals)
    clients: tuple[Program, ...] = (Program(10, 1), Program(5, 2))


def made() -> dict[str, Metric]:
    return {metric.name: metric for metric in of_counters(TABLE, ["nr_calls"])}


def test_names_units_and_kinds_follow_from_the_table() -> None:
    assert [(metric.name, metric.kind, metric.unit, metric.label) for metric in made().values()] == [
        ("fairgv_vgpu_to_device_bytes_total", "counter", "bytes", ""),
        ("fairgv_vgpu_limited_seconds_total", "counter", "seconds", ""),
        ("fairgv_vgpu_modules_bytes", "gauge", "bytes", ""),
        ("fairgv_vgpu_modules", "gauge", "", ""),
        ("fairgv_vgpu_kept_total", "counter", "", "why"),
        ("fairgv_vgpu_wait_seconds", "histogram", "seconds", ""),
    ]


def test_values_are_in_base_units_and_summed_up() -> None:
    values = {name.removeprefix("fairgv_vgpu_"): metric.read(VGpu()) for name, metric in made().items()}
    assert values == {
        "to_device_bytes_total": 8,
        "limited_seconds_total": 2.5,
        "modules_bytes": 15,
        "modules": 3,
        "kept_total": {"too_large": 2},
        "wait_seconds": Histogram(("1e-08", "0.001", "+Inf"), [0, 4, 5], 0.003),
    }


def test_every_counter_that_operators_may_see_is_told() -> None:
    """But for what adds up to nothing."""
    told = {metric.name for metric in OF_VGPUS}
    by_hand = {"nr_calls", "nr_round_trips", "nr_sent", "nr_refused", "memory_bytes", "wait_ns"}
    for counter in counters.read(calls.read().values):
        if not counter.is_shown or counter.name in by_hand:
            continue
        if counter.keep == "last" and counter.unit in ("ns", "CUresult"):
            continue
        plain = re.sub("^nr_|_ns$|_bytes$", "", counter.sum or counter.name)
        assert any(name.startswith(f"fairgv_vgpu_{plain}") for name in told), counter.name


ALL = [metric for metrics, _ in OF_ALL for metric in metrics]


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_names_are_prometheus_own(metric: Metric) -> None:
    assert re.fullmatch(r"fairgv_[a-z][a-z0-9_]*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.help.endswith(".")
    assert "\n" not in metric.help


def test_no_name_stands_for_two() -> None:
    names = [*INFOS, *(metric.name for metric in ALL)]
    assert len(names) == len(set(names))
