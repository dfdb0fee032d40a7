"""Tables for people: they fit 80 columns, show names as they are, and have what an operator looks for."""

import re
from dataclasses import asdict
from typing import Any

import pytest
from rich.console import Console, RenderableType

from backend_host import tables
from backend_host.ipc import Message
from backend_host.listing import Listed
from tests.backend_host.told import status_of

HOSTILE_NAMES = ["[red]x[/red]", "[/]", "[link=http://x]y", "a\x1b[2Jb", "\\[b]", "a\nb"]
WIDTH = 80
LONG_NAME = "a-name-that-is-as-long-as-names-may-be-which-is-64-letters-in-all"
MOST = 2**48


def rendered(what: RenderableType, width: int = 200) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def heads(table: RenderableType, width: int) -> list[str]:
    return re.split(r"\s{2,}", rendered(table, width).splitlines()[0].strip())


def at_its_widest(message: Message) -> Message:
    """Every name is long, and every figure has as many digits as it may get."""

    def widened(key: str, value: Any) -> Any:
        match value:
            case dict():
                return {inner: widened(inner, each) for inner, each in value.items()}
            case list():
                return [widened(key, each) for each in value]
            case bool() | None:
                return value
            case float():
                return 0.9999
            case int():
                return {"weight": 10_000, "number": 15, "gpu_number": 15}.get(
                    key, 10**10 if key.startswith("nr_") else MOST
                )
        return LONG_NAME if key in ("name", "program", "vgpus") else value

    found: Message = widened("", message)
    return found


def vgpu_of(message: Message, **more: object) -> Message:
    [vgpu] = message["vgpus"]
    return {**message, "vgpus": [{**vgpu, **more}]}


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_are_shown_as_they_are(name: str) -> None:
    shown = "".join(c if c.isprintable() else "?" for c in name)
    message = status_of(name=name, program=name)
    message["vgpus"][0]["totals"]["limited_ns"] = 10**9
    text = rendered(tables.status(message))
    assert text.count(shown) == 4, "as a vGPU, as the vGPU of a program, as a program, in a sentence"
    assert "[bold]device[/bold]" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("is_wide", [False, True])
def test_no_table_is_wider_than_a_terminal(is_wide: bool) -> None:
    message = at_its_widest(status_of()) if is_wide else status_of()
    listed = [
        asdict(
            Listed(LONG_NAME, "domain", "pmsuspended", False, 30 * "why ", 10_000, MOST, 99.9, 99.9, "", 15, "x" * 30)
        )
    ]
    shown = [
        tables.vgpus(message["vgpus"]),
        tables.clients(message["vgpus"]),
        tables.gpus(message["gpus"]),
        tables.listed(listed),
        tables.status(message),
    ]
    for each in shown:
        lines = rendered(each, WIDTH).splitlines()
        assert max(map(len, lines)) <= WIDTH
    for each in shown[:3]:
        head, *rows = rendered(each, WIDTH).splitlines()
        assert len(rows) == 1, "a row is one line"
        assert "…" not in head


@pytest.mark.parametrize("width", [76, 60, 40, 20])
def test_columns_give_way_before_names_are_gone(width: int) -> None:
    message = at_its_widest(status_of())
    for each in (tables.vgpus(message["vgpus"]), tables.clients(message["vgpus"]), tables.gpus(message["gpus"])):
        head, row = rendered(each, width).splitlines()
        assert len(head) <= width and len(row) <= width
        assert "a-name-" in row
    columns = [heads(tables.vgpus(message["vgpus"]), each) for each in (width, 200)]
    assert columns[0] == columns[1][: len(columns[0])], "from the right"


def test_figures_are_never_cut() -> None:
    row = rendered(tables.vgpus(at_its_widest(status_of())["vgpus"]), WIDTH).splitlines()[1]
    assert row.split()[1:] == ["15", "10000", "100.0%", "100.0%", "100.0%", "100%", "256", "TiB", "1"]
    assert row.startswith("a-name-"), "what is left of a name tells it from others"


def test_the_table_has_what_was_lately_and_the_long_one_what_was_ever() -> None:
    entries = status_of()["vgpus"]
    head, row = rendered(tables.vgpus(entries)).splitlines()
    assert head.split("  ")[0] == "vGPU"
    assert all(text in head for text in ("entitled", "last 1 s", "last 60 s", "programs"))
    assert row.split() == ["vm", "0", "2", "66.7%", "50.0%", "30.0%", "130%", "4", "KiB", "1"]
    head, row = rendered(tables.vgpus(entries, is_long=True), 400).splitlines()
    assert all(text in head for text in ("last 10 s", "since start", "GPU time", "quota", "limit"))
    assert all(text in row for text in ("40.0%", "25.0%", "1 s", "1 GiB"))


def test_names_have_the_room_of_the_only_gpus_number() -> None:
    names = ["web-server-1", "web-server-2"]
    message = status_of()
    message["vgpus"] = [{**message["vgpus"][0], "name": name, "memory_bytes": 2666} for name in names]
    assert [rendered(tables.status(message), WIDTH).count(name) for name in names] == [2, 2], "and as that of a program"
    message["gpus"] *= 2
    assert "vGPU          GPU  weight" in rendered(tables.status(message))
    assert "GPU  weight" in rendered(tables.status({**message, "gpus": message["gpus"][:1]}, is_long=True), 400)


def test_one_that_is_not_active_is_entitled_to_nothing_now() -> None:
    row = rendered(tables.vgpus(vgpu_of(status_of(), entitled_share=None)["vgpus"])).splitlines()[1]
    assert row.split()[3] == "-"


def test_how_much_each_gpu_was_used() -> None:
    sentence = "in use 90.0% of the last 1 s, 70.0% of the last 60 s; demand 130%; 4 KiB taken"
    assert sentence in rendered(tables.status(status_of()))


def test_a_daemon_of_an_earlier_release_tells_of_no_demand() -> None:
    [gpu] = status_of()["gpus"]
    del gpu["demand"]
    assert "; demand -; " in tables.use(gpu)


def test_the_table_of_gpus_has_what_one_chooses_by_and_the_long_one_all() -> None:
    [gpu] = status_of()["gpus"]
    assert heads(tables.gpus([gpu]), WIDTH) == [
        "GPU",
        "name",
        "UUID",
        "memory",
        "taken",
        "policy",
        "demand",
        "state",
        "vGPUs",
    ]
    long = rendered(tables.gpus([gpu], is_long=True), 400)
    assert all(text in long for text in (gpu["uuid"], gpu["pci_bus_id"], "6 ms", "preempts", "no", "70.0%"))


def test_why_a_domain_is_not_served() -> None:
    why = (
        "its definition names a region that another domain has, too: give each a name of its own, and define them anew"
    )
    entries = [
        asdict(Listed("db", "domain", "shut off", is_served=False, why_not=why)),
        asdict(Listed("web", "domain", "running", True, "", 2, 4 << 30, 0.0, 50.0, "", 1, "NVIDIA H100 80GB HBM3")),
    ]
    text = rendered(tables.listed(entries), WIDTH)
    rows = [line.split() for line in text.splitlines()]
    assert rows[0] == ["name", "state", "served", "weight", "quota", "demand", "device"]
    assert rows[1] == ["db", "shut", "off", "no", "-", "-", "-", "-"]
    assert rows[2] == ["web", "running", "yes", "2", "4", "GiB", "-", "1:", "NVIDIA", "H100", "80GB", "HBM3"]
    assert " ".join(f"db: {why}".split()) in " ".join(text.split())
    assert "50 %" in rendered(tables.listed(entries, is_long=True))


def test_why_no_program_is_served_stands_first() -> None:
    message: Message = {**status_of(), "vgpus": [], "waits_for": "3 programs are served by an earlier release"}
    lines = rendered(tables.status(message), WIDTH).splitlines()
    assert lines[0] == message["waits_for"]
    assert "no vGPU" in lines
    assert "fairgv-run" not in "".join(lines), "that is refused"


def test_nothing_to_show() -> None:
    empty: Message = {**status_of(), "vgpus": []}
    text = rendered(tables.status(empty))
    assert "fairgv-run" in text
    assert "no client" in text
    assert "fairgv-run" in rendered(tables.listed([]))


def test_memory_off_the_device_is_told() -> None:
    away = {"linear_bytes": 3 << 30, "resident_bytes": 1 << 30}
    entries: list[Message] = [
        {"name": "a", "clients": [away, away], "totals": {"displaced_ns": 1_500_000_000}},
        {"name": "b", "clients": [{}], "totals": {}},
        {"name": "c", "clients": [], "totals": {"displaced_ns": 2_000_000}},
    ]
    assert [str(line) for line in tables.displaced(entries)] == [
        "a: has 4 GiB of its memory in the host's, and waited 1.5 s for its memory so far",
        "c: waited 2 ms for its memory so far",
    ]


def test_kernels_that_gave_way_are_told() -> None:
    entries: list[Message] = [
        {"name": "a", "totals": {"nr_gave_way": {"100000": 1, "30000": 98, "longer": 1}}},
        {"name": "b", "totals": {"nr_gave_way": {"30000": 1, "longer": 2}}},
        {"name": "c", "totals": {"nr_gave_way": {}}},
        {"name": "d", "totals": {}},
    ]
    assert [str(line) for line in tables.gave_way(entries)] == [
        "a: gave way 100 times, median at most 30 us, p99 at most 100 us",
        "b: gave way 3 times, median more than 100 ms, p99 more than 100 ms",
    ]


def test_spaces_are_told_of_in_a_line_each_and_with_what_is_wrong() -> None:
    space = {"name": "web", "critical": "answers", "qos": "1.2", "slowdowns": {}, "nr_rounds": 0, "nr_missed": 0}
    space |= {"why_turns": "", "nr_faults": 0}
    told = {
        **space,
        "slowdowns": {"p50": 1.01, "p95": 1.084, "p99": 1.3},
        "nr_rounds": 200,
        "nr_missed": 3,
        "nr_faults": 2,
    }
    turns = {**space, "critical": "", "why_turns": "no MPS here"}
    assert [line.plain for line in tables.spaces([space, told, turns])] == [
        "space web: answers is critical, target 1.2: no round compared yet, 0 of 0 rounds missed it",
        "space web: answers is critical, target 1.2: p95 1.08, 3 of 200 rounds missed it",
        "space web: started anew 2 times, as the device served none of its programs any more",
        "space web: its vGPUs take turns as all do: no MPS here",
    ]
