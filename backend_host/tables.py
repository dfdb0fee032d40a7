"""The daemon's statistics as tables for people."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from backend_host.ipc import Message
from backend_host.sizes import format_size, format_time


def status(message: Message) -> RenderableType:
    """Device, vGPUs and clients."""
    device = message["device"]
    head = Text(
        f"{device['name']} ({device['kind']}, {format_size(device['memory_bytes'])}), policy {message['policy']}, "
        f"slice {format_time(message['slice_ns'])}, up {format_time(message['uptime_ns'])}"
    )
    return Group(head, vgpus(message["vgpus"]), clients(message["vgpus"]))


def vgpus(entries: Sequence[Message]) -> RenderableType:
    """One row a vGPU."""
    if not entries:
        return Text("no vGPU yet: fairgv-host attach DOMAIN, or fairgv-run -- PROGRAM")
    table = Table("vGPU", "kind", "weight", "GPU time", "share", "memory", "region", "clients", "calls", "round trips")
    for entry in entries:
        totals = entry["totals"]
        quota = f" of {format_size(entry['quota_bytes'])}" if entry["quota_bytes"] else ""
        _add_row(
            table,
            entry["name"],
            entry["kind"],
            str(entry["weight"]),
            format_time(entry["used_ns"]),
            f"{entry['share']:.1%}",
            format_size(entry["memory_bytes"]) + quota,
            format_size(entry["region_bytes"]),
            f"{len(entry['clients'])} of {totals['nr_clients']}",
            str(totals["nr_calls"]),
            str(totals["nr_round_trips"]),
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


def _add_row(table: Table, *cells: str) -> None:
    """Names are others' choice: brackets in them are no markup, and what is no printable character is not sent to a terminal."""
    table.add_row(*(Text("".join(c if c.isprintable() else "?" for c in cell)) for cell in cells))
