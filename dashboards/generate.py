"""`python -m dashboards.generate` writes the two Grafana boards and the table of docs/metrics.md; `--check` only says which are stale.

All three follow the list of metrics: the board of one vGPU has a panel for each of its metrics, that of hosts one for each metric of Gpus, of
spaces and of the daemon, below what compares vGPUs.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend_host.metrics.catalogue import INFOS, OF_ALL, OF_DAEMON, OF_DEVICES, OF_SPACES, OF_VGPUS
from backend_host.metrics.metric import Metric
from cuda_api import outputs

PAGE = outputs.ROOT / "docs/metrics.md"
_PLACE = re.compile(r"(<!-- metrics: begin\b[^>]*-->).*?(<!-- metrics: end -->)", re.DOTALL)
_UNITS = {"seconds": "s", "bytes": "bytes", "ratio": "percentunit"}
"""Grafana's, by ours."""
_A_SECOND = {"s": "percentunit", "bytes": "Bps", "short": "ops"}
"""Of rates, by that of what grows."""
_WIDTH, _HEIGHT, _IN_ROW = 8, 8, 3
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_ONE = "{{instance}} {{vgpu}}"
_ON_GPU = "{{instance}} GPU {{gpu}}"


class PageError(Exception):
    """docs/metrics.md has no place for the table."""


@dataclass(frozen=True)
class Panel:
    """One graph: each query with its legend. `unit` is Grafana's."""

    title: str
    about: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"


def panel_of(metric: Metric, where: str, legend: str) -> Panel:
    """Of a counter its rate, of a histogram three of its quantiles. `where`: the labels that series have."""
    name, unit = metric.name, _UNITS.get(metric.unit, "short")
    title = name.removeprefix("fairgv_").removeprefix("vgpu_").removesuffix("_total").replace("_", " ")
    legend = f"{legend} {{{{{metric.label}}}}}" if metric.label else legend
    if metric.kind == "histogram":
        rate = f"sum by (le) (rate({name}_bucket{{{where}}}[$__rate_interval]))"
        quantiles = [(f"histogram_quantile({quantile}, {rate})", f"{quantile:.0%}") for quantile in (0.5, 0.9, 0.99)]
        return Panel(title, metric.help, quantiles, unit)
    if metric.kind == "counter":
        rate = f"rate({name}{{{where}}}[$__rate_interval])"
        return Panel(f"{title}, each second", metric.help, [(rate, legend)], _A_SECOND[unit])
    return Panel(title, metric.help, [(f"{name}{{{where}}}", legend)], unit)


def hosts() -> dict[str, Any]:
    """What compares vGPUs, then each metric of Gpus, of spaces and of the daemon."""
    where = 'instance=~"$instance"'
    panels = [
        *_compared(where),
        *(panel_of(metric, where, _ON_GPU) for metric in OF_DEVICES),
        *(panel_of(metric, where, f"{_ON_GPU} {{{{space}}}}") for metric in OF_SPACES),
        *(panel_of(metric, where, "{{instance}}") for metric in OF_DAEMON),
    ]
    variables = [_variable("instance", "label_values(fairgv_build_info, instance)", is_many=True)]
    return board("FairGV hosts", "fairgv-hosts", variables, panels)


def _compared(where: str) -> Iterator[Panel]:
    def grown(name: str) -> str:
        return f"(increase(fairgv_vgpu_{name}_total{{{where}}}[1h]))"

    waits = f"sum by (le, instance, vgpu) (rate(fairgv_vgpu_wait_seconds_bucket{{{where}}}[$__rate_interval]))"
    yield Panel("shares", "Of the last minute.", [(f"fairgv_vgpu_share_ratio{{{where}}}", _ONE)], "percentunit")
    yield Panel(
        "received over due",
        "What each vGPU was charged over what was due to it in the last minute: 1 is fair.",
        [(f"fairgv_vgpu_received_ratio{{{where}}}", _ONE)],
    )
    yield Panel("waits for a turn", "Nine in ten are no longer.", [(f"histogram_quantile(0.9, {waits})", _ONE)], "s")
    yield Panel("device memory of vGPUs", "What each has.", [(f"fairgv_vgpu_memory_bytes{{{where}}}", _ONE)], "bytes")
    yield Panel(
        "refused and ended in an hour",
        "Programs and requests that were refused, and programs that were ended as their work kept others waiting.",
        [
            (f"sum by (instance, reason) {grown('refused')}", "{{instance}} {{reason}}"),
            (f"sum by (instance) {grown('timed_out')}", "{{instance}} timed out"),
        ],
    )
    yield Panel("vGPUs", "On each Gpu.", [(f"count by (instance, gpu) (fairgv_vgpu_info{{{where}}})", _ON_GPU)])


def vgpu() -> dict[str, Any]:
    """Each metric of one vGPU."""
    panels = [panel_of(metric, 'instance="$instance", vgpu="$vgpu"', "{{vgpu}}") for metric in OF_VGPUS]
    variables = [
        _variable("instance", "label_values(fairgv_vgpu_info, instance)"),
        _variable("vgpu", 'label_values(fairgv_vgpu_info{instance="$instance"}, vgpu)'),
    ]
    return board("FairGV vGPU", "fairgv-vgpu", variables, panels)


def board(title: str, uid: str, variables: Iterable[dict[str, Any]], panels: Iterable[Panel]) -> dict[str, Any]:
    """In Grafana's form, panels three in a row."""
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "title": title,
        "uid": uid,
        "tags": ["fairgv"],
        "editable": True,
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [source, *variables]},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, _IN_ROW)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }


def _variable(name: str, query: str, *, is_many: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": is_many,
        "includeAll": is_many,
    }


def table() -> Iterator[str]:
    """Lines of Markdown, a row for each metric."""
    yield from ("| name | labels | type | unit | what |", "|---|---|---|---|---|")
    for name, (help_, labels) in INFOS.items():
        yield f"| `{name}` | {', '.join(labels)} | gauge | | {help_} |"
    for metrics, labels in OF_ALL:
        for metric in metrics:
            its = ", ".join([*labels, *([metric.label] if metric.label else [])])
            yield f"| `{metric.name}` | {its} | {metric.kind} | {metric.unit} | {metric.help} |"


def page(text: str) -> str:
    """The page with its table made anew."""
    made = "\n".join(table())
    fresh, nr = _PLACE.subn(lambda place: f"{place[1]}\n\n{made}\n\n{place[2]}", text)
    if nr != 1:
        raise PageError(f"{PAGE.name} has {nr} places for the table")
    return fresh


def texts() -> Mapping[str, str]:
    """Path from the root of the source tree -> text."""
    boards = {"hosts": hosts(), "vgpu": vgpu()}
    return {
        **{f"dashboards/{name}.json": json.dumps(made, indent=1) + "\n" for name, made in boards.items()},
        f"docs/{PAGE.name}": page(PAGE.read_text()),
    }


def main(arguments: list[str] | None = None) -> int:
    return outputs.command("dashboards.generate", PAGE.name, texts, PageError, arguments)


if __name__ == "__main__":
    sys.exit(main())
