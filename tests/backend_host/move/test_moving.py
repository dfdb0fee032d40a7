"""vGPUs that change their Gpu under programs that live: they go on there, and all that the daemon has of them is there, too."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from backend_host.worker._worker import ffi, lib

from backend_host.entitlement import Entitlement
from backend_host.errors import RefusedError
from backend_host.move.checkpointing import Outcome
from tests.backend_host.move.travel import LIMIT_S, MOVED, Travel, reading
from tests.backend_host.move.waiting import Wait, is_dead, kill
from tests.backend_host.swapping import STEP, allocate, filled, first_word, numbered, words
from tests.backend_host.test_sleep import VARIABLE
from tests.backend_host.worker_guest import Guest, kernel_image
from tests.end_to_end.host import wait_until

HERE, THERE = 0, 1
LEAST_LIMIT = 0.1
S = 1_000_000_000


def test_a_program_goes_on_there(travel: Travel) -> None:
    vgpu = travel.opened(entitlement=Entitlement(weight=3, quota_bytes=1 << 30, limit=50.0))
    guest = travel.program(vgpu)
    addresses = filled(guest, 5)
    before = reading(vgpu)
    [told] = travel.registry.statistics()
    move = travel.move(vgpu, THERE)
    assert (move.stage, move.reason, move.has_changed) == ("done", "", True)
    assert move.pause_s is not None
    assert move.moved_bytes == 5 * STEP
    assert vgpu.gpu is travel.gpus[THERE]
    travel.check_nothing_left({THERE: 1}, {THERE: 1})
    account = vgpu.gpu.page.vgpu(vgpu.index)
    assert account is not None
    assert (account.quota_bytes, account.limit_permille, account.nr_workers) == (1 << 30, 500, 1)
    assert vgpu.gpu.page.names[vgpu.index] == "web"
    after = reading(vgpu)
    assert (after.pid, after.nr_calls) == (before.pid, before.nr_calls)
    assert words(guest, addresses) == numbered(5)
    [now] = travel.registry.statistics()
    assert (now.gpu_number, now.weight, len(now.clients)) == (THERE, 3, 1)
    assert now.used_ns >= told.used_ns > 0
    assert now.totals.nr_calls > told.totals.nr_calls


def test_what_was_used_is_counted_where_it_was(travel: Travel) -> None:
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    filled(guest, 2)
    wait_until(lambda: travel.registry.statistics()[0].used_ns > 0, "it is charged")
    [told] = travel.registry.statistics()
    for to in (THERE, HERE, THERE):
        assert travel.move(vgpu, to).stage == "done"
    gpus, [now] = travel.registry.snapshot()
    assert now.used_ns >= told.used_ns > 0
    assert sum(gpu.used_ns for gpu in gpus) == now.used_ns
    account = vgpu.gpu.page.vgpu(vgpu.index)
    assert account is not None
    assert vgpu.earlier.used_ns == now.used_ns - account.used_ns
    assert vgpu.earlier.used_ns == travel.gpus[HERE].retired_ns + vgpu.gpu.retired_ns
    assert now.share == pytest.approx(account.used_ns / max(1, gpus[THERE].used_ns))
    travel.remove("web")
    gpus, _ = travel.registry.snapshot()
    assert sum(gpu.used_ns for gpu in gpus) == now.used_ns


def test_what_it_has_to_pay_back_at_its_limit_goes_along(travel: Travel) -> None:
    """Half a second at a thousandth: nothing that it submits there has a turn for 500 s, unless the limit goes."""
    vgpu = travel.opened(entitlement=Entitlement(limit=LEAST_LIMIT))
    guest = travel.program(vgpu)
    [worker] = vgpu.caretaker.workers()
    grantee = ffi.new("struct fgw_grantee *")
    assert lib.fgw_grantee_attach(grantee, vgpu.gpu.page.page, vgpu.index, worker.slot)
    lib.fgw_grant_charge_hold(grantee, S // 2)
    before = vgpu.gpu.page.vgpu(vgpu.index)
    for to in (THERE, HERE, THERE):
        assert travel.move(vgpu, to).stage == "done"
    account = vgpu.gpu.page.vgpu(vgpu.index)
    assert before is not None
    assert account is not None
    assert account.limited_until_ns == before.limited_until_ns > time.monotonic_ns() + 300 * S
    assert account.back_ns > account.limited_until_ns
    address = allocate(guest, STEP)
    guest.cast_off("cuMemsetD32Async", dstDevice=address, ui=9, N=1, hStream=0)
    held_back_ns = reading(vgpu).limited_ns
    wait_until(lambda: reading(vgpu).limited_ns > held_back_ns, "it is held back there")
    assert not reading(vgpu).is_waiting
    travel.registry.change("web", {"limit": 100.0})
    assert first_word(guest, address) == 9


def test_there_and_back_with_several_programs(travel: Travel) -> None:
    vgpu = travel.opened()
    programs = [travel.program(vgpu, client) for client in range(3)]
    addresses = [filled(guest, 2) for guest in programs]
    beside = travel.program(travel.opened("other", gpu=THERE))
    for to in (THERE, HERE):
        assert travel.move(vgpu, to).stage == "done"
        assert [words(guest, mine) for guest, mine in zip(programs, addresses, strict=True)] == [numbered(2)] * 3
    beside.ok("cuCtxSynchronize")
    travel.check_nothing_left({HERE: 1, THERE: 1}, {HERE: 3, THERE: 1})


def test_the_host_has_room_for_what_comes_until_it_stands_and_for_no_more_than_a_device_has(
    travel: Travel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was taken over says what it likes, once the plan is made."""
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    work = Wait(guest)
    allowed: list[int] = []
    monkeypatch.setattr(vgpu.gpu.workers, "allow_memory", lambda _, more_bytes: allowed.append(more_bytes))
    move = travel.moves.start("web", "1")
    wait_until(lambda: move.stage == "leaving", "it leaves")
    before = allowed[-1]
    allocate(guest, STEP)
    wait_until(lambda: allowed[-1] == before + STEP, "there is room for it")
    [worker] = vgpu.caretaker.workers()
    said = worker.reading
    lie: dict[str, Any] = {"memory_bytes": 1 << 60}
    monkeypatch.setattr(worker, "reading", lambda: (now := said()) and replace(now, **lie))
    most = vgpu.gpu.device.memory_bytes + vgpu.region.region_bytes
    wait_until(lambda: allowed[-1] == most, "there is room for a whole device")
    lie.clear()
    work.end()
    assert move.wait(LIMIT_S)
    assert (move.stage, allowed) == ("done", sorted(set(allowed)))


def test_what_does_not_leave_by_itself_is_the_drivers_to_move(travel: Travel) -> None:
    """The plan knows, and it is told to who waits for the driver."""
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    before = travel.moves.plan("web", str(THERE)).pause_s
    assert guest.load(kernel_image(VARIABLE)).result == 0
    filled(guest, 1)
    fixed = reading(vgpu).fixed_bytes
    assert fixed >= 1 << 20
    assert travel.moves.plan("web", str(THERE)).pause_s > before
    assert travel.move(vgpu, THERE).stage == "done"
    assert travel.fixed_bytes == fixed


def test_its_worker_is_looked_after_there(travel: Travel) -> None:
    """It ends as any: its program hears of it, and all is given back."""
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    travel.move(vgpu, THERE)
    [worker] = vgpu.caretaker.workers()
    kill(worker)
    assert worker.is_ended.wait(LIMIT_S)
    assert is_dead(guest)
    travel.check_nothing_left({THERE: 1}, {})
    [told] = travel.registry.statistics()
    assert (told.totals.nr_clients, told.nr_worker_deaths) == (1, 1)
    assert told.totals.nr_calls > 0


def test_the_guest_sees_its_device_as_before(travel: Travel) -> None:
    """Also once it was reset, and when its quota is another one."""
    vgpu = travel.opened()
    travel.program(vgpu)
    facts = vgpu.region.facts
    assert facts == travel.gpus[HERE].device.facts
    assert travel.move(vgpu, THERE).stage == "done"
    assert vgpu.region.facts == facts
    vgpu.caretaker.renew()
    vgpu.region.announce()
    travel.program_after_reset(vgpu).ok("cuCtxSynchronize")
    assert vgpu.region.facts == facts
    travel.registry.change("web", {"quota_bytes": 1 << 30})
    travel.registry.change("web", {"quota_bytes": 0})
    assert vgpu.region.facts == facts
    assert vgpu.record().made_on == travel.gpus[HERE].device.uuid


def test_a_program_that_comes_meanwhile_waits_and_is_served_there(travel: Travel) -> None:
    vgpu = travel.opened()
    travel.program(vgpu)
    late: list[Guest] = []

    def change(pids: Sequence[int]) -> Outcome:
        late.append(travel.program(vgpu, 1, waits=True))
        return MOVED

    travel.outcome = change
    assert travel.move(vgpu, THERE).stage == "done"
    travel.begin(late[0])
    travel.check_nothing_left({THERE: 1}, {THERE: 2})


def test_without_a_program_it_changes_its_place_alone(travel: Travel) -> None:
    vgpu = travel.opened()
    travel.outcome = lambda pids: pytest.fail("nothing is on a device")
    assert travel.move(vgpu, THERE).stage == "done"
    travel.program(vgpu)
    travel.check_nothing_left({THERE: 1}, {THERE: 1})


def test_who_is_suspended_stays_so(travel: Travel) -> None:
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    addresses = filled(guest, 2)
    vgpu.gpu.page.set_suspended(vgpu.index, is_suspended=True)
    wait_until(lambda: reading(vgpu).resident_bytes == 0, "it has gone")
    assert travel.move(vgpu, THERE).stage == "done"
    assert (reading(vgpu).is_suspended, reading(vgpu).resident_bytes) == (True, 0)
    assert words(guest, addresses) == numbered(2)


def test_it_has_what_it_is_entitled_to_on_both_meanwhile(travel: Travel) -> None:
    vgpu = travel.opened(entitlement=Entitlement(request=60.0))
    travel.program(vgpu)

    def change(pids: Sequence[int]) -> Outcome:
        for gpu in ("0", "1"):
            with pytest.raises(RefusedError, match=r"GPU . has left: 40 %"):
                travel.opened("late", Entitlement(request=50.0, gpu=gpu))
        travel.registry.change("web", {"request": 70.0, "weight": 4, "limit": 80.0})
        travel.registry.rename("web", "shop")
        return MOVED

    travel.outcome = change
    move = travel.move(vgpu, THERE)
    assert (move.stage, move.reason) == ("done", "")
    assert travel.moves.find("shop") is move
    assert vgpu.gpu.page.names[vgpu.index] == "shop"
    account = vgpu.gpu.page.vgpu(vgpu.index)
    assert account is not None
    assert account.limit_permille == 800
    assert travel.opened("late", Entitlement(request=100.0), gpu=HERE)


def test_a_patient_worker_is_patient_there(travel: Travel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine stands still, and so does its beat."""
    vgpu = travel.opened()
    travel.program(vgpu)
    [worker] = vgpu.caretaker.workers()
    page = travel.gpus[THERE].page
    told: list[bool] = []
    set_patient = page.set_patient

    def note(slot: int, is_patient: bool) -> None:
        told.append(is_patient)
        set_patient(slot, is_patient)

    monkeypatch.setattr(page, "set_patient", note)
    worker.set_patient(True)
    assert travel.move(vgpu, THERE).stage == "done"
    assert told[0]


def test_a_move_is_not_told_of_another_vgpu_of_its_name(travel: Travel) -> None:
    move = travel.move(travel.opened(), THERE)
    travel.remove("web")
    assert travel.moves.find("web") is move
    travel.opened()
    assert travel.moves.find("web") is None


def test_boosts_are_carried_along(travel: Travel) -> None:
    vgpu = travel.opened()
    before = vgpu.gpu.coscheduler.statistics(vgpu.index)
    assert travel.move(vgpu, THERE).stage == "done"
    assert vgpu.gpu.coscheduler.statistics(vgpu.index) == before
    assert travel.gpus[HERE].coscheduler.statistics(0).way == "its machine is off"
