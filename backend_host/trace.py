"""What programs asked of the driver: reads what the guest's library writes under FAIRGV_TRACE and FAIRGV_COUNT.

    python -m backend_host.trace FILE...     a trace as one short line a call, files of counts as one table

Both kinds of file may come from a virtual machine: set the two variables there and copy the files. Their layout is that of
frontend_guest/base/trace.c and trace_counts.c.
"""

import argparse
import json
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from backend_host.errors import FairGVError
from backend_host.sizes import format_size, format_time
from backend_host.tables import Column, table

MAGIC = b"FairGV counts 1\n"
KINDS = {1: "call", 2: "slot", 3: "missing name", 4: "missing table"}
_HEAD = struct.Struct("<16sII104s")
_ENTRY = struct.Struct("<II56s8Q")
_READY = 2
_PLAIN_WIDTH = 140


class TraceError(FairGVError):
    """A file is neither a trace nor counts, or cannot be read."""


@dataclass(frozen=True)
class Count:
    """Sums of one call, of one slot of an export table, or of one name or table that was asked for in vain."""

    kind: str
    name: str
    nr_local: int = 0
    """answered in the guest"""
    nr_sent: int = 0
    """sent and not waited for"""
    nr_waited: int = 0
    """waited for"""
    nr_round_trips: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    time_ns: int = 0
    nr_errors: int = 0

    @property
    def nr(self) -> int:
        """How often."""
        return self.nr_local + self.nr_sent + self.nr_waited

    @property
    def call_class(self) -> str:
        """local, sent or waited, or several of them."""
        parts = {"local": self.nr_local, "sent": self.nr_sent, "waited": self.nr_waited}
        return "+".join(word for word, number in parts.items() if number)

    def plus(self, other: "Count") -> "Count":
        """Both together."""
        sums = {key: value + getattr(other, key) for key, value in asdict(self).items() if isinstance(value, int)}
        return replace(self, **sums)


def read_counts(paths: Iterable[Path]) -> list[Count]:
    """The sums of all these files, the longest time first; names and tables not found at the end."""
    found: dict[tuple[str, str], Count] = {}
    for path in paths:
        for count in _counts_of(path.read_bytes(), path):
            known = found.get((count.kind, count.name))
            found[count.kind, count.name] = count if known is None else known.plus(count)
    return sorted(found.values(), key=lambda count: (count.kind.startswith("missing"), -count.time_ns, count.name))


def _counts_of(data: bytes, path: Path) -> Iterator[Count]:
    if len(data) < _HEAD.size or not data.startswith(MAGIC):
        raise TraceError(f"{path} is no file of counts")
    nr_entries = min(_HEAD.unpack_from(data)[2], (len(data) - _HEAD.size) // _ENTRY.size)
    for index in range(nr_entries):
        state, kind, name, *sums = _ENTRY.unpack_from(data, _HEAD.size + index * _ENTRY.size)
        if state == _READY and kind in KINDS:
            count = Count(KINDS[kind], name.partition(b"\0")[0].decode(errors="replace"), *sums)
            if count.nr:
                yield count


def counts_json(counts: Sequence[Count]) -> list[dict[str, Any]]:
    """For programs: the fields of `Count`, times in ns, sizes in bytes."""
    return [{**asdict(count), "nr": count.nr, "class": call_class(count)} for count in counts]


def call_class(count: Count) -> str:
    """The class of a call; of something missing there is none."""
    return "" if count.kind.startswith("missing") else count.call_class


COLUMNS = (
    Column("call", lambda count: f"slot {count['name']}" if count["kind"] == "slot" else count["name"], is_word=True),
    Column("number", lambda count: str(count["nr"])),
    Column("time", lambda count: format_time(count["time_ns"])),
    Column("each", lambda count: format_time(count["time_ns"] // count["nr"])),
    Column("errors", lambda count: str(count["nr_errors"])),
    Column("class", lambda count: count["class"], is_word=True),
    Column("round trips", lambda count: str(count["nr_round_trips"])),
    Column("sent", lambda count: format_size(count["sent_bytes"])),
    Column("received", lambda count: format_size(count["received_bytes"])),
)


def counts_table(counts: Sequence[Count]) -> RenderableType:
    """For people: calls as rows, in as many columns as there is room for, then the names and the tables that were asked for in vain."""
    return Group(
        table(COLUMNS, [entry for entry in counts_json(counts) if not entry["kind"].startswith("missing")]),
        *(
            Text(f"{what} not found: {', '.join(names)}")
            for kind, what in (("missing name", "names"), ("missing table", "export tables"))
            if (names := [_printable(count.name) or "''" for count in counts if count.kind == kind])
        ),
    )


def print_counts(counts: Sequence[Count], stream: Any = None) -> None:
    """The table on a terminal, or as wide as it needs."""
    console = Console(file=stream or sys.stdout, markup=False, highlight=False)
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    console.print(counts_table(counts) if counts else "no call of the driver")


def trace_lines(lines: Iterable[str]) -> Iterator[str]:
    """A trace, one short line a call. A last line that a process did not finish is left out. Raises TraceError for lines that are none."""
    first_ns: int | None = None
    line = ""
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if not isinstance(entry, dict) or "at_ns" not in entry:
            continue
        first_ns = entry["at_ns"] if first_ns is None else first_ns
        yield f"{(entry['at_ns'] - first_ns) / 1e9:10.6f} {entry['pid']}/{entry['thread']} {_what(entry)}"
    if first_ns is None and line.endswith("\n"):
        raise TraceError("neither a trace nor a file of counts")


def _what(entry: dict[str, Any]) -> str:
    if "missing" in entry:
        return f"not found: {entry['missing'] or repr('')} (CUDA {entry['version']}, flags {entry['flags']})"
    if "kernel" in entry:
        return f"kernel {entry['kernel']}: stream {entry['stream']}, on the device for {format_time(entry['time_ns'])}"
    if "table" in entry:
        return f"export table {entry['table']}: {'found' if entry['found'] else 'refused'}"
    sizes = f"{entry['sent_bytes']} B out, {entry['received_bytes']} B back"
    travel = "" if entry["class"] == "local" else f", {entry['round_trips']} round trips, {sizes}"
    return f"{entry['call']}: {entry['result']}, {entry['class']}{travel}, {format_time(entry['time_ns'])}"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0, or 1 for a file that is neither."""
    parser = argparse.ArgumentParser(prog="python -m backend_host.trace", description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="counts as JSON")
    parser.add_argument("files", nargs="+", type=Path, help="traces, or files of counts (PREFIX.PID)")
    options = parser.parse_args(arguments)
    try:
        counted = [path for path in options.files if _is_counts(path)]
        if counted and options.json:
            print(json.dumps(counts_json(read_counts(counted)), indent=1))
        elif counted:
            print_counts(read_counts(counted))
        for path in (path for path in options.files if path not in counted):
            _print_trace(path)
    except BrokenPipeError:  # `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, TraceError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


def _print_trace(path: Path) -> None:
    with path.open(errors="replace") as lines:
        try:
            for line in trace_lines(lines):
                print(line)
        except TraceError as error:
            raise TraceError(f"{path} is {error}") from None


def _is_counts(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


if __name__ == "__main__":
    sys.exit(main())
