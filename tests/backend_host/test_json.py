"""docs/json.md has the keys that `--json` prints, and no others: those of each object, and those of a daemon with a program."""

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from backend_host import hand_overs
from backend_host.cli import host_command
from backend_host.config import PACKAGE_ROOT
from backend_host.contexts import Contexts
from backend_host.counters import COUNTERS_TOML
from backend_host.debts import DebtStatistics
from backend_host.device.readings import HandOver, Why
from backend_host.fairness import Received
from backend_host.limits import Limits
from backend_host.listing import Listed
from backend_host.nvml.figures import Figures
from backend_host.service.events import Events
from backend_host.statistics import (
    ClientStatistics,
    CodeStatistics,
    CoschedulingStatistics,
    DaemonStatistics,
    DeviceStatistics,
    GpuStatistics,
    Totals,
    VGpuStatistics,
)
from backend_host.suspension import Suspended
from tests.end_to_end.host import Host, start_host, stop_host

PAGE = PACKAGE_ROOT / "docs/json.md"
COUNTED = "counters"


def tables() -> dict[str, list[list[str]]]:
    """Rows of the page, as cells, by heading."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("| `") and heading:
            found.setdefault(heading, []).append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def documented(heading: str) -> set[str]:
    """Keys of the objects under a heading."""
    rows = tables()
    counted = {row[0].strip("`"): row[1].split(", ") for row in rows[COUNTED]}
    own = [key for row in rows.get(heading, []) for key in re.findall(r"`(\w+)`", row[0])]
    assert len(own) == len(set(own)), "each key once"
    match heading:
        case "Gpu":
            return {*own, *documented("device")}
        case "client":
            return {*own, *(key for key, where in counted.items() if "clients" in where)}
        case "totals":
            return {key for key, where in counted.items() if "totals" in where}
    return set(own)


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("status", DaemonStatistics),
        ("compiled code", CodeStatistics),
        ("device", DeviceStatistics),
        ("Gpu", GpuStatistics),
        ("figures", Figures),
        ("vGPU", VGpuStatistics),
        ("limits", Limits),
        ("received", Received),
        ("coscheduling", CoschedulingStatistics),
        ("client", ClientStatistics),
        ("totals", Totals),
        ("debt", DebtStatistics),
        ("listed", Listed),
        ("suspended", Suspended),
        ("contexts", Contexts),
    ],
)
def test_each_object_has_the_keys_of_the_page(heading: str, kind: Any) -> None:
    assert documented(heading) == {field.name for field in fields(kind)}


def test_hand_overs_have_the_keys_of_the_page() -> None:
    told = hand_overs._told(HandOver(1, 2, None, 3, Why.SLICE, None, None), {})
    assert documented("hand-over") == told.keys()


def test_events_have_the_keys_of_the_page(tmp_path: Path) -> None:
    events = Events(tmp_path / "events.jsonl")
    events.tell("set", 0, "done", vgpu="vm")
    assert documented("event") == events.after(0)[0].keys()


def test_counters_are_told_in_their_own_words() -> None:
    helps = {
        entry["help"] for entry in tomllib.loads(COUNTERS_TOML.read_text()).values() if entry["seen_by"] != "nobody"
    }
    assert {row[2] for row in tables()[COUNTED]} == {*helps, "Programs so far."}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    running = start_host(tmp_path_factory.mktemp("host"), nr_warm_workers=0)
    child = running.start("spin", "600000")
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    yield running
    child.terminate()
    child.communicate()
    stop_host(running)


def printed(host: Host, *command: str) -> Any:
    answer = host_command(host.state_dir, *command, "--json")
    assert answer.stderr == ""
    return json.loads(answer.stdout)


def test_what_is_printed_has_the_keys_of_the_page(host: Host) -> None:
    status = printed(host, "status")
    [gpu], [vgpu], [client] = status["gpus"], status["vgpus"], status["vgpus"][0]["clients"]
    found = {
        "status": status,
        "compiled code": status["compiled_code"],
        "device": status["device"],
        "Gpu": gpu,
        "vGPU": vgpu,
        "limits": vgpu["limits"],
        "received": vgpu["received"],
        "coscheduling": vgpu["coscheduling"],
        "totals": vgpu["totals"],
        "client": client,
        "listed": printed(host, "list")[0],
    }
    assert {heading: set(each) for heading, each in found.items()} == {
        heading: documented(heading) for heading in found
    }
    assert printed(host, "devices")[0].keys() == gpu.keys()
    assert all(check.keys() == documented("check") for check in printed(host, "doctor"))
    configuration = printed(host, "config", "show")
    assert configuration.keys() == documented("configuration")
    assert all(setting.keys() == documented("setting") for setting in configuration["keys"].values())
    lines = host_command(host.state_dir, "grants", "--json").stdout.splitlines()
    assert {frozenset(json.loads(line)) for line in lines} == {frozenset(documented("hand-over"))}


def test_windows_are_seconds(host: Host) -> None:
    status = printed(host, "status")
    for each in (*status["gpus"], *status["vgpus"]):
        assert list(each["recent_shares"]) == ["1", "10", "60"]
        assert all(share >= 0 for share in each["recent_shares"].values())
    assert status["vgpus"][0]["entitled_share"] == 1.0, "it holds the GPU, and is the only one"
