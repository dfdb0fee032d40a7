"""The daemon's statistics as tables for people.

Each fits a terminal of 80 columns: names give way, and what does not fit beside them is in the long table alone. A row is one line.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from backend_host.entitlement import WHOLE
from backend_host.generated.counters import BOUNDS
from backend_host.ipc import Message
from backend_host.move.words import CHECKPOINT, REPLAY
from backend_host.sizes import format_count, format_size, format_time, format_times, format_uptime
from backend_host.walls.settings import WALLS

NO_VGPU = "no vGPU yet: fairgv-host attach DOMAIN, or fairgv-run -- PROGRAM"
NO_CLIENT = "no client"
_NOTHING = "-"
_LEAST_NAME = 8
_GAP = 2
_UUID_BEGIN = len("GPU-5c7a1234")
"""So much of it names a device."""


@dataclass(frozen=True)
class Column:
    """One of a table: `cell` makes its text of an entry. A name may be cut where the line is too short, words and figures are not. `is_long`:
    it is in the long table alone; `is_brief`: in the other one alone."""

    head: str
    cell: Callable[[Message], str]
    is_name: bool = False
    is_word: bool = False
    is_long: bool = False
    is_brief: bool = False


@dataclass(frozen=True)
class _Fitting:
    """A table as wide as the line. Names give way down to a few letters, then columns do, from the right."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._first(len(self.columns)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        nr = len(self.columns)
        while nr > 1 and self._least(nr) > options.max_width:
            nr -= 1
        yield self._first(nr)

    def _least(self, nr: int) -> int:
        """How wide the first so many columns are when names have given way."""
        widths = [max(cell_len(row[place]) for row in (self._heads, *self.rows)) for place in range(nr)]
        for place, column in enumerate(self.columns[:nr]):
            if column.is_name:
                widths[place] = min(widths[place], max(len(column.head), _LEAST_NAME))
        return sum(widths) + _GAP * (nr - 1)

    @property
    def _heads(self) -> list[str]:
        return [column.head for column in self.columns]

    def _first(self, nr: int) -> Table:
        made = plain_table()
        for column in self.columns[:nr]:
            is_left = column.is_name or column.is_word
            made.add_column(column.head, justify="left" if is_left else "right", no_wrap=not column.is_name)
        for row in self.rows:
            made.add_row(*map(printable, row[:nr]))
        return made


def plain_table() -> Table:
    """Without columns, and without lines around them."""
    return Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")


def table(columns: Sequence[Column], entries: Iterable[Message], *, is_long: bool = False) -> RenderableType:
    """One row an entry."""
    shown = [column for column in columns if not (column.is_brief if is_long else column.is_long)]
    return _Fitting(shown, [[column.cell(entry) for column in shown] for entry in entries])


def _device(entry: Message) -> str:
    return _NOTHING if entry["gpu_number"] is None else f"{entry['gpu_number']}: {entry['gpu_name']}"


def _request(entry: Message) -> str:
    return f"{entry['request']:g} %" if entry["request"] else _NOTHING


def _limit(entry: Message) -> str:
    return f"{entry['limit']:g} %" if entry["limit"] is not None and entry["limit"] < WHOLE else _NOTHING


def _class(entry: Message) -> str:
    """With its target, and the space that it is in. A daemon of an earlier release tells nothing of that."""
    words = [entry.get("vgpu_class") or _NOTHING, entry.get("qos") or ""]
    words += [f"in {entry['space']}"] if entry.get("space") else []
    return " ".join(filter(None, words))


def _quota(entry: Message) -> str:
    return format_size(entry["quota_bytes"]) if entry["quota_bytes"] else _NOTHING


def _recent(entry: Message, place: int) -> str:
    return _percent(list(entry["recent_shares"].values())[place])


def _when(window: str) -> str:
    """A window of `recent_shares`: its seconds, or `interval`, between two looks."""
    return f"the last {window} s" if window.isdigit() else f"the {window}"


def _percent(share: float | None) -> str:
    return _NOTHING if share is None else f"{share:.1%}"


def _state(gpu: Message) -> str:
    """Whether it serves programs, and vGPUs come to it. A daemon of an earlier release tells nothing of drained Gpus."""
    if gpu.get("failed"):
        return "failed"
    if gpu.get("is_drained"):
        return "drained"
    return "ok" if gpu["is_ready"] else "no worker"


def _moves(gpu: Message) -> str:
    """How programs can leave it and come to it. A daemon of an earlier release tells nothing of that."""
    has_mover = gpu.get("has_mover")
    movers = [REPLAY] * bool(gpu.get("has_fast_moves")) + [CHECKPOINT] * bool(has_mover)
    return ", ".join(movers) or (_NOTHING if has_mover is None else "no")


def _demand(entry: Message) -> str:
    """A daemon of an earlier release tells nothing of that."""
    demand = entry.get("demand")
    return _NOTHING if demand is None else f"{demand:.0%}"


def printable(text: str) -> Text:
    """A cell of one line. Names are others' choice: brackets in them are no markup, and what is no printable character is not sent to a
    terminal."""
    return Text("".join(c if c.isprintable() else "?" for c in text), no_wrap=True, overflow="ellipsis")


def folded(text: str) -> Text:
    """The same, in as many lines as it needs."""
    return Text("".join(c if c.isprintable() else "?" for c in text))


def status(message: Message, *, is_long: bool = False) -> RenderableType:
    """Gpus, vGPUs and clients."""
    remarks = notes(message)
    parts: list[RenderableType] = [*waiting(message)]
    for gpu in message["gpus"]:
        parts += [_head(gpu, message["uptime_ns"]), Text(use(gpu))]
    return Group(
        *parts,
        Text(""),
        vgpus(message["vgpus"], is_long=is_long, has_one_gpu=len(message["gpus"]) == 1)
        if message["vgpus"]
        else Text(no_vgpu(message)),
        Text(""),
        clients(message["vgpus"], is_long=is_long),
        *([Text(""), *remarks] if remarks else []),
    )


def _head(gpu: Message, uptime_ns: int) -> Text:
    return Text(
        f"GPU {gpu['number']}: {gpu['name']} ({gpu['kind']}, {format_size(gpu['memory_bytes'])}), policy {gpu['policy']}, "
        f"slice {format_time(gpu['slice_ns'])}, up {format_uptime(uptime_ns)}, walls: {_walls(gpu['walls'])}"
    )


def use(gpu: Message) -> str:
    """How much a Gpu was used lately, and its memory is now."""
    windows = list(gpu["recent_shares"])
    shares = [f"{_percent(gpu['recent_shares'][window])} of {_when(window)}" for window in (windows[0], windows[-1])]
    return f"in use {', '.join(shares)}; demand {_demand(gpu)}; {format_size(gpu['used_bytes'])} taken"


def notes(message: Message) -> list[Text]:
    """What there is to say beside the tables, a sentence each."""
    entries = message["vgpus"]
    return [
        *out(message["gpus"]),
        *spaces(message.get("spaces", [])),
        *held_back(entries),
        *displaced(entries),
        *large_launches(entries),
        *gave_way(entries),
        *late_work(entries),
        *debts(message["debts"]),
    ]


def no_vgpu(message: Message) -> str:
    """In place of vGPUs where there are none. While the daemon waits it refuses what would make one."""
    return "no vGPU" if waiting(message) else NO_VGPU


def waiting(message: Message) -> list[Text]:
    """Why no program is served, if none is, and what else is not; an earlier release's daemon tells nothing of that."""
    lines = [message.get("waits_for", ""), *message.get("troubles", ())]
    return [Text(line, style="bold") for line in lines if line]


def _walls(names: Sequence[str]) -> str:
    missing = [wall for wall in WALLS if wall not in names]
    return f"all but {', '.join(missing)}" if missing else "all"


GPUS = (
    Column("GPU", lambda gpu: str(gpu["number"])),
    Column("name", lambda gpu: gpu["name"], is_name=True),
    Column("UUID", lambda gpu: gpu["uuid"][:_UUID_BEGIN], is_word=True, is_brief=True),
    Column("UUID", lambda gpu: gpu["uuid"], is_word=True, is_long=True),
    Column("PCI", lambda gpu: gpu["pci_bus_id"], is_word=True, is_long=True),
    Column("memory", lambda gpu: format_size(gpu["memory_bytes"])),
    Column("taken", lambda gpu: format_size(gpu["used_bytes"])),
    Column("policy", lambda gpu: gpu["policy"], is_word=True),
    Column("slice", lambda gpu: format_time(gpu["slice_ns"]), is_long=True),
    Column("preempts", lambda gpu: "yes" if gpu["preempts"] else "no", is_word=True, is_long=True),
    Column("demand", _demand),
    Column("state", _state, is_word=True),
    Column("moves", _moves, is_word=True, is_long=True),
    Column("last 60 s", lambda gpu: _recent(gpu, -1), is_long=True),
    Column("GPU time", lambda gpu: format_time(gpu["used_ns"]), is_long=True),
    Column("vGPUs", lambda gpu: ", ".join(gpu["vgpus"]) or "none", is_name=True),
)


def gpus(entries: Sequence[Message], *, is_long: bool = False) -> RenderableType:
    """One row a Gpu; below them why no vGPU comes to some; in the long table, why programs of some cannot move."""
    reasons = [*out(entries), *(unmoved(entries) if is_long else ())]
    return Group(table(GPUS, entries, is_long=is_long), *([Text(""), *reasons] if reasons else []))


def out(entries: Iterable[Message]) -> Iterator[Text]:
    """A line for each Gpu that has failed, and for each that is drained."""
    for gpu in entries:
        if gpu.get("failed"):
            yield folded(f"GPU {gpu['number']} has failed, until the daemon is started anew: {gpu['failed']}")
        if gpu.get("is_drained"):
            yield folded(
                f"GPU {gpu['number']} is drained: no vGPU comes to it until fairgv-host undrain {gpu['number']}"
            )


def unmoved(entries: Iterable[Message]) -> Iterator[Text]:
    """A line for each Gpu whose programs cannot move."""
    for gpu in entries:
        if gpu.get("why_no_mover"):
            which = "programs cannot move by checkpoint" if gpu.get("has_fast_moves") else "programs cannot move"
            yield folded(f"GPU {gpu['number']}: {which} to another Gpu: {gpu['why_no_mover']}")


def _vgpu_columns(windows: Sequence[str], *, has_one_gpu: bool) -> tuple[Column, ...]:
    """`windows`: how many seconds each recent share is of. `has_one_gpu`: the host has, and its number takes no room from names."""
    last = len(windows) - 1
    recent = [
        Column(_when(window).removeprefix("the "), partial(_recent, place=place), is_long=0 < place < last)
        for place, window in enumerate(windows)
    ]
    return (
        Column("vGPU", lambda vgpu: vgpu["name"], is_name=True),
        Column("kind", lambda vgpu: vgpu["kind"], is_word=True, is_long=True),
        Column("GPU", lambda vgpu: str(vgpu["gpu_number"]), is_long=has_one_gpu),
        Column("weight", lambda vgpu: str(vgpu["weight"])),
        Column("request", _request, is_long=True),
        Column("limit", _limit, is_long=True),
        Column("class", _class, is_word=True, is_long=True),
        Column("entitled", lambda vgpu: _percent(vgpu["entitled_share"])),
        *recent,
        Column("demand", _demand),
        Column("GPU time", lambda vgpu: format_time(vgpu["used_ns"]), is_long=True),
        Column("since start", lambda vgpu: _percent(vgpu["share"]), is_long=True),
        Column("memory", lambda vgpu: format_size(vgpu["memory_bytes"])),
        Column("quota", _quota, is_long=True),
        Column("region", lambda vgpu: format_size(vgpu["region_bytes"]), is_long=True),
        Column("turn", lambda vgpu: format_time(vgpu["turn_ns"]), is_long=True),
        Column("programs", lambda vgpu: str(len(vgpu["clients"]))),
        Column("so far", lambda vgpu: str(vgpu["totals"]["nr_clients"]), is_long=True),
    )


def vgpus(entries: Sequence[Message], *, is_long: bool = False, has_one_gpu: bool = False) -> RenderableType:
    """One row a vGPU: what it is entitled to among those that are active, and what it got."""
    if not entries:
        return Text(NO_VGPU)
    columns = _vgpu_columns(list(entries[0]["recent_shares"]), has_one_gpu=has_one_gpu)
    return table(columns, entries, is_long=is_long)


CLIENTS = (
    Column("vGPU", lambda client: client["vgpu"], is_name=True),
    Column("program", lambda client: client["program"], is_name=True),
    Column("worker", lambda client: str(client["worker_pid"])),
    Column("phase", lambda client: client["phase"], is_word=True, is_long=True),
    Column("calls", lambda client: str(client["nr_calls"])),
    Column("round trips", lambda client: str(client["nr_round_trips"]), is_long=True),
    Column("launches", lambda client: str(client["nr_launches"])),
    Column("refused", lambda client: str(client["nr_refused"]), is_long=True),
    Column("to device", lambda client: format_size(client["to_device_bytes"]), is_long=True),
    Column("back", lambda client: format_size(client["from_device_bytes"]), is_long=True),
    Column("memory", lambda client: format_size(client["memory_bytes"])),
    Column("GPU time", lambda client: format_time(client["gpu_ns"])),
    Column("demand", _demand),
)


def clients_of(entries: Sequence[Message]) -> list[Message]:
    """The guest programs that run now, each with its `vgpu`."""
    return [{**client, "vgpu": entry["name"]} for entry in entries for client in entry["clients"]]


def clients(entries: Sequence[Message], *, is_long: bool = False) -> RenderableType:
    """One row a guest program that runs now."""
    rows = clients_of(entries)
    return client_table(rows, is_long=is_long) if rows else Text(NO_CLIENT)


def client_table(rows: Sequence[Message], *, is_long: bool = False) -> RenderableType:
    """The same, of what `clients_of` found."""
    return table(CLIENTS, rows, is_long=is_long)


LISTED = (
    Column("name", lambda each: each["name"], is_name=True),
    Column("kind", lambda each: each["kind"], is_word=True, is_long=True),
    Column("state", lambda each: each["state"], is_word=True),
    Column("served", lambda each: "yes" if each["is_served"] else "no", is_word=True),
    Column("weight", lambda each: _NOTHING if each["weight"] is None else str(each["weight"])),
    Column("request", _request, is_long=True),
    Column("limit", _limit, is_long=True),
    Column("class", _class, is_word=True, is_long=True),
    Column("quota", _quota),
    Column("demand", _demand),
    Column("device", _device, is_name=True),
)


def listed(entries: Sequence[Message], *, is_long: bool = False) -> RenderableType:
    """One row a vGPU or a domain; below them why those that are not served are not."""
    if not entries:
        return Text(NO_VGPU)
    reasons = [folded(f"{each['name']}: {each['why_not']}") for each in entries if each["why_not"]]
    return Group(table(LISTED, entries, is_long=is_long), *([Text(""), *reasons] if reasons else []))


def spaces(entries: Sequence[Message]) -> Iterator[Text]:
    """A line for each space with a critical vGPU, and what is wrong with any."""
    for space in entries:
        if space["critical"]:
            p95 = space["slowdowns"].get("p95")
            slow = "no round compared yet" if p95 is None else f"p95 {p95:.2f}"
            missed = f"{space['nr_missed']} of {space['nr_rounds']} rounds missed it"
            yield folded(
                f"space {space['name']}: {space['critical']} is critical, target {space['qos']}: {slow}, {missed}"
            )
    yield from spaces_in_turns(entries)


def spaces_in_turns(entries: Iterable[Message]) -> Iterator[Text]:
    """A line for each space whose vGPUs cannot be together, and each that started anew."""
    for space in entries:
        if space["why_turns"]:
            yield folded(f"space {space['name']}: its vGPUs take turns as all do: {space['why_turns']}")
        if space["nr_faults"]:
            yield folded(
                f"space {space['name']}: started anew {format_times(space['nr_faults'])}, as the device served none of its programs any more"
            )


def held_back(entries: Sequence[Message]) -> Iterator[Text]:
    """A line for each vGPU whose limit kept its programs from a turn, and for each whose turns went on while others waited."""
    for entry in entries:
        if limited_ns := entry["totals"]["limited_ns"]:
            yield folded(f"{entry['name']}: held back by its limit for {format_time(limited_ns)}")
        if overuse_ns := entry["totals"]["overuse_ns"]:
            yield folded(f"{entry['name']}: had {format_time(overuse_ns)} beyond its turns while others waited")


def displaced(entries: Sequence[Message]) -> Iterator[Text]:
    """A line for each vGPU that has memory off the device, or waited for it. A daemon of an earlier release tells nothing of that."""
    for entry in entries:
        clients = entry["clients"]
        away = sum(max(0, each.get("linear_bytes", 0) - each.get("resident_bytes", 0)) for each in clients)
        waited_ns = entry["totals"].get("displaced_ns", 0)
        asleep = entry.get("nr_asleep", 0)
        said = ["is suspended"] if entry.get("is_suspended") else []
        said += [f"has {format_size(away)} of its memory in the host's"] if away else []
        said += [f"has the contexts of {asleep} of its {len(clients)} programs there"] if asleep else []
        said += [f"keeps contexts on the device: {entry['why_awake']}"] if entry.get("why_awake") else []
        said += [f"waits for its contexts: {entry['why_asleep']}"] if entry.get("why_asleep") else []
        said += [f"waited {format_time(waited_ns)} for its memory so far"] if waited_ns else []
        if said:
            yield folded(f"{entry['name']}: {', and '.join(said)}")


def large_launches(entries: Sequence[Message]) -> Iterator[Text]:
    """A line for each vGPU that had any: how many went in parts, what that took to prepare, and why the others went whole. Another for each
    whose kernels were taken off the device."""
    for entry in entries:
        totals = entry["totals"]
        if totals["nr_withdrawn"]:
            yield folded(
                f"{entry['name']}: taken off the device {format_times(totals['nr_withdrawn'])} in the midst of kernels"
            )
        if not totals["nr_sliced"] and not totals["whole"]:
            continue
        whole = ", ".join(f"{count} {why}" for why, count in sorted(totals["whole"].items())) or "none"
        yield folded(
            f"{entry['name']}: {format_count(totals['nr_sliced'], 'large launch')} in {format_count(totals['nr_parts'], 'part')}, "
            f"{format_count(totals['nr_variants'], 'kernel')} prepared in {format_time(totals['variant_ns'])}; whole: {whole}"
        )


def gave_way(entries: Sequence[Message]) -> Iterator[Text]:
    """A line for each vGPU whose kernels ended when their word asked them to. A daemon of an earlier release tells nothing of that."""
    for entry in entries:
        if counts := entry["totals"].get("nr_gave_way"):
            median, most = (_within(counts, permille) for permille in (500, 990))
            yield folded(f"{entry['name']}: gave way {format_times(sum(counts.values()))}, median {median}, p99 {most}")


def _within(counts: Mapping[str, int], permille: int) -> str:
    """How long so many of a thousand took at most, by counts of times by their length."""
    bounds = sorted(int(bound) for bound in counts if bound != "longer")
    so_far = itertools.accumulate(counts[str(bound)] for bound in bounds)
    for bound, nr in zip(bounds, so_far, strict=True):
        if nr * 1000 >= permille * sum(counts.values()):
            return f"at most {format_time(bound)}"
    return f"more than {format_time(int(BOUNDS['nr_gave_way'][-2]))}"


def late_work(entries: Sequence[Message]) -> Iterator[Text]:
    """What the watchdog and the auditor have to say."""
    for entry in entries:
        if entry["late_ns"]:
            yield folded(f"{entry['name']}: its work has kept others from the GPU for {format_time(entry['late_ns'])}")
        if entry["nr_timed_out"]:
            yield folded(f"{entry['name']}: {entry['nr_timed_out']} of its programs were ended for that")
        if entry["nr_expelled"]:
            yield folded(
                f"{entry['name']}: its programs were ended {format_times(entry['nr_expelled'])}, as {entry['expelled_for']}"
            )


def debts(entries: Sequence[Message]) -> Iterator[Text]:
    """A line for each user or domain whose kernels did not end."""
    for entry in entries:
        fate = "banned until fairgv-host unban" if entry["is_banned"] else f"owes {format_time(entry['debt_ns'])}"
        yield folded(f"{entry['debtor']}: work of it was ended {format_times(entry['nr_timed_out'])}; {fate}")
