"""The boards are as Grafana reads them: no Grafana is here to ask. board.schema.json is its JSON model, as far as the boards use it; what ties
keys to each other stands here.

Wrong when: Grafana changes its model. It reads older ones by their schemaVersion.
"""

import copy
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from backend_host.metrics.catalogue import INFOS, OF_ALL
from dashboards import generate

SCHEMA = Draft202012Validator(json.loads((Path(__file__).parent / "board.schema.json").read_text()))
BOARDS = {"hosts": generate.hosts(), "vgpu": generate.vgpu()}
LABELS = {
    **{name: {*labels} for name, (_, labels) in INFOS.items()},
    **{metric.name: {*labels, metric.label} for metrics, labels in OF_ALL for metric in metrics},
}
WIDTH = 24
OF_GRAFANA = {"__rate_interval"}
Board = dict[str, Any]


def faults(board: Board) -> list[str]:
    """What Grafana would not read, or not show."""
    found = [f"{error.json_path}: {error.message}" for error in SCHEMA.iter_errors(board)]
    return found or [*places(board["panels"]), *variables(board), *legends(board["panels"])]


def repeated(what: str, names: Iterable[object]) -> Iterator[str]:
    """Those that stand there twice."""
    seen = set[object]()
    for name in names:
        if name in seen:
            yield f"{what} {name} is there twice"
        seen.add(name)


def places(panels: list[Board]) -> Iterator[str]:
    """What lies over something else, or leaves the board, or is told from nothing by its name."""
    yield from repeated("panel", (panel["id"] for panel in panels))
    for panel in panels:
        place = panel["gridPos"]
        if place["x"] + place["w"] > WIDTH:
            yield f"{panel['title']} leaves the board"
        yield from repeated(f"{panel['title']}: query", (target["refId"] for target in panel["targets"]))
    for one, other in itertools.combinations(panels, 2):
        a, b = one["gridPos"], other["gridPos"]
        if all(a[at] < b[at] + b[size] and b[at] < a[at] + a[size] for at, size in (("x", "w"), ("y", "h"))):
            yield f"{one['title']} and {other['title']} overlap"


def variables(board: Board) -> Iterator[str]:
    """Those that are used and not there, or there and not used, and those of many values that are compared with one."""
    listed = board["templating"]["list"]
    there = {variable["name"] for variable in listed}
    yield from repeated("variable", (variable["name"] for variable in listed))
    used = {name for names in re.findall(r"\$(?:\{(\w+)\}|(\w+))", json.dumps(board)) for name in names if name}
    for name in sorted((used - OF_GRAFANA) ^ there):
        yield f"variable {name} is {'used' if name in used else 'there'} alone"
    for variable in listed:
        if variable.get("multi") and f'="${variable["name"]}"' in json.dumps(board).replace("\\", ""):
            yield f"variable {variable['name']} has many values, and is compared with ="


def legends(panels: list[Board]) -> Iterator[str]:
    """Labels in a legend that series of its query do not have: Grafana shows nothing for them."""
    for panel in panels:
        for target in panel["targets"]:
            unknown = {*re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])} - labels(target["expr"])
            if unknown:
                yield f"{panel['title']}: the query has no {', '.join(sorted(unknown))}"


def labels(query: str) -> set[str]:
    """Of the series that a query has."""
    kept = re.search(r"\bby \(([^)]*)\)", query)
    if kept:
        return {name.strip() for name in kept[1].split(",")}
    [name] = [name for name in LABELS if re.search(rf"\b{name}\b", query)]
    return {"instance", *LABELS[name]}


@pytest.mark.parametrize("name", BOARDS)
def test_grafana_reads_them(name: str) -> None:
    assert faults(BOARDS[name]) == []


def test_the_schema_is_one() -> None:
    SCHEMA.check_schema(SCHEMA.schema)


def _unplaced(board: Board) -> None:
    del board["panels"][3]["gridPos"]


def _misspelt(board: Board) -> None:
    board["panels"][0]["fieldConfig"]["defaults"]["units"] = "s"


def _of_no_unit(board: Board) -> None:
    board["panels"][0]["fieldConfig"]["defaults"]["unit"] = "seconds"


def _of_another_source(board: Board) -> None:
    board["panels"][0]["targets"][0]["datasource"] = {"type": "prometheus", "uid": "prometheus"}


def _of_an_old_kind(board: Board) -> None:
    board["panels"][0]["type"] = "graph"


def _old(board: Board) -> None:
    board["schemaVersion"] = 16


def _wide(board: Board) -> None:
    board["panels"][2]["gridPos"]["w"] = 9


def _over_another(board: Board) -> None:
    board["panels"][0]["gridPos"]["h"] = 9


def _twice(board: Board) -> None:
    board["panels"][1]["id"] = board["panels"][0]["id"]


def _asked_twice(board: Board) -> None:
    target = board["panels"][0]["targets"][0]
    board["panels"][0]["targets"].append(target)


def _without_variable(board: Board) -> None:
    del board["templating"]["list"][1]


def _unused(board: Board) -> None:
    board["templating"]["list"].append({**board["templating"]["list"][1], "name": "gpu"})


def _compared(board: Board) -> None:
    target = board["panels"][0]["targets"][0]
    target["expr"] = target["expr"].replace("=~", "=")


def _of_no_label(board: Board) -> None:
    board["panels"][0]["targets"][0]["legendFormat"] = "{{host}}"


def _summed_away(board: Board) -> None:
    board["panels"][2]["targets"][0]["expr"] = "sum by (le) (fairgv_vgpu_wait_seconds_bucket{instance=~'$instance'})"


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (_unplaced, r"panels\[3\]: 'gridPos' is a required property"),
        (_misspelt, "'units' was unexpected"),
        (_of_no_unit, "'seconds' is not one of"),
        (_of_another_source, "datasource.uid"),
        (_of_an_old_kind, "'timeseries' was expected"),
        (_old, "16 is less than the minimum"),
        (_wide, "leaves the board"),
        (_over_another, "overlap"),
        (_twice, "panel 1 is there twice"),
        (_asked_twice, "query A is there twice"),
        (_without_variable, "variable instance is used alone"),
        (_unused, "variable gpu is there alone"),
        (_compared, "compared with ="),
        (_of_no_label, "the query has no host"),
        (_summed_away, "the query has no instance, vgpu"),
    ],
)
def test_a_mistake_would_be_found(plant: Callable[[Board], None], said: str) -> None:
    board = copy.deepcopy(BOARDS["hosts"])
    plant(board)
    assert re.search(said, "\n".join(faults(board)))
