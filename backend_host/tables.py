"""The daemon's statistics as tables for people."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from backend_host.entitlement import WHOLE
from backend_host.ipc import Message
from backend_host.sizes import format_size, format_time
from backend_host.walls.settings import WALLS, Finding


def status(message: Message) -> RenderableType:
    """Gpus, vGPUs and clients."""
    heads = [
        Text(
            f"{gpu['name']} ({gpu['kind']}, {format_size(gpu['memory_bytes'])}), policy {gpu['policy']}, "
            f"slice {format_time(gpu['slice_ns'])}, up {format_time(message['uptime_ns'])}, walls: {_walls(gpu['walls'])}"
        )
        for gpu in message["gpus"]
    ]
    entries = message["vgpus"]
    return Group(
        *heads,
        vgpus(entries),
        clients(entries),
        *held_back(entries),
        *large_launches(entries),
        *late_work(entries),
        *debts(message["debts"]),
    )


def walls(findings: Sequence[Finding]) -> RenderableType:
    """One row a wall that workers are to be behind."""
    table = Table("wall", "here", "remedy")
    for finding in findings:
        _add_row(table, finding.wall, finding.reason or "yes", finding.remedy)
    return table


def _walls(names: Sequence[str]) -> str:
    missing = [wall for wall in WALLS if wall not in names]
    return f"all but {', '.join(missing)}" if missing else "all"


def gpus(entries: Sequence[Message]) -> RenderableType:
    """One row a Gpu."""
    table = Table("GPU", "name", "UUID", "PCI", "memory", "policy", "GPU time", "vGPUs")
    for entry in entries:
        _add_row(
            table,
            str(entry["number"]),
            entry["name"],
            entry["uuid"],
            entry["pci_bus_id"],
            format_size(entry["memory_bytes"]),
            entry["policy"],
            format_time(entry["used_ns"]),
            ", ".join(entry["vgpus"]) or "none",
        )
    return table


def vgpus(entries: Sequence[Message]) -> RenderableType:
    """One row a vGPU."""
    if not entries:
        return Text("no vGPU yet: fairgv-host attach DOMAIN, or fairgv-run -- PROGRAM")
    recent = "last " + ", ".join(f"{window} s" for window in entries[0]["recent_shares"])
    table = Table(
        *("vGPU", "kind", "GPU", "weight", "request", "limit", "GPU time", "share", recent),
        *("memory", "region", "clients"),
    )
    for entry in entries:
        quota = f" of {format_size(entry['quota_bytes'])}" if entry["quota_bytes"] else ""
        _add_row(
            table,
            entry["name"],
            entry["kind"],
            str(entry["gpu_number"]),
            str(entry["weight"]),
            f"{entry['request']:g} %" if entry["request"] else "-",
            f"{entry['limit']:g} %" if entry["limit"] < WHOLE else "-",
            format_time(entry["used_ns"]),
            f"{entry['share']:.1%}",
            " ".join(f"{share:.1%}" for share in entry["recent_shares"].values()),
            format_size(entry["memory_bytes"]) + quota,
            format_size(entry["region_bytes"]),
            f"{len(entry['clients'])} of {entry['totals']['nr_clients']}",
        )
    return table


def clients(entries: Sequence[Message]) -> RenderableType:
    """One row a guest program that runs now."""
    rows = [(entry["name"], client) for entry in entries for client in entry["clients"]]
    if not rows:
        return Text("no client")
    table = Table(
        "vGPU",
        "program",
        "worker",
        "calls",
        "round trips",
        "launches",
        "refused",
        "to device",
        "back",
        "memory",
        "GPU time",
    )
    for name, client in rows:
        _add_row(
            table,
            name,
            client["program"],
            str(client["worker_pid"]),
            str(client["nr_calls"]),
            str(client["nr_round_trips"]),
            str(client["nr_launches"]),
            str(client["nr_refused"]),
            format_size(client["to_device_bytes"]),
            format_size(client["from_device_bytes"]),
            format_size(client["memory_bytes"]),
            format_time(client["gpu_ns"]),
        )
    return table


def held_back(entries: Sequence[Message]) -> Iterator[Text]:
    """A line for each vGPU whose limit kept its programs from a turn, and for each whose turns went on while others waited."""
    for entry in entries:
        if limited_ns := entry["totals"]["limited_ns"]:
            yield Text(f"{entry['name']}: held back by its limit for {format_time(limited_ns)}")
        if overuse_ns := entry["totals"]["overuse_ns"]:
            yield Text(f"{entry['name']}: had {format_time(overuse_ns)} beyond its turns while others waited")


def large_launches(entries: Sequence[Message]) -> Iterator[Text]:
    """A line for each vGPU that had any: how many went in parts, what that took to prepare, and why the others went whole. Another for each
    whose kernels were taken off the device."""
    for entry in entries:
        totals = entry["totals"]
        if totals["nr_withdrawn"]:
            yield Text(f"{entry['name']}: taken off the device {totals['nr_withdrawn']} times in the midst of kernels")
        if not totals["nr_sliced"] and not totals["whole"]:
            continue
        whole = ", ".join(f"{count} {why}" for why, count in sorted(totals["whole"].items())) or "none"
        yield Text(
            f"{entry['name']}: {totals['nr_sliced']} large launches in {totals['nr_parts']} parts, "
            f"{totals['nr_variants']} kernels prepared in {format_time(totals['variant_ns'])}; whole: {whole}"
        )


def late_work(entries: Sequence[Message]) -> Iterator[Text]:
    """What the watchdog and the auditor have to say."""
    for entry in entries:
        if entry["late_ns"]:
            yield Text(f"{entry['name']}: its work has kept others from the GPU for {format_time(entry['late_ns'])}")
        if entry["nr_timed_out"]:
            yield Text(f"{entry['name']}: {entry['nr_timed_out']} of its programs were ended for that")
        if entry["nr_expelled"]:
            yield Text(
                f"{entry['name']}: its programs were ended {entry['nr_expelled']} times, as {entry['expelled_for']}"
            )


def debts(entries: Sequence[Message]) -> Iterator[Text]:
    """A line for each user or domain whose kernels did not end."""
    for entry in entries:
        fate = "banned until fairgv-host unban" if entry["is_banned"] else f"owes {format_time(entry['debt_ns'])}"
        yield Text(f"{entry['debtor']}: work of it was ended {entry['nr_timed_out']} times; {fate}")


def _add_row(table: Table, *cells: str) -> None:
    """Names are others' choice: brackets in them are no markup, and what is no printable character is not sent to a terminal."""
    table.add_row(*(Text("".join(c if c.isprintable() else "?" for c in cell)) for cell in cells))
