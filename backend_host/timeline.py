"""A trace as a picture: the calls of each thread and the kernels of each stream over time, in the JSON form of Chrome's trace viewer, which
ui.perfetto.dev opens. `fairgv-run --trace FILE.json.gz` writes it, from the lines of the guest library (frontend_guest/base/trace.h).

Times are of the host's monotonic clock; a kernel's are those of events around its launch (frontend_guest/code/timeline.h).
"""

import ctypes
import gzip
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from backend_host.errors import FairGVError
from backend_host.whole_file import whole

SUFFIXES = (".json", ".json.gz")
_DEVICE = 1 << 22
"""Streams are shown as the threads of a process whose number is larger by that than any of Linux is."""
_CALL_FACTS = ("class", "result", "round_trips", "sent_bytes", "received_bytes")


def is_wanted(path: Path) -> bool:
    """Whether a file of this name is to be of this form."""
    return path.name.endswith(SUFFIXES)


def write(lines: Iterable[str], path: Path) -> None:
    """Writes the file, as a whole or not at all. Raises FairGVError when it cannot be written."""
    try:
        with whole(path) as place, _opened(place, is_packed=".gz" in path.suffixes) as file:
            file.write('{"displayTimeUnit": "ns", "traceEvents": [')
            for before, event in zip(itertools.chain([""], itertools.repeat(",")), events(lines), strict=False):
                file.write(f"{before}\n{json.dumps(event)}")
            file.write("\n]}\n")
    except OSError as error:
        raise FairGVError(f"cannot write {path}: {error.strerror}") from error


def _opened(path: Path, *, is_packed: bool) -> TextIO:
    return gzip.open(path, "wt") if is_packed else path.open("w")


def events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """
    An event of the viewer for each call and each kernel, and the names of processes, threads and streams before their first. A last line that a
    process did not finish is left out.
    """
    named: set[tuple[int, int]] = set()
    streams: dict[tuple[int, int], int] = {}
    readable = _demangler()
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if "kernel" in entry:
            stream = entry["stream"]
            ordinal = streams.setdefault((entry["pid"], stream), len(streams) + 1) if stream else 0
            where = {"pid": entry["pid"] + _DEVICE, "tid": ordinal}
            yield from _names(
                where, f"GPU, for {entry['pid']}", f"stream {ordinal}" if ordinal else "default stream", named
            )
            yield {
                **where,
                "name": readable(entry["kernel"]),
                "cat": "kernel",
                **_span(entry["begun_ns"], entry["time_ns"]),
                "args": {"symbol": entry["kernel"]},
            }
        elif "call" in entry:
            where = {"pid": entry["pid"], "tid": entry["thread"]}
            yield from _names(where, f"program {entry['pid']}", f"thread {entry['thread']}", named)
            yield {
                **where,
                "name": entry["call"],
                "cat": entry["class"],
                **_span(entry["at_ns"] - entry["time_ns"], entry["time_ns"]),
                "args": {fact: entry[fact] for fact in _CALL_FACTS},
            }


def _span(begun_ns: int, took_ns: int) -> dict[str, Any]:
    """In us, with what is finer behind the point."""
    return {"ph": "X", "ts": begun_ns / 1000, "dur": took_ns / 1000}


def _names(where: dict[str, int], process: str, thread: str, named: set[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    for kind, key, name in (
        ("process_name", (where["pid"], -1), process),
        ("thread_name", (where["pid"], where["tid"]), thread),
    ):
        if key not in named:
            named.add(key)
            yield {**where, "ph": "M", "name": kind, "args": {"name": name}}


def _demangler() -> Callable[[str], str]:
    """From a symbol to what stands in the program's source, where the host has the C++ library."""
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        free = ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return str
    demangle.restype = ctypes.c_void_p
    demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    free.argtypes = [ctypes.c_void_p]

    def readable(symbol: str) -> str:
        status = ctypes.c_int()
        found = demangle(symbol.encode(), None, None, ctypes.byref(status))
        if not found:
            return symbol
        text = ctypes.string_at(found).decode(errors="replace")
        free(found)
        return text

    return readable
