"""What the next daemon does with programs of one that died while it moved them."""

import os
from dataclasses import replace

from backend_host.restart.adopting import _living
from backend_host.restart.keeping import Item
from backend_host.restart.left import Left
from backend_host.restart.records import VGpuRecord
from backend_host.vgpu import VGpu
from tests.backend_host.move.travel import LIMIT_S, Travel
from tests.backend_host.move.waiting import is_dead


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
