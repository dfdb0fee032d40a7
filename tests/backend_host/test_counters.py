"""The table of counters: what it refuses, that its files are fresh, and what users see of it."""

from __future__ import annotations

import dataclasses
import os
import re

import pytest

from backend_host import counters, generate
from backend_host.counters import CountersError
from backend_host.device.control import ControlPage, ControlPageError
from backend_host.generated.counters import TotalCounters
from backend_host.statistics import ClientStatistics, Totals
from cuda_api import outputs
from cuda_api import table as calls
from cuda_api.value import Value

REASON = Value("reason", "Why.", "variants", enum=(("not", 0), ("too_large", 3)))
BASE = """
nr_calls = { unit = "count", keep = "sum", seen_by = "guest", help = "Calls." }
memory_bytes = { unit = "bytes", keep = "last", seen_by = "guest", help = "Memory." }
nr_whole = { unit = "count", keep = "sum", seen_by = "operator", help = "Whole.", each = "reason", room = 4 }
nr_parks = { unit = "count", keep = "sum", seen_by = "nobody", help = "Naps." }
"""
TIMES = """
nr_waits = { unit = "count", keep = "sum", seen_by = "operator", help = "Waits.", bounds_ns = [10, 1000], sum = "wait_ns" }
wait_ns = { unit = "ns", keep = "sum", seen_by = "operator", help = "Of all waits." }
"""


def test_the_files_are_fresh() -> None:
    assert list(outputs.stale(generate.texts())) == []


def test_who_sees_what() -> None:
    table = counters.from_text(BASE, (REASON,))
    assert [(counter.shown_name, counter.is_shown, counter.is_total) for counter in table] == [
        ("nr_calls", True, True),
        ("memory_bytes", True, False),
        ("reason", True, True),
        ("nr_parks", False, False),
    ]
    assert [counter.field.declaration() for counter in table][1:3] == [
        "uint64_t memory_bytes;",
        "uint32_t nr_whole[4];",
    ]


def test_times_are_counted_by_their_length() -> None:
    waits, _ = counters.from_text(TIMES, ())
    assert waits.words == ("10", "1000", counters.LONGER)
    assert waits.field.declaration() == "uint64_t nr_waits[3];"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[10, 1000]", "[1000, 10]", "nr_waits: bounds_ns = [1000, 10] are no times that grow"),
        ("[10, 1000]", "[10, 10]", "nr_waits: bounds_ns = [10, 10] are no times that grow"),
        ("[10, 1000]", "[]", "nr_waits: bounds_ns = [] are no times that grow"),
        ("[10, 1000]", "10", "nr_waits: bounds_ns = 10 are no times that grow"),
        ("[10, 1000]", '["10"]', "nr_waits: bounds_ns = ['10'] are no times that grow"),
        (', sum = "wait_ns"', "", "nr_waits: bounds_ns and sum stand together"),
        ('sum = "wait_ns"', 'sum = "waits_ns"', "nr_waits: sum = 'waits_ns' is no counter in ns"),
        ("bounds_ns =", 'each = "reason", room = 4, bounds_ns =', "nr_waits: it is by each or by bounds_ns"),
    ],
)
def test_a_mistake_about_times_stops_generation_too(old: str, new: str, message: str) -> None:
    assert TIMES.count(old) == 1
    with pytest.raises(CountersError, match=re.escape(message)):
        counters.from_text(TIMES.replace(old, new), (REASON,))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('unit = "bytes"', 'unti = "bytes"', "memory_bytes: 'unti' means nothing"),
        ('unit = "bytes"', 'unit = "byte"', "memory_bytes: unit = 'byte' is none of count, bytes, ns, CUresult"),
        ('unit = "bytes", ', "", "memory_bytes: unit = None is none of"),
        ('unit = "bytes"', 'unit = "ns"', "memory_bytes: no name of something in ns"),
        ('keep = "last"', 'keep = "latest"', "memory_bytes: keep = 'latest' is none of sum, last"),
        ('seen_by = "operator"', 'seen_by = "all"', "nr_whole: seen_by = 'all' is none of guest, operator, nobody"),
        ('help = "Memory."', 'help = "memory"', "memory_bytes: help = 'memory' is no sentence"),
        (', help = "Memory."', "", "memory_bytes: help = None is no sentence"),
        (", room = 4", "", "nr_whole: each and room stand together"),
        ('each = "reason"', 'each = "raeson"', "nr_whole: each = 'raeson' is no enumeration of cuda_api/calls.toml"),
        ("room = 4", "room = 3", "nr_whole: room = 3 is not for all of reason, or odd"),
        ("room = 4", "room = 5", "nr_whole: room = 5 is not for all of reason, or odd"),
        ("room = 4", 'room = "4"', "nr_whole: room = '4' is not for all of reason, or odd"),
        ("nr_parks", "nr_calls", "the table is no TOML"),
        ("nr_parks = {", "parks = {", "parks: no name of something in count"),
        ('nr_parks = { unit = "count", keep = "sum", seen_by = "nobody", help = "Naps." }', "nr_parks = 3", "no table"),
    ],
)
def test_a_mistake_stops_generation_with_its_place(old: str, new: str, message: str) -> None:
    assert BASE.count(old) == 1
    with pytest.raises(CountersError, match=re.escape(message)):
        counters.from_text(BASE.replace(old, new), (REASON,))


def test_two_counters_are_not_shown_under_one_name() -> None:
    twice = 'nr_other = { unit = "count", keep = "sum", seen_by = "guest", help = "Why.", each = "reason", room = 4 }'
    with pytest.raises(CountersError, match="reason is shown twice"):
        counters.from_text(BASE + twice, (REASON,))


def test_what_lies_elsewhere_is_another_layout() -> None:
    def layout(text: str) -> int:
        return counters.layout_hash(counters.from_text(text, (REASON,)))

    assert layout(BASE.replace("Calls.", "All calls.").replace("operator", "guest")) == layout(BASE)
    assert layout(BASE.replace("nr_parks", "nr_naps")) != layout(BASE)
    assert layout(BASE.replace("room = 4", "room = 6")) != layout(BASE)
    assert layout("\n".join(reversed(BASE.splitlines()))) != layout(BASE)


def test_a_page_of_another_layout_is_refused(control: ControlPage) -> None:
    layout = counters.layout_hash(counters.read(calls.read().values)).to_bytes(8, "little")
    decided = control.objects[0]
    offset = os.pread(decided, 64, 0).index(layout)
    os.pwrite(decided, bytes(8), offset)
    with control.for_worker(0, 0) as objects, pytest.raises(ControlPageError):
        ControlPage.open(objects, 0)
    os.pwrite(decided, layout, offset)
    with control.for_worker(0, 0) as objects:
        ControlPage.open(objects, 0).close()


def test_what_users_read_stands_where_it_stood() -> None:
    """Names and order of `status --json`. New ones go behind those of their kind; none of these moves or goes."""
    program = ["program", "client", "worker_pid", "nr_calls", "nr_round_trips", "nr_launches", "nr_refused"]
    program += ["to_device_bytes", "from_device_bytes", "memory_bytes", "gpu_ns", "last_error", "nr_sliced", "nr_parts"]
    program += ["nr_withdrawn", "nr_copies_beside", "nr_variants", "variant_ns", "whole"]
    of_one = {"program", "client", "worker_pid", "memory_bytes", "gpu_ns", "last_error"}
    names = [field.name for field in dataclasses.fields(ClientStatistics)]
    assert [name for name in names if name in program] == program
    totals = ["nr_clients", *(name for name in program if name not in of_one)]
    names = [field.name for field in dataclasses.fields(Totals)]
    assert [name for name in names if name in totals] == totals


def test_totals_add_up() -> None:
    one = ClientStatistics("a", 0, 1, nr_calls=2, memory_bytes=3, whole={"graph": 1})
    two = ClientStatistics("b", 1, 2, nr_calls=5, memory_bytes=7, whole={"graph": 2, "clusters": 4})
    totals = Totals().plus([one]).plus([two])
    assert totals == Totals(nr_clients=2, nr_calls=7, whole={"graph": 3, "clusters": 4})
    assert {field.name for field in dataclasses.fields(TotalCounters)} == {
        field.name for field in dataclasses.fields(Totals)
    } - {"nr_clients"}
