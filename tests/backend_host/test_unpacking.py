"""Structs of the page that are read at once: each member is where cffi has it, and what is made of them has all of its fields."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import pytest
from backend_host.worker._worker import ffi

from backend_host.device.control import ControlPage
from backend_host.device.unpacking import Unpacking, made_of
from backend_host.statistics import ClientStatistics, Totals
from tests.backend_host.grantees import attach

KINDS = ("struct fgw_worker_reading", "struct fgw_vgpu_reading")


def counting(kind: str) -> ffi.CData:
    """One whose bytes differ from their neighbours."""
    data = ffi.new(f"{kind} *")
    ffi.memmove(data, bytes(number * 7 % 251 + 1 for number in range(ffi.sizeof(kind))), ffi.sizeof(kind))
    return data


def members(data: ffi.CData, kind: ffi.CType) -> dict[str, object]:
    """By cffi, one by one."""
    found: dict[str, object] = {}
    for name, field in kind.fields:
        if field.type.kind == "struct":
            found |= members(getattr(data, name), field.type)
        elif field.type.kind == "array" and field.type.item.cname == "char":
            found[name] = bytes(ffi.buffer(getattr(data, name)))
        elif field.type.kind == "array":
            found[name] = tuple(getattr(data, name))
        else:
            found[name] = getattr(data, name)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_member_is_read_as_cffi_reads_it(kind: str) -> None:
    data, unpacking = counting(kind), Unpacking(kind)
    ones, arrays = unpacking.ones(data), unpacking.arrays(data)
    assert not ones.keys() & arrays.keys()
    assert {**ones, **arrays} == members(data, ffi.typeof(kind))


def test_structs_of_an_array_are_read_one_behind_the_other() -> None:
    kind, readings = "struct fgw_demand_reading", ffi.new("struct fgw_demand_reading[3]")
    for number, reading in enumerate(readings):
        reading.slot, reading.waited_ns = number, number << 40
    found = list(Unpacking(kind).each(readings, 2))
    assert found == [tuple(members(readings[number], ffi.typeof(kind)).values()) for number in range(2)]


def test_arrays_of_zeros_are_left_out() -> None:
    data, unpacking = ffi.new("struct fgw_worker_reading *"), Unpacking("struct fgw_worker_reading")
    assert unpacking.arrays(data) == {}
    data.counters.nr_waits[3] = 4
    assert unpacking.arrays(data) == {"nr_waits": tuple(data.counters.nr_waits)}


def test_a_type_that_it_does_not_know_is_an_error() -> None:
    with pytest.raises(KeyError):
        Unpacking("struct fgw_audit")


@dataclass(frozen=True)
class Pair:
    one: int
    other: str


def test_what_is_made_is_as_by_its_own_way() -> None:
    made = made_of(Pair, {"one": 1, "other": "2"})
    assert made == Pair(1, "2")
    assert hash(made) == hash(Pair(1, "2"))
    with pytest.raises(AttributeError):
        made.one = 2  # type: ignore[misc]


def names(data: object) -> Sequence[str]:
    return sorted(vars(data))


def test_readings_and_what_is_made_of_them_have_all_of_their_fields() -> None:
    with ControlPage.create(6_000_000) as page:
        vgpu = page.vgpu_take()
        slot, _ = attach(page, vgpu)
        account, worker = page.vgpu(vgpu), page.worker(slot)
        assert account is not None
        assert worker is not None
        client = ClientStatistics.of(worker)
        for each in (account, worker, client, Totals().plus([client])):
            assert names(each) == sorted(field.name for field in fields(each))
