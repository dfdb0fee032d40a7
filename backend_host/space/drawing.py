"""Spaces as `fairgv-host space` shows them to people."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from backend_host.ipc import Message
from backend_host.tables import Column, folded, spaces_in_turns, table

NO_SPACE = "no space: fairgv-host start --space mps, then attach or fairgv-run with --space NAME"
_NOTHING = "-"


def _slowdown(space: Message, part: str) -> str:
    slowdown = space["slowdowns"].get(part)
    return _NOTHING if slowdown is None else f"{slowdown:.2f}"


def _split(space: Message) -> str:
    return _NOTHING if space["split"] is None else "({}, {})".format(*space["split"])


COLUMNS = (
    Column("space", lambda space: space["name"], is_name=True),
    Column("GPU", lambda space: str(space["gpu_number"])),
    Column("way", lambda space: space["way"], is_word=True),
    Column("critical", lambda space: space["critical"] or _NOTHING, is_name=True),
    Column("qos", lambda space: space["qos"] or _NOTHING),
    Column("split", _split),
    Column("p50", lambda space: _slowdown(space, "p50")),
    Column("p95", lambda space: _slowdown(space, "p95")),
    Column("p99", lambda space: _slowdown(space, "p99")),
    Column("missed", lambda space: f"{space['nr_missed']} of {space['nr_rounds']}"),
)


def shown(spaces: Sequence[Message]) -> RenderableType:
    """A row a space; below them what else there is to say of each."""
    if not spaces:
        return Text(NO_SPACE)
    return Group(
        table(COLUMNS, spaces),
        Text(""),
        *(folded(line) for space in spaces for line in _said(space)),
        *spaces_in_turns(spaces),
    )


def _said(space: Message) -> Iterator[str]:
    name = space["name"]
    if space["best_effort"]:
        progress = (
            ""
            if space["progress"] is None
            else f", which keeps {space['progress']:.0%} of its blocks while rounds last"
        )
        yield f"{name}: best effort: {', '.join(space['best_effort'])}{progress}"
    if space["nr_gated"]:
        waited = f"{space['nr_gated']} launches that cannot give way waited {space['gated_ns'] / 1e9:.3g} s for rounds to end"
        yield f"{name}: the gate: {waited}"
    if space["fair"]:
        yield f"{name}: fair: {', '.join(space['fair'])}"
    if space["critical"]:
        took = f"{space['out_of_turn']:.1%} of the last 10 s out of turn, of {space['most']:g} %"
        yield f"{name}: {space['critical']} took {took}"
    if space["search"]:
        yield f"{name}: the search {space['search']}: {space['why']}"
