"""Records: what is written is read again, and whatever else is there is told from it."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_host.debts import Debts, DebtsRecord
from backend_host.entitlement import Entitlement
from backend_host.restart.record import Record, RecordError
from backend_host.restart.records import GpuRecord, PieceRecord, SessionRecord, VGpuRecord, WorkerRecord
from backend_host.statistics import Totals

VGPU = VGpuRecord(
    gpu=0,
    index=3,
    name="web",
    kind="domain",
    uid=0,
    entitlement=dataclasses.asdict(Entitlement(weight=3, limit=50.0)),
    region_bytes=1 << 24,
    shm_name="fairgv-web",
    has_bells=False,
    run=7,
    is_kept=False,
    nr_timed_out=1,
    nr_expelled=0,
    expelled_for="",
    refused={"clients": 2},
    nr_deaths=1,
    totals=dataclasses.asdict(Totals(nr_clients=4)),
    made_on="GPU-8d2f41a0",
    earlier={"used_ns": 1, "held_ns": 2, "nr_grants": 3},
    is_changing=False,
)
RECORDS = (
    VGPU,
    GpuRecord(0, "fairgv/served/x", 5, 6, 7, 8),
    WorkerRecord(0, 1, 2, 3, 4, "spin", "1-0-0", "GPU-0,GPU-1"),
    SessionRecord("web", is_answered=True),
    PieceRecord(0, 3, 1 << 30, 0, 1 << 24),
    DebtsRecord({"user 0": 1}, {"user 0": 2}, {"user 0": 3}),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("record", RECORDS)
def test_what_is_written_is_read_again(record: Record) -> None:
    assert type(record).read(json.loads(json.dumps(record.written()))) == record


@pytest.mark.parametrize("record", RECORDS)
def test_a_field_more_or_less(record: Record) -> None:
    written = record.written()
    with pytest.raises(RecordError, match="other fields"):
        type(record).read({**written, "more": 1})
    written.popitem()
    with pytest.raises(RecordError, match="other fields"):
        type(record).read(written)


@given(st.data())
def test_whatever_stands_in_a_field(data: st.DataObject) -> None:
    record = data.draw(st.sampled_from(RECORDS))
    written = record.written()
    written[data.draw(st.sampled_from(sorted(written)))] = data.draw(json_values)
    try:
        read = type(record).read(written)
    except RecordError:
        return
    assert type(record).read(read.written()) == read


@pytest.mark.parametrize(
    "changes",
    [
        {"index": 64},
        {"index": -1},
        {"index": True},
        {"kind": "nobody"},
        {"entitlement": {"weight": 0}},
        {"entitlement": {"weights": 1}},
        {"entitlement": {"gpu": []}},
        {"totals": {}},
        {"totals": {**VGPU.totals, "nr_clients": -1}},
        {"refused": {"clients": "many"}},
        {"name": "x" * 5000},
        {"region_bytes": 1 << 64},
    ],
)
def test_what_no_vgpu_is(changes: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        VGpuRecord.read({**VGPU.written(), **changes})


@pytest.mark.parametrize("changes", [{"slot": 256}, {"vgpu": 64}, {"client": 64}])
def test_what_no_worker_is(changes: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        WorkerRecord.read({**RECORDS[2].written(), **changes})


@pytest.mark.parametrize("changes", [{"nbytes": 0}, {"offset": 1 << 30}, {"window_bytes": 1 << 63}])
def test_what_no_piece_is(changes: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        PieceRecord.read({**RECORDS[4].written(), **changes})


def test_debts_go_on() -> None:
    debts, next_ones = Debts(), Debts()
    for _ in range(5):
        debts.add("user 7", 1000, 0)
    next_ones.recall(DebtsRecord.read(json.loads(json.dumps(debts.record().written()))))
    assert next_ones.is_banned("user 7")
    assert next_ones.left_ns("user 7", 0) == debts.left_ns("user 7", 0) > 0
