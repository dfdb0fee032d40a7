"""What a worker that its guest took over writes into all that it may write, and what becomes of it: in the grant it is mended, in its own
account it is evidence. Looks are made by hand; see test_taken_over.py for real ones."""

from __future__ import annotations

import itertools
import mmap
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from backend_host.worker._worker import lib

from backend_host.device import auditor
from backend_host.device.auditor import Auditor
from backend_host.device.control import ControlPage
from tests.backend_host.claims import HELD, LIMITED, UNTIL, USED, Claimant
from tests.end_to_end.host import wait_until

GRANT = 1
WORD, START, USERS, WAITING, RUNNING = 0, 8, 16, 64, 128
SEATS, SEAT_BYTES, UNUSED, SPARED = 192, 32, 4, 16
"""Places in the grant, and in a seat."""
CLOSED = 1 << 16
MS = 1_000_000
LONG_NS = 60_000_000_000
"""A slice: this process may be kept off the CPU for longer than a short one, and a turn that goes on beyond its end is taken away."""


class Scene:
    """A page with three vGPUs and an auditor."""

    def __init__(self, control: ControlPage, *, is_preemptive: bool = False) -> None:
        self.control = control
        control.set_slice_ns(LONG_NS)
        self.one, self.two, self.three = (Claimant(control) for _ in range(3))
        self.ended: dict[int, str] = {}
        self.owed: dict[int, int] = {}
        self.alarms: list[str] = []
        self.is_preemptive = is_preemptive
        self.grant = mmap.mmap(control.objects[GRANT], 0)
        self.begin()

    def begin(self) -> None:
        """An auditor that knows nothing yet, as that of the next daemon."""
        self.auditor = Auditor(
            self.control,
            self.ended.__setitem__,
            self.owed.__setitem__,
            lambda why, _: self.alarms.append(why),
            is_preemptive=self.is_preemptive,
        )
        self.auditor.look()

    def write(self, place: int, value: int) -> None:
        self.grant[place : place + 8] = value.to_bytes(8, "little")

    def read(self, place: int) -> int:
        return int.from_bytes(self.grant[place : place + 8], "little")

    def look(self, nr: int = 1) -> None:
        for _ in range(nr):
            self.auditor.look()

    def close(self) -> None:
        self.grant.close()
        for claimant in (self.one, self.two, self.three):
            claimant.close()


@pytest.fixture
def scene(control: ControlPage) -> Iterator[Scene]:
    scene = Scene(control)
    yield scene
    scene.close()


def contended(scene: Scene) -> None:
    """One has its turn, the others wait."""
    assert scene.one.enter()
    assert not scene.two.enter()
    assert not scene.three.enter()
    scene.look()


def test_a_look_that_fails_is_not_the_last(control: ControlPage, caplog: pytest.LogCaptureFixture) -> None:
    looks = threading.Semaphore(0)

    class Failing(Auditor):
        def look(self) -> bool:
            looks.release()
            raise FileNotFoundError("a process that has ended")

    auditor = Failing(control, lambda *_: None, lambda *_: None, lambda *_: None, is_preemptive=False)
    auditor.start()
    assert all(looks.acquire(timeout=30) for _ in range(3))
    auditor.stop()
    assert caplog.text.count("a look at what workers write failed") == 1, "it is said once"


def test_an_honest_turn_is_left_alone(scene: Scene) -> None:
    contended(scene)
    scene.look(2)
    scene.one.leave()
    assert scene.two.enter()
    scene.look(2)
    assert (scene.ended, scene.owed, scene.auditor.nr_mended) == ({}, {}, 0)


def test_it_looks_soon_while_somebody_wants_the_gpu(scene: Scene) -> None:
    assert not scene.auditor.look()
    assert scene.one.enter()
    assert scene.auditor.look()
    assert not scene.two.enter()
    assert scene.auditor.look()
    scene.one.leave()
    assert scene.auditor.look()
    assert scene.two.enter()
    scene.two.leave()
    wait_until(lambda: not scene.auditor.look(), "all that was charged has been seen")


@pytest.mark.parametrize("place", [USERS, WAITING], ids=["users", "waiting"])
def test_bits_that_another_one_cleared_or_set_are_as_their_owners_say(scene: Scene, place: int) -> None:
    contended(scene)
    true = scene.read(place)
    for forged in (0, 0xFFFF_FFFF_FFFF_FFFF & ~(1 << 63), 1 << scene.three.slot):
        scene.write(place, forged & 0b111)
        scene.look(2)
        assert scene.read(place) == true
    assert scene.ended == {}


def test_a_waiting_one_whose_bit_was_cleared_gets_its_turn(scene: Scene) -> None:
    """It believes that its bit is set, and never sets it again."""
    contended(scene)
    scene.write(WAITING, 0)
    scene.one.leave()
    assert scene.control.holder().vgpu is None
    scene.look(2)
    assert scene.control.holder().vgpu == scene.two.vgpu


@pytest.mark.parametrize("number", [65, 40_000, 0xFFFF])
def test_a_grant_of_no_vgpu_is_free_for_whoever_asks(scene: Scene, number: int) -> None:
    contended(scene)
    scene.one.leave()
    scene.write(WORD, 7 << 32 | number)
    lib.fgw_grant_nudge(scene.two.grantee, time.monotonic_ns())
    assert scene.control.holder().vgpu == scene.two.vgpu
    assert scene.two.enter()


def test_a_grant_that_was_written_to_one_that_does_not_want_it_goes_on(scene: Scene) -> None:
    contended(scene)
    scene.one.leave()
    scene.write(WORD, 7 << 32 | scene.one.vgpu + 1)
    scene.write(USERS, 1 << scene.one.slot)
    scene.look(2)
    assert scene.control.holder().vgpu == scene.two.vgpu
    assert scene.ended == {}, "whoever wrote that is not known"


@pytest.mark.parametrize("phase", ["ready", "running"])
def test_a_grant_that_is_kept_and_not_charged_for_goes_on(scene: Scene, phase: str) -> None:
    contended(scene)
    scene.control.set_slice_ns(6 * MS)
    scene.one.says(phase)
    end_ns = time.monotonic_ns() + 30_000 * MS
    while time.monotonic_ns() < end_ns and scene.control.holder().vgpu == scene.one.vgpu:
        scene.look()
    assert scene.control.holder().vgpu == scene.two.vgpu
    assert scene.ended == {}, "it may be inside a long call of the driver"


def test_a_turn_that_begins_in_the_future_begins_now(scene: Scene) -> None:
    contended(scene)
    start = scene.read(START)
    scene.write(START, start + 3_600_000 * MS)
    scene.look(2)
    assert abs(scene.control.holder().since_ns - time.monotonic_ns()) < 1000 * MS
    assert scene.ended == {}


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        (USED, 0, "less"),
        (HELD, 0, "less"),
        (USED, (1 << 64) - 1, "more time than there was"),
        (HELD, 1 << 62, "more time than there was"),
        (UNTIL, 1 << 63, "to come"),
    ],
)
def test_figures_that_cannot_be_true_cost_their_vgpu_its_workers(
    scene: Scene, place: int, value: int, why: str
) -> None:
    scene.one.write(USED, 5 * MS)
    scene.one.write(HELD, 5 * MS)
    scene.look()
    assert scene.ended == {}
    scene.one.write(place, value)
    scene.look(3)
    assert list(scene.ended) == [scene.one.vgpu]
    assert why in scene.ended[scene.one.vgpu]


@pytest.mark.parametrize("place", [USED, HELD])
def test_a_charge_that_comes_late_is_for_the_time_since_the_last_one(scene: Scene, place: int) -> None:
    """Also for that before the first look, as a worker may stand still while another daemon begins. But once only."""
    now_ns, late_ns = time.monotonic_ns(), 100_000 * MS
    scene.one.write(UNTIL, now_ns - late_ns)
    scene.begin()
    scene.one.add(place, late_ns)
    scene.one.write(UNTIL, now_ns)
    scene.look(3)
    assert scene.ended == {}
    scene.one.add(place, late_ns)
    scene.look()
    assert scene.ended == {scene.one.vgpu: "it was charged for more time than there was"}


def test_another_vgpu_in_the_same_place_starts_anew(scene: Scene) -> None:
    scene.one.write(USED, 5 * MS)
    scene.look()
    scene.control.worker_free(scene.one.slot)
    scene.control.vgpu_free(scene.one.vgpu)
    assert scene.control.vgpu_take() == scene.one.vgpu
    scene.look(2)
    assert scene.ended == {}


def unpaid(scene: Scene, monkeypatch: pytest.MonkeyPatch, until: Callable[[], bool], **shorter: int) -> None:
    """Looks until then, at a turn with others waiting, and something on the device."""
    for name, value in shorter.items():
        monkeypatch.setattr(auditor, name, value)
    contended(scene)
    scene.control.set_slice_ns(100_000 * MS)
    look_until(scene, until)


def look_until(scene: Scene, is_so: Callable[[], bool], before: Callable[[], None] = lambda: None) -> None:
    """However long this process is kept off the processor. `before` is called before each look."""
    end_ns = time.monotonic_ns() + 30_000 * MS
    while not is_so():
        assert time.monotonic_ns() < end_ns
        before()
        scene.look()


def test_a_turn_that_is_not_paid_for_is_owed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    unpaid(scene, monkeypatch, lambda: bool(scene.owed), GRACE_NS=0)
    assert list(scene.owed) == [scene.one.vgpu]
    assert scene.owed[scene.one.vgpu] > 0
    assert scene.ended == {}, "charges may come late"
    scene.one.leave()
    scene.one.add(USED, 1000 * MS)
    scene.look()
    assert scene.owed == {scene.one.vgpu: 0}


def test_turns_that_are_never_paid_for_cost_their_vgpu_its_workers(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpaid(scene, monkeypatch, lambda: bool(scene.ended), GRACE_NS=0, UNPAID_NS=20 * MS)
    assert list(scene.ended) == [scene.one.vgpu]
    assert "does not charge itself" in scene.ended[scene.one.vgpu]


def test_a_turn_that_others_say_is_somebody_s_is_not(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forged word and a forged bit make nobody owe anything: it is asked what it says itself."""
    contended(scene)
    scene.one.leave()
    scene.one.add(USED, 1000 * MS)
    scene.look()
    monkeypatch.setattr(auditor, "GRACE_NS", 0)
    monkeypatch.setattr(auditor, "UNPAID_NS", 20 * MS)
    end_ns = time.monotonic_ns() + 40 * MS
    while time.monotonic_ns() < end_ns:
        scene.write(WORD, 7 << 32 | scene.one.vgpu + 1)
        scene.write(USERS, 1 << scene.one.slot)
        scene.look()
    assert (scene.owed, scene.ended) == ({}, {})


def test_turns_that_are_shorter_than_two_looks_are_paid_for_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look finds another one, of which none is paid for."""
    monkeypatch.setattr(auditor, "GRACE_NS", 0)
    monkeypatch.setattr(auditor, "UNPAID_NS", 20 * MS)
    contended(scene)
    sequences = itertools.count(8)
    look_until(
        scene,
        lambda: bool(scene.ended),
        before=lambda: scene.write(WORD, next(sequences) << 32 | scene.one.vgpu + 1),
    )
    assert list(scene.ended) == [scene.one.vgpu]
    assert "does not charge itself" in scene.ended[scene.one.vgpu]


def test_work_on_the_device_that_another_one_says_there_is_alarms(scene: Scene) -> None:
    """Where the device preempts, others would charge themselves less for it."""
    contended(scene)
    for _ in range(8):
        scene.write(RUNNING, 1 << scene.two.slot)
        scene.look(2)
        assert scene.read(RUNNING) == 0
    assert "running" in scene.alarms
    assert scene.ended == {}


def test_a_holder_is_not_spared_for_a_time_to_come(scene: Scene) -> None:
    contended(scene)
    place = SEATS + SEAT_BYTES * scene.one.vgpu + SPARED
    scene.write(place, time.monotonic_ns() + 3_600_000 * MS)
    scene.look(2)
    assert scene.read(place) == 0
    assert scene.alarms == [], "once is not too often"


@pytest.mark.parametrize("more", [1000, 3], ids=["more than there was time for", "more than is likely"])
def test_unused_grants_that_another_one_counts_are_not_believed(scene: Scene, more: int) -> None:
    contended(scene)
    scene.two.leave()
    place = SEATS + SEAT_BYTES * scene.two.vgpu + UNUSED
    alarm = f"unused grants of vGPU {scene.two.vgpu}"
    for nr in range(1, 30):
        time.sleep(0.01)
        scene.grant[place : place + 4] = (nr * more).to_bytes(4, "little")
        scene.look()
        if alarm in scene.alarms:
            break
    assert alarm in scene.alarms
    assert held_ns(scene) == 0, "they are put back"


def held_ns(scene: Scene) -> int:
    reading = scene.control.vgpu(scene.two.vgpu)
    assert reading is not None
    return reading.held_ns


def test_turns_of_one_that_stands_behind_who_waits_alarm(scene: Scene) -> None:
    contended(scene)
    for vgpu, standing in ((scene.one.vgpu, 1e12), (scene.two.vgpu, 0.0), (scene.three.vgpu, 5.0)):
        scene.control.set_standing(vgpu, standing, 1.0, charged_ns=0)
    for _ in range(3):
        assert scene.alarms == []
        scene.write(WORD, scene.read(WORD) + (1 << 32))
        scene.look()
    assert scene.alarms == ["turns out of turn"]
    assert scene.ended == {}


@pytest.mark.parametrize(("budget_ns", "alarms"), [(300 * MS, set()), (0, {"turns out of turn"})])
def test_a_turn_is_out_of_turn_beyond_its_own_length(scene: Scene, budget_ns: int, alarms: set[str]) -> None:
    """Which may be more than a slice, by its policy or by bursts."""
    contended(scene)
    scene.control.set_slice_ns(6 * MS)
    for each in (scene.one, scene.two, scene.three):
        scene.control.set_standing(each.vgpu, 0.0, 1.0, charged_ns=0, budget_ns=budget_ns)
    scene.one.add(USED, 250 * MS)
    for _ in range(20):
        scene.one.add(USED, 1)
        scene.look()
    assert set(scene.alarms) == alarms


def test_a_word_that_no_worker_writes_alarms_at_once(scene: Scene) -> None:
    contended(scene)
    scene.write(WORD, 7 << 32 | 40_000)
    scene.look()
    assert scene.alarms == ["a grant of nobody"]


def limited(scene: Scene) -> None:
    """The first one has a limit, and an auditor that knows it; half a second of it is charged."""
    scene.control.set_limit(scene.one.vgpu, 100)
    scene.look(2)
    lib.fgw_grant_charge_hold(scene.one.grantee, 500 * MS)


def look_for(scene: Scene, time_ms: int) -> None:
    end_ns = time.monotonic_ns() + time_ms * MS
    while time.monotonic_ns() < end_ns and not scene.ended:
        scene.look()
        time.sleep(0.02)


def test_who_puts_back_the_count_of_its_limit_is_ended(scene: Scene) -> None:
    limited(scene)
    scene.look()
    scene.one.write(LIMITED, 0)
    look_for(scene, 20_000)
    assert scene.ended == {scene.one.vgpu: "it put back the count of its limit"}


def test_it_is_no_use_to_have_it_right_now_and_then(scene: Scene) -> None:
    limited(scene)
    true = scene.one.read(LIMITED)
    for nr in itertools.count():
        scene.one.write(LIMITED, true if nr % 3 == 0 else 0)
        look_for(scene, 30)
        if scene.ended or nr > 1000:
            break
    assert list(scene.ended) == [scene.one.vgpu]


def test_a_limit_that_went_and_came_back_between_two_looks_is_no_fault_of_its_vgpu(scene: Scene) -> None:
    """As a `reload` does that is refused: nothing is to be paid back then."""
    limited(scene)
    scene.look()
    for limit in (0, 100):
        scene.control.set_limit(scene.one.vgpu, limit)
    assert scene.one.read(LIMITED) == 0
    look_for(scene, 2_000)
    assert scene.ended == {}


@pytest.mark.parametrize("permille", [10, 500, 0])
def test_another_limit_is_no_fault_of_its_vgpu(scene: Scene, permille: int) -> None:
    limited(scene)
    for limit in (100, permille, 999, permille):
        scene.control.set_limit(scene.one.vgpu, limit)
        scene.look(2)
        lib.fgw_grant_charge_hold(scene.one.grantee, 50 * MS)
        look_for(scene, 400)
    assert scene.ended == {}
