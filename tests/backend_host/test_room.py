"""Room on the device, as workers count it in the page and as the daemon's pager gives it out: workers are played here."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from backend_host.worker._worker import ffi, lib

from backend_host.device.control import ControlPage
from backend_host.device.pager import Pager
from backend_host.device.readings import Keeps, Room
from backend_host.entitlement import Entitlement
from backend_host.grants import GrantKeeper
from scheduler.fair import FairQueuing
from tests.backend_host.grantees import attach

STEP = 2 << 20
CAPACITY = 64 * STEP
SECOND = 1_000_000_000


@pytest.fixture
def page() -> Iterator[ControlPage]:
    with ControlPage.create(6_000_000) as page:
        page.set_capacity(CAPACITY, 2 * CAPACITY)
        yield page


@dataclass
class Worker:
    """One of a vGPU, of its own where none is said."""

    page: ControlPage
    vgpu: int
    slot: int
    grantee: ffi.CData

    def allocates(self, nbytes: int) -> bool:
        return bool(lib.fgw_room_allocate(self.grantee, nbytes, 0))

    def claims(self, nbytes: int) -> bool:
        return bool(lib.fgw_room_claim(self.grantee, nbytes))

    def leaves(self, nbytes: int) -> None:
        lib.fgw_room_leave(self.grantee, nbytes)

    def refused(self, nbytes: int) -> None:
        lib.fgw_room_refuse(self.grantee, nbytes)

    def awaits(self, since_ns: int) -> None:
        lib.fgw_room_await(self.grantee, since_ns)

    def room(self) -> Room:
        [found] = [each for each in self.page.rooms() if each.slot == self.slot]
        return found

    def obeys(self) -> None:
        """Moves all at once that it is to move."""
        room = self.room()
        if room.resident_bytes > room.target_bytes:
            self.leaves(room.resident_bytes - room.target_bytes)
        else:
            assert self.claims(min(room.target_bytes, room.allocated_bytes) - room.resident_bytes)


def worker(page: ControlPage, vgpu: int | None = None) -> Worker:
    vgpu = page.vgpu_take() if vgpu is None else vgpu
    return Worker(page, vgpu, *attach(page, vgpu))


def test_no_worker_allocates_more_than_the_device_has_nor_all_more_than_they_may(page: ControlPage) -> None:
    one, two = worker(page), worker(page)
    for nbytes in (CAPACITY + 1, 1 << 62, (1 << 64) - 1):
        assert not one.allocates(nbytes)
    assert one.allocates(CAPACITY)
    assert not one.allocates(1)
    assert two.allocates(CAPACITY - STEP)
    page.set_capacity(CAPACITY, 2 * CAPACITY - STEP)
    assert not two.allocates(STEP)
    lib.fgw_room_deallocate(one.grantee, STEP)
    assert two.allocates(STEP)
    assert [each.room().allocated_bytes for each in (one, two)] == [CAPACITY - STEP, CAPACITY]


def test_what_is_placed_is_room_that_others_do_not_have(page: ControlPage) -> None:
    one, two = worker(page), worker(page)
    page.set_capacity(CAPACITY, CAPACITY + STEP)
    for nbytes in (CAPACITY + 1, 1 << 62, (1 << 64) - 1):
        assert not lib.fgw_room_place(one.grantee, nbytes)
        assert not lib.fgw_room_may_place(one.grantee, nbytes)
    assert one.room().other_bytes == 0
    assert lib.fgw_room_place(one.grantee, 4 * STEP)
    assert not one.allocates(CAPACITY - 3 * STEP), "all of it is one worker's"
    assert two.allocates(CAPACITY - 3 * STEP)
    assert not one.allocates(1)
    assert not lib.fgw_room_place(two.grantee, 1)
    assert not lib.fgw_room_may_place(two.grantee, 1)
    lib.fgw_room_unplace(one.grantee, STEP)
    assert lib.fgw_room_may_place(two.grantee, STEP)
    assert lib.fgw_room_place(two.grantee, STEP)
    assert [each.room().other_bytes for each in (one, two)] == [3 * STEP, STEP]
    assert [each.room().allocated_bytes for each in (one, two)] == [0, CAPACITY - 3 * STEP], "what may move"


def test_linear_memory_that_stays_is_counted_once(page: ControlPage) -> None:
    one, two = worker(page), worker(page)
    page.set_capacity(CAPACITY, CAPACITY)
    assert one.allocates(4 * STEP)
    assert one.claims(4 * STEP)
    lib.fgw_room_stay(one.grantee, 3 * STEP)
    room = one.room()
    assert (room.allocated_bytes, room.resident_bytes, room.other_bytes) == (STEP, STEP, 3 * STEP)
    assert not two.allocates(CAPACITY - 3 * STEP)
    assert two.allocates(CAPACITY - 4 * STEP)
    lib.fgw_room_count_placed(one.grantee, STEP)
    assert not lib.fgw_room_may_place(two.grantee, 0), "there is more than there may be"


def test_who_counts_too_much_takes_no_more_than_one_may(page: ControlPage) -> None:
    liar, other = worker(page), worker(page)
    page.set_capacity(0, 0)
    assert liar.allocates(1 << 62)
    page.set_capacity(CAPACITY, 2 * CAPACITY)
    assert liar.room().allocated_bytes == CAPACITY
    assert other.allocates(CAPACITY)
    assert not other.allocates(1)


def test_a_claim_stays_within_the_target(page: ControlPage) -> None:
    one = worker(page)
    assert one.allocates(8 * STEP)
    assert not one.claims(STEP), "a worker that was told nothing has no room"
    page.set_target(one.slot, 3 * STEP)
    assert one.claims(3 * STEP)
    assert not one.claims(1)
    assert one.room().resident_bytes == 3 * STEP
    page.set_target(one.slot, STEP)
    assert one.room().resident_bytes == 3 * STEP, "it is for the worker to go"
    page.set_capacity(0, 0)
    assert one.claims(STEP), "where nothing is short, all may come"


def test_a_death_leaves_nothing_behind(page: ControlPage) -> None:
    dead, other = worker(page), worker(page)
    page.set_target(dead.slot, CAPACITY)
    assert dead.allocates(CAPACITY)
    assert dead.claims(CAPACITY)
    dead.awaits(7)
    assert [each.vgpu for each in page.displaced()] == [dead.vgpu]
    page.repair(dead.slot)
    assert page.displaced() == []
    assert [each.slot for each in page.rooms()] == [other.slot]
    page.set_capacity(CAPACITY, CAPACITY)
    assert other.allocates(CAPACITY)


def test_who_waits_for_its_memory_is_active_to_the_policy(page: ControlPage) -> None:
    one, two = worker(page), worker(page)
    keeper = GrantKeeper(page, FairQueuing())
    for each in (one, two):
        keeper.join(each.vgpu, Entitlement(weight=1))
    assert lib.fgw_grant_enter(one.grantee, time.monotonic_ns())
    two.awaits(time.monotonic_ns())
    keeper.step(time.monotonic_ns())
    assert keeper.entitled_shares({one.vgpu: 0, two.vgpu: 0}) == {one.vgpu: 0.5, two.vgpu: 0.5}
    assert page.backlogged() == [], "it waits for no turn"


def test_the_pager_gives_room_out_and_takes_it_back(page: ControlPage) -> None:
    one, two = worker(page), worker(page)
    pager = Pager(page, CAPACITY, 2 * CAPACITY, 0.05)
    assert one.allocates(48 * STEP)
    assert two.allocates(48 * STEP)
    one.awaits(1)
    pager.look(0)
    one.obeys()
    one.awaits(0)
    assert one.room().resident_bytes == 48 * STEP
    assert two.room().target_bytes == 16 * STEP, "what is left of it is for the next one, ahead of its turn"
    two.obeys()
    two.awaits(1)
    pager.look(SECOND // 100)
    pager.look(10 * SECOND)
    assert two.room().target_bytes == 16 * STEP, "nothing has left yet"
    assert one.room().target_bytes == 16 * STEP
    one.leaves(8 * STEP)
    pager.look(10 * SECOND + 1)
    assert two.room().target_bytes == 24 * STEP
    one.obeys()
    pager.look(10 * SECOND + 2)
    two.obeys()
    assert [each.room().resident_bytes for each in (one, two)] == [16 * STEP, 48 * STEP]


def test_what_else_is_on_the_device_is_no_room(page: ControlPage) -> None:
    one = worker(page)
    assert one.allocates(32 * STEP)
    lib.fgw_room_fix(one.grantee, 5 * STEP)  # a context, say
    one.awaits(1)
    Pager(page, CAPACITY, 34 * STEP, 0.05).look(0)
    assert one.room().target_bytes < 32 * STEP
    lib.fgw_room_unfix(one.grantee, 5 * STEP)
    assert one.room().other_bytes == 0


def test_what_others_have_for_good_cannot_be_allocated(page: ControlPage) -> None:
    """It would be waited for, for ever."""
    one, two = worker(page), worker(page)
    pager = Pager(page, CAPACITY, CAPACITY, 0.05)
    lib.fgw_room_fix(one.grantee, 20 * STEP)
    pager.look(0)
    assert not two.allocates(CAPACITY - 19 * STEP)
    assert two.allocates(CAPACITY - 20 * STEP)
    assert not two.allocates(STEP)
    lib.fgw_room_unfix(one.grantee, 20 * STEP)
    pager.look(1)
    assert two.allocates(20 * STEP)


def test_what_workers_of_a_vgpu_share_is_counted_once(page: ControlPage) -> None:
    """Until the last of them has it no more, whoever made it and whoever dies."""
    vgpu = page.vgpu_take(0)
    one, two, three = (worker(page, vgpu) for _ in range(3))
    page.set_capacity(CAPACITY, CAPACITY)
    other = worker(page)
    assert one.allocates(40 * STEP)
    lib.fgw_share_join(one.grantee, 77, 40 * STEP)
    assert not lib.fgw_room_allocate(two.grantee, 40 * STEP, 78), "that is other memory"
    assert not lib.fgw_room_allocate(two.grantee, 39 * STEP, 77), "nor is it of another size"
    assert lib.fgw_room_allocate(two.grantee, 40 * STEP, 77)
    assert lib.fgw_room_allocate(three.grantee, 40 * STEP, 77)
    assert page.counted_again(vgpu) == 80 * STEP
    assert other.allocates(CAPACITY - 40 * STEP)
    assert not other.allocates(1)
    lib.fgw_share_leave(one.grantee, 77)
    lib.fgw_room_deallocate(one.grantee, 40 * STEP)
    assert page.counted_again(vgpu) == 40 * STEP
    assert not other.allocates(1)
    page.repair(two.slot)
    assert page.counted_again(vgpu) == 0
    assert not other.allocates(1), "one has it still"
    lib.fgw_share_leave(three.grantee, 77)
    lib.fgw_room_deallocate(three.grantee, 40 * STEP)
    assert other.allocates(40 * STEP)


def test_places_of_what_is_shared_are_had_again(page: ControlPage) -> None:
    vgpu = page.vgpu_take(0)
    one, two = worker(page, vgpu), worker(page, vgpu)
    page.set_capacity(CAPACITY, CAPACITY)
    for name in range(2, 3000):
        for each in (one, two):
            lib.fgw_share_join(each.grantee, name, 1)
        assert page.counted_again(vgpu) == 1
        lib.fgw_share_leave(one.grantee, name)
        if name % 2:
            lib.fgw_share_leave(two.grantee, name)
            continue
        page.repair(two.slot)
        page.worker_free(two.slot)
        two = worker(page, vgpu)
        assert page.counted_again(vgpu) == 0
    for name in range(4000, 4000 + 2000):
        for each in (one, two):
            lib.fgw_share_join(each.grantee, name, 1)
    assert page.counted_again(vgpu) == 1024, "beyond that each counts for itself"


def say(page: ControlPage, monkeypatch: pytest.MonkeyPatch, vgpu: int, keeps: Keeps) -> None:
    """The vGPU's workers say why their memory stays."""
    rooms = page.rooms

    def told() -> list[Room]:
        return [replace(each, keeps=keeps) if each.vgpu == vgpu else each for each in rooms()]

    monkeypatch.setattr(page, "rooms", told)


@pytest.mark.parametrize(("keeps", "is_placed"), [(Keeps.NOT, False), (Keeps.SHARED, False), (Keeps.SHARED, True)])
def test_what_workers_say_they_share_makes_no_room(
    page: ControlPage, monkeypatch: pytest.MonkeyPatch, keeps: Keeps, is_placed: bool
) -> None:
    """They were taken over. Who is told to have room that is not there waits for ever."""
    vgpu = page.vgpu_take(0)
    say(page, monkeypatch, vgpu, keeps)
    for _ in range(2):
        liar = worker(page, vgpu)
        lib.fgw_share_join(liar.grantee, 77, CAPACITY)
        if is_placed:
            lib.fgw_room_fix(liar.grantee, STEP)
        else:
            lib.fgw_room_hold(liar.grantee, STEP)
    assert page.counted_again(vgpu) == CAPACITY
    neighbours = [worker(page) for _ in range(2)]
    for each in neighbours:
        assert each.allocates(40 * STEP)
        each.awaits(1)
    Pager(page, CAPACITY, CAPACITY, 0.05).look(0)
    targets = [each.room().target_bytes for each in neighbours]
    assert sum(targets) <= CAPACITY, targets
    assert max(targets) >= 40 * STEP


@pytest.mark.parametrize("beside", [5 * STEP, 50 * STEP])
def test_what_programs_share_is_room_for_others_once(
    page: ControlPage, monkeypatch: pytest.MonkeyPatch, beside: int
) -> None:
    """Wherever it lies, and never more than may be of linear memory."""
    vgpu = page.vgpu_take(0)
    say(page, monkeypatch, vgpu, Keeps.SHARED)
    sharing = [worker(page, vgpu) for _ in range(2)]
    for each in sharing:
        assert lib.fgw_room_allocate(each.grantee, 10 * STEP, 77)
        lib.fgw_room_hold(each.grantee, 10 * STEP)
        lib.fgw_share_join(each.grantee, 78, 5 * STEP)
        lib.fgw_room_count_placed(each.grantee, 5 * STEP)
    other = worker(page)
    assert other.allocates(CAPACITY - 10 * STEP)
    other.awaits(1)
    Pager(page, CAPACITY, CAPACITY + beside, 0.05).look(0)
    assert other.room().target_bytes == CAPACITY - 10 * STEP


def test_what_may_stay_leaves_each_room_for_all_that_it_has(page: ControlPage) -> None:
    one, two = worker(page), worker(page)
    pager = Pager(page, CAPACITY, CAPACITY, 0.05)

    def is_spare(nbytes: int) -> bool:
        pager.look(0)
        assert not lib.fgw_room_is_spare(one.grantee, nbytes + 1)
        return bool(lib.fgw_room_is_spare(two.grantee, nbytes))

    assert is_spare(CAPACITY)
    assert one.allocates(48 * STEP)
    assert two.allocates(40 * STEP)
    assert is_spare(CAPACITY - 48 * STEP), "they take turns"
    lib.fgw_room_fix(two.grantee, 6 * STEP)
    assert is_spare(CAPACITY - 54 * STEP)
    lib.fgw_room_fix(one.grantee, 20 * STEP)
    assert is_spare(0)


def test_who_waits_for_more_than_there_is_stands_in_the_log(
    page: ControlPage, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = worker(page), worker(page)
    pager = Pager(page, CAPACITY, CAPACITY, 0.05)
    assert two.allocates(CAPACITY)
    two.awaits(1)
    pager.look(0)
    assert caplog.messages == [], "it gets its memory"
    lib.fgw_room_fix(one.grantee, 20 * STEP)
    for now_ns in range(1, 5):
        pager.look(now_ns)
    [said] = caplog.messages
    assert "waits for its memory, 128 MiB, and others have all but 88 MiB of the device for good" in said


def test_what_counts_against_a_quota_alone_takes_no_room(page: ControlPage) -> None:
    """What was asked for and is refused, say, or promised."""
    one = worker(page)
    assert lib.fgw_quota_take(one.grantee, 1 << 62)
    assert one.room().other_bytes == 0


def test_who_does_not_go_while_others_wait_is_ended(page: ControlPage) -> None:
    staying, waiting = worker(page), worker(page)
    ended: list[tuple[int, int]] = []
    pager = Pager(page, CAPACITY, 2 * CAPACITY, 0.05)
    pager.watch(10 * SECOND, lambda slot, stayed_ns: ended.append((slot, stayed_ns)))
    assert staying.allocates(CAPACITY)
    pager.look(0)
    staying.obeys()
    assert waiting.allocates(CAPACITY)
    pager.look(1 * SECOND)
    pager.look(30 * SECOND)
    assert ended == [], "nobody waits"
    waiting.awaits(1)
    for now_ns in range(31 * SECOND, 41 * SECOND, SECOND):
        pager.look(now_ns)
    assert ended == []
    pager.look(42 * SECOND)
    assert ended == [(staying.slot, 11 * SECOND)]


@pytest.mark.parametrize(("fixed", "is_ended"), [((16, 20, 0), True), ((16, 20, 4), True), ((2, 2, 33), False)])
def test_of_those_who_have_so_much_for_good_that_none_has_room_one_is_ended(
    page: ControlPage, fixed: tuple[int, int, int], is_ended: bool
) -> None:
    """The one with most, and not where a third one has it that does not wait: nobody would have room then, either."""
    one, two, idle = worker(page), worker(page), worker(page)
    ended: list[int] = []
    pager = Pager(page, CAPACITY, CAPACITY, 0.05)
    pager.watch(10 * SECOND, lambda slot, _: ended.append(slot))
    for each in (one, two):
        assert each.allocates(CAPACITY // 2)
    for each, nr_steps in zip((one, two, idle), fixed, strict=True):
        lib.fgw_room_fix(each.grantee, nr_steps * STEP)
    one.awaits(1)
    for now_s in range(20):
        pager.look(now_s * SECOND)
    assert ended == [], "the other one works"
    two.awaits(1)
    for now_s in range(20, 30):
        pager.look(now_s * SECOND)
    assert ended == []
    pager.look(31 * SECOND)
    assert ended == [two.slot] * is_ended


def test_a_device_that_has_less_than_it_said_is_believed(page: ControlPage) -> None:
    """Two programs fit by what it said, and a third of the second has no room."""
    one, two = worker(page), worker(page)
    pager = Pager(page, CAPACITY, 2 * CAPACITY, 0.05)
    for each in (one, two):
        assert each.allocates(CAPACITY // 2)
        each.awaits(1)
    pager.look(0)
    one.obeys()
    assert two.claims(CAPACITY // 4)
    two.refused(CAPACITY // 4)
    pager.look(1)
    assert two.room().target_bytes >= CAPACITY // 2, "somebody may just have given it back"
    pager.look(SECOND)
    pager.look(SECOND + 1)
    targets = [each.room().target_bytes for each in (one, two)]
    assert sum(targets) <= CAPACITY * 3 // 4
    assert max(targets) >= CAPACITY // 2, "one of them can go on"
    two.refused(0)
    for now_ns in range(20 * SECOND, 500 * SECOND, 11 * SECOND):
        pager.look(now_ns)
    assert sum(each.room().target_bytes for each in (one, two)) >= CAPACITY - STEP, "later it is tried again"
