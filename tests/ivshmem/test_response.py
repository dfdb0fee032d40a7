"""Slots, chunks and free sets."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ivshmem.region import Wake, ffi, lib
from tests.end_to_end.host import wait_until

from .conftest import Guest

IDLE, WAITING, PARKED, DONE = 0, 1, 2, 3
SECOND = 10**9
LOOK_S, NR_LOOKS = 0.002, 25


def free_set_of(nr: int) -> Any:
    free_set = ffi.new("struct fgv_free_set *")
    lib.fgv_free_set_init(free_set, nr)
    return free_set


@pytest.mark.parametrize("nr", [1, 2, 63, 64, 65, 100, 1023, 1024])
def test_a_pool_gives_each_index_once(nr: int) -> None:
    free_set = free_set_of(nr)
    taken = [lib.fgv_free_set_take(free_set, 5) for _ in range(nr)]
    assert sorted(taken) == list(range(nr))
    assert taken[0] == 5 % nr, "the hint comes first"
    assert lib.fgv_free_set_take(free_set, 0) == -1
    lib.fgv_free_set_give(free_set, nr - 1)
    assert lib.fgv_free_set_take(free_set, 0) == nr - 1


def test_odd_pools() -> None:
    assert lib.fgv_free_set_take(free_set_of(0), 0) == -1
    free_set = free_set_of(5000)
    assert free_set.nr == lib.FGV_MAX_RESPONSES
    small = free_set_of(3)
    lib.fgv_free_set_give(small, 3)
    lib.fgv_free_set_give(small, 2**32 - 1)
    assert sorted(lib.fgv_free_set_take(small, 2**32 - 1) for _ in range(4)) == [-1, 0, 1, 2]


@given(nr=st.integers(1, 1024), steps=st.lists(st.tuples(st.booleans(), st.integers(0, 2**32 - 1)), max_size=300))
def test_a_pool_is_a_set(nr: int, steps: list[tuple[bool, int]]) -> None:
    free_set = free_set_of(nr)
    taken: set[int] = set()
    for is_take, number in steps:
        if is_take or not taken:
            index = lib.fgv_free_set_take(free_set, number)
            assert (index == -1) == (len(taken) == nr)
            assert index not in taken
            assert index < nr
            if number % nr not in taken and index != -1:
                assert index == number % nr
            taken.update({index} - {-1})
        else:
            index = sorted(taken)[number % len(taken)]
            lib.fgv_free_set_give(free_set, index)
            taken.remove(index)


def test_threads_never_share_an_index() -> None:
    free_set = free_set_of(70)
    owners: list[int] = [0] * 70
    clashes: list[int] = []

    def work(me: int) -> None:
        for _ in range(3000):
            index = lib.fgv_free_set_take(free_set, me * 17)
            if owners[index] != 0:
                clashes.append(index)
            owners[index] = me
            if owners[index] != me:
                clashes.append(index)
            owners[index] = 0
            lib.fgv_free_set_give(free_set, index)

    threads = [threading.Thread(target=work, args=(me,)) for me in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clashes == []
    assert sorted(lib.fgv_free_set_take(free_set, 0) for _ in range(70)) == list(range(70))


@pytest.mark.parametrize("wake", list(Wake))
@pytest.mark.parametrize("spin_ns", [0, 10_000, 600 * SECOND])
def test_a_waiting_owner_is_answered(wake: Wake, spin_ns: int) -> None:
    for _ in range(20):
        word = ffi.new("uint32_t *", WAITING)
        completer = threading.Thread(target=lib.fgv_face_slot_complete, args=(word, int(wake)))
        completer.start()
        assert lib.fgv_face_slot_wait(word, int(wake), spin_ns, ffi.NULL, ffi.NULL)
        completer.join()
        assert word[0] == DONE


def wait_learnt(wake: Wake, spin_ns: int, wait: Any, oversleep: Any, length_s: float) -> None:
    """One wait whose answer comes after `length_s`, at the earliest."""
    word = ffi.new("uint32_t *", WAITING)

    def complete() -> None:
        time.sleep(length_s)
        lib.fgv_face_slot_complete(word, int(wake))

    completer = threading.Thread(target=complete)
    completer.start()
    assert lib.fgv_face_slot_wait_learnt(word, int(wake), spin_ns, wait, oversleep)
    completer.join()
    assert word[0] == DONE


@pytest.mark.parametrize("wake", list(Wake))
@pytest.mark.parametrize("spin_ns", [0, 50_000, 1_000_000])
def test_waits_are_learnt(wake: Wake, spin_ns: int) -> None:
    wait, oversleep = ffi.new("struct fgv_face_habit *"), ffi.new("struct fgv_face_habit *")

    def is_learnt() -> bool:
        wait_learnt(wake, spin_ns, wait, oversleep, 0.02)
        return bool(wait.mean_ns > 0.9 * 0.02 * SECOND)

    # Not of the first waits on a busy machine, where a thread starts late and the completer begins before the wait.
    wait_until(is_learnt, "how long waits last is known")
    if wake is not Wake.FUTEX:
        assert oversleep.mean_ns > 0, "naps are never exact"


@pytest.mark.parametrize("wake", list(Wake))
@pytest.mark.parametrize("known", [1, 10**6, 10**15, 2**63])
def test_what_was_learnt_wrongly_keeps_nobody_waiting(wake: Wake, known: int) -> None:
    for deviation in (0, known // 2, 2**62):
        wait = ffi.new("struct fgv_face_habit *", (known, deviation, 0))
        oversleep = ffi.new("struct fgv_face_habit *", (known, deviation, 0))
        wait_learnt(wake, 1_000_000, wait, oversleep, 0.002)
        assert wait.mean_ns <= known or known < 10**8  # the same where the answer came first


def test_a_habit_is_mean_and_mean_deviation() -> None:
    habit = ffi.new("struct fgv_face_habit *")
    seen = []
    for sample in (400, 400, 800, 0):
        lib.fgv_face_habit_note(habit, sample)
        seen.append((habit.mean_ns, habit.deviation_ns))
    assert seen == [(400, 400), (400, 300), (500, 325), (375, 368)]


@pytest.mark.parametrize(
    ("waits", "means"),
    [
        ((400, 1603, 400), (400, 700, 625)),
        ((400, 1604, 400, 1604), (400, 400, 400, 400)),
        ((400, 1604, 1604, 1604), (400, 400, 701, 926)),
        ((400, 100, 99, 24), (400, 325, 268, 24)),
        ((1, 2**64 - 1, 1, 2**64 - 1), (1, 1, 1, 1)),
    ],
)
def test_a_much_longer_wait_is_an_exception_unless_another_follows(
    waits: tuple[int, ...], means: tuple[int, ...]
) -> None:
    wait = ffi.new("struct fgv_face_habit *")
    seen = []
    for waited in waits:
        lib.fgv_face_habit_note_wait(wait, waited)
        seen.append(wait.mean_ns)
    assert tuple(seen) == means


@pytest.mark.parametrize("wake", list(Wake))
@pytest.mark.parametrize("state", [IDLE, WAITING, PARKED])
@pytest.mark.parametrize("spin_ns", [0, 600 * SECOND])
def test_an_owner_gives_up_when_told_to(wake: Wake, state: int, spin_ns: int) -> None:
    asked: list[int] = []

    @ffi.callback("bool(void *, uint32_t)")  # type: ignore[untyped-decorator]
    def keep_waiting(_context: object, nr_rounds: int) -> bool:
        asked.append(nr_rounds)
        return len(asked) < 3

    word = ffi.new("uint32_t *", state)
    assert not lib.fgv_face_slot_wait(word, int(wake), spin_ns, keep_waiting, ffi.NULL)
    assert asked == [0, 1, 2]
    parks = wake is Wake.FUTEX and spin_ns == 0 and state == WAITING
    assert word[0] == (PARKED if parks else state)


def test_only_a_parked_owner_costs_a_system_call() -> None:
    for state, is_woken in ((IDLE, False), (WAITING, False), (PARKED, True), (DONE, False), (77, False)):
        word = ffi.new("uint32_t *", state)
        assert lib.fgv_face_slot_complete(word, int(Wake.FUTEX)) == is_woken
        assert word[0] == DONE
    assert not lib.fgv_face_slot_complete(ffi.new("uint32_t *", PARKED), int(Wake.POLL))


def test_only_a_parked_owner_is_roused() -> None:
    for state, is_woken in ((IDLE, False), (WAITING, False), (PARKED, True), (DONE, False), (77, False)):
        word = ffi.new("uint32_t *", state)
        assert lib.fgv_face_slot_rouse(word, int(Wake.FUTEX)) == is_woken
        assert word[0] == (WAITING if is_woken else state)
    napping = ffi.new("uint32_t *", PARKED)
    assert not lib.fgv_face_slot_rouse(napping, int(Wake.POLL))
    assert napping[0] == PARKED


def owner_of(word: Any, spin_ns: int, wait: Any, oversleep: Any) -> threading.Thread:
    """A thread that waits."""
    owner = threading.Thread(
        target=lib.fgv_face_slot_wait_learnt, args=(word, int(Wake.FUTEX), spin_ns, wait, oversleep)
    )
    owner.start()
    return owner


def spins(owner: threading.Thread) -> None:
    """Waits until the thread has been ready to run in many looks in a row. It lets others go first, so on a busy machine it hardly runs."""
    stat = Path(f"/proc/self/task/{owner.native_id}/stat")

    def is_ready() -> bool:
        time.sleep(LOOK_S)
        return stat.read_text().rpartition(")")[2].split()[0] == "R"

    wait_until(lambda: all(is_ready() for _ in range(NR_LOOKS)), "it spins")


@pytest.mark.parametrize("most_ns", [900 * SECOND, 500 * SECOND])
def test_waits_that_it_may_spin_for_are_spun_through(most_ns: int) -> None:
    """Also while their end is far off. Longer ones are slept through until it is near."""
    wait, oversleep = ffi.new("struct fgv_face_habit *", (600 * SECOND, 0, 0)), ffi.new("struct fgv_face_habit *")
    word = ffi.new("uint32_t *", WAITING)
    owner = owner_of(word, most_ns, wait, oversleep)
    is_spun = most_ns > wait.mean_ns
    if is_spun:
        spins(owner)
    else:
        wait_until(lambda: word[0] == PARKED, "it sleeps")
    assert lib.fgv_face_slot_complete(word, int(Wake.FUTEX)) != is_spun
    owner.join()


@pytest.mark.parametrize("may_spin", [True, False])
def test_a_roused_owner_spins_if_it_may_and_learns_nothing(may_spin: bool) -> None:
    """Its waits are known to be long, so it sleeps soon; roused, it is to be there when the answer comes."""
    known = (3000 * SECOND, 0, 0)
    wait, oversleep = ffi.new("struct fgv_face_habit *", known), ffi.new("struct fgv_face_habit *", (1, 0, 0))
    word = ffi.new("uint32_t *", WAITING)
    spin_ns = 600 * SECOND if may_spin else 0
    owner = owner_of(word, spin_ns, wait, oversleep)
    wait_until(lambda: word[0] == PARKED, "it sleeps")
    assert lib.fgv_face_slot_rouse(word, int(Wake.FUTEX))
    if may_spin:
        spins(owner)
    else:
        wait_until(lambda: word[0] == PARKED, "it sleeps again")
    assert lib.fgv_face_slot_complete(word, int(Wake.FUTEX)) != may_spin
    owner.join()
    assert (wait.mean_ns, wait.deviation_ns, wait.was_longer) == known


def layout_of(guest: Guest) -> Any:
    guest.write(guest.good_entry())
    layout = ffi.new("struct fgv_client_layout *")
    assert lib.fgv_client_read_layout(guest.region.c_region, guest.index, layout)
    return layout


def test_an_answer_lands_in_its_slot(guest: Guest) -> None:
    layout = layout_of(guest)
    at = layout.responses.offset + 7 * 512
    guest.memory[at : at + 4] = WAITING.to_bytes(4, "little")
    payload = bytes(range(256)) + bytes(240)
    assert lib.fgv_respond(guest.region.c_region, layout, 7, 201, payload, len(payload))
    slot = bytes(guest.memory[at : at + 512])
    assert slot[:16] == b"".join(word.to_bytes(4, "little") for word in (DONE, 201, 496, 0))
    assert slot[16:] == payload
    assert bytes(guest.memory[at - 512 : at]) == bytes(512)
    assert bytes(guest.memory[at + 512 : at + 1024]) == bytes(512)


def test_answers_out_of_bounds_touch_nothing(guest: Guest) -> None:
    layout = layout_of(guest)
    before = bytes(guest.memory)
    c = guest.region.c_region
    for index in (64, 65, 0xFFFF, 2**32 - 1):
        assert not lib.fgv_respond(c, layout, index, 1, b"x", 1)
    assert not lib.fgv_respond(c, layout, 0, 1, bytes(497), 497)
    for index in (4, 1024, lib.FGV_MAX_CHUNKS, 2**32 - 1):
        assert not lib.fgv_chunk_complete(c, layout, index, 1)
    for index in (4, 64, 0xFFFF, 1024, lib.FGV_MAX_CHUNKS, 2**32 - 1):
        lib.fgv_chunk_complete_soon(c, layout, index)
        lib.fgv_respond_soon(c, layout, index)
    assert bytes(guest.memory) == before


def test_who_waits_for_a_slot_or_a_chunk_is_roused(guest: Guest) -> None:
    layout = layout_of(guest)
    for at, rouse, index in (
        (layout.responses.offset + 7 * 512, lib.fgv_respond_soon, 7),
        (layout.chunks.offset + 3 * 8, lib.fgv_chunk_complete_soon, 3),
    ):
        guest.memory[at : at + 4] = PARKED.to_bytes(4, "little")
        rouse(guest.region.c_region, layout, index)
        assert guest.memory[at : at + 4] == WAITING.to_bytes(4, "little")


def test_a_chunk_is_completed(guest: Guest) -> None:
    layout = layout_of(guest)
    assert lib.fgv_chunk_complete(guest.region.c_region, layout, 3, 700)
    at = layout.chunks.offset + 3 * 8
    assert bytes(guest.memory[at : at + 8]) == DONE.to_bytes(4, "little") + (700).to_bytes(4, "little")
