"""What the next daemon does with programs of one that died while it moved them."""

import os
from dataclasses import replace

import pytest

from backend_host.restart.adopting import _clear, _living
from backend_host.restart.keeping import Item
from backend_host.restart.left import Left
from backend_host.restart.records import VGpuRecord
from backend_host.vgpu import Place, VGpu
from tests.backend_host.move.travel import LIMIT_S, Travel
from tests.backend_host.move.waiting import is_dead
from tests.backend_host.swapping import filled
from tests.end_to_end.host import wait_until


def left_of(vgpu: VGpu) -> Left:
    """Its one worker, as the store has it."""
    [worker] = vgpu.caretaker.workers()
    assert worker.record is not None
    said = vgpu.gpu.workers._said.fd(worker.slot)
    fds = tuple(map(os.dup, (worker.process.pidfd, worker.socket.fileno(), said)))
    return Left.read([Item(worker.item, worker.record.written(), fds, has_life=True)])


def test_programs_that_are_nowhere_for_all_that_is_known_are_ended(travel: Travel) -> None:
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    [worker] = vgpu.caretaker.workers()
    left, record = left_of(vgpu), VGpuRecord.read(vgpu.record().written())
    assert _living(left, record, vgpu.gpu) == ([(worker.item, worker.record)], [])
    living, [ended] = _living(left, replace(record, is_changing=True), vgpu.gpu)
    assert (living, ended.pid, left.items) == ([], worker.process.pid, {})
    assert worker.is_ended.wait(LIMIT_S)
    assert is_dead(guest)


def test_where_it_was_and_what_it_used_is_written_down(travel: Travel) -> None:
    vgpu = travel.opened()
    travel.program(vgpu)
    assert travel.move(vgpu).stage == "done"
    written = vgpu.record().written()
    vgpu.earlier = replace(vgpu.earlier, used_ns=5, held_ns=6, nr_grants=7)
    record = VGpuRecord.read(vgpu.record().written())
    assert (record.gpu, record.made_on, record.is_changing) == (1, travel.gpus[0].device.uuid, False)
    assert record.earlier == {"used_ns": 5, "held_ns": 6, "nr_grants": 7}
    assert travel.notes.items[vgpu.item] == written
    left = left_of(vgpu)
    [(name, _)], _ = _living(left, record, vgpu.gpu)
    left.items.pop(name).close()


def test_what_was_used_at_a_place_that_was_just_left_is_counted_once(
    travel: Travel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the daemon that left it, and by the next one, which finds it without a record."""
    vgpu = travel.opened()
    before, index = vgpu.gpu, vgpu.index
    filled(travel.program(vgpu), 2)
    wait_until(lambda: before.charged_ns() > 0, "it is charged")
    left_behind: list[Place] = []
    with monkeypatch.context() as patch:
        patch.setattr(travel.registry, "leave_behind", lambda _, place: left_behind.append(place))
        assert travel.move(vgpu).stage == "done"
    used_ns = before.charged_ns()
    [account] = before.page.vgpus()
    assert account.used_ns == used_ns
    next_one = replace(before, retired_ns=travel.notes.items[before.item]["retired_ns"], behind_ns={})
    with monkeypatch.context() as patch:
        patch.setattr(before.page, "vgpu_free", lambda number: None)
        _clear(Left(names=frozenset(travel.notes.items)), next_one, ())
    assert next_one.retired_ns == used_ns
    travel.registry.leave_behind(vgpu, *left_behind)
    assert left_behind == [Place(before, index)]
    assert (before.retired_ns, before.charged_ns()) == (used_ns, used_ns)
    assert travel.notes.items[before.item]["retired_ns"] == used_ns
