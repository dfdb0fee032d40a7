"""Boards, alerts and the page of metrics: fresh, of metrics that there are, and right by Prometheus' own judge."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from backend_host.metrics.catalogue import INFOS, OF_ALL, OF_DAEMON, OF_DEVICES, OF_SPACES, OF_VGPUS
from cuda_api import outputs
from dashboards import generate
from dashboards.generate import PageError
from tests.promtool import needs_promtool, promtool

FOLDER = Path(generate.__file__).parent
METRICS = {metric.name: metric for metrics, _ in OF_ALL for metric in metrics}
HISTOGRAMS = {name for name, metric in METRICS.items() if metric.kind == "histogram"}
SERIES = {
    *METRICS,
    *INFOS,
    *(f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "sum", "count")),
} - HISTOGRAMS
NAMES = re.compile(r"fairgv_\w+")


def unknown(text: str) -> set[str]:
    """Names of metrics in it that there are not."""
    return {*NAMES.findall(text)} - SERIES


def board(name: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return made


def queries(name: str) -> list[str]:
    return [target["expr"] for panel in board(name)["panels"] for target in panel["targets"]]


def test_the_files_are_fresh() -> None:
    assert list(outputs.stale(generate.texts())) == []


@pytest.mark.parametrize("file", ["hosts.json", "vgpu.json", "alerts.yaml", "alerts_test.yaml"])
def test_they_name_metrics_that_there_are(file: str) -> None:
    text = (FOLDER / file).read_text()
    assert NAMES.search(text)
    assert unknown(text) == set()


def test_a_name_that_is_none_would_be_found() -> None:
    assert unknown("rate(fairgv_vgpu_gone_total[5m]) + fairgv_vgpu_wait_seconds + fairgv_vgpu_wait_seconds_sum") == {
        "fairgv_vgpu_gone_total",
        "fairgv_vgpu_wait_seconds",
    }


def test_the_page_names_metrics_that_there_are() -> None:
    text = generate.PAGE.read_text()
    assert unknown(text) - HISTOGRAMS == set()
    assert {name for name in (*METRICS, *INFOS) if f"| `{name}` |" not in text} == set()


def test_every_metric_of_a_vgpu_is_on_its_board() -> None:
    shown = " ".join(queries("vgpu"))
    assert {metric.name for metric in OF_VGPUS if metric.name not in shown} == set()
    shown = " ".join(queries("hosts"))
    assert {metric.name for metric in (*OF_DEVICES, *OF_SPACES, *OF_DAEMON) if metric.name not in shown} == set()


@pytest.mark.parametrize("name", ["hosts", "vgpu"])
def test_counters_are_rates(name: str) -> None:
    counters = [metric.name for metric in METRICS.values() if metric.kind == "counter"]
    for query in queries(name):
        for counter in counters:
            assert len(re.findall(rf"\b{counter}\b", query)) == len(
                re.findall(rf"(?:rate|increase)\({counter}\b", query)
            )


def test_a_page_without_a_place_for_the_table_is_named() -> None:
    with pytest.raises(PageError, match=r"metrics.md has 0 places for the table"):
        generate.page("# Metrics\n")


@needs_promtool
def test_alerts_are_right_and_do_what_they_say() -> None:
    assert promtool("check", "rules", "dashboards/alerts.yaml") == (
        0,
        "Checking dashboards/alerts.yaml\n  SUCCESS: 8 rules found\n\n",
    )
    status, said = promtool("test", "rules", "dashboards/alerts_test.yaml")
    assert status == 0, said


@needs_promtool
def test_queries_of_boards_are_promql(tmp_path: Path) -> None:
    """As rules of a file that promtool reads, with a number for Grafana's interval."""
    exprs = [query.replace("$__rate_interval", "5m") for name in ("hosts", "vgpu") for query in queries(name)]
    rules = [{"record": f"query:{number}", "expr": expr} for number, expr in enumerate(exprs)]
    path = tmp_path / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": "boards", "rules": rules}]}))  # JSON is YAML
    status, said = promtool("check", "rules", str(path))
    assert status == 0, said
