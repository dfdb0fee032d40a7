"""The keeper of grants: the policy's choice is published, and no policy can stop the GPU from changing hands."""

import os
from collections.abc import Iterator

import pytest
from backend_host.worker._worker import ffi, lib

from backend_host.grants import GrantKeeper
from backend_host.worker.control import ControlPage
from scheduler.first_come import FirstCome

EVENTS = ("joined", "left", "backlogged", "blocked", "dispatched", "charged", "pick")
SLICE_NS = 6_000_000


@pytest.fixture
def page() -> Iterator[ControlPage]:
    fd = os.memfd_create("control")
    with ControlPage.format(fd, SLICE_NS) as page:
        yield page
    os.close(fd)


class Player:
    """A worker's side of the grant; time is handed in."""

    def __init__(self, page: ControlPage) -> None:
        self.vgpu = page.vgpu_take()
        self.slot = page.worker_take()
        self.grantee = ffi.new("struct fgv_grantee *")
        assert lib.fgv_grantee_attach(self.grantee, page.page, self.vgpu, self.slot)

    def enter(self, now_ns: int) -> bool:
        return bool(lib.fgv_grant_enter(self.grantee, now_ns))

    def leave(self, now_ns: int) -> None:
        lib.fgv_grant_leave(self.grantee, False, now_ns)

    def charge(self, from_ns: int, to_ns: int) -> None:
        lib.fgv_grant_charge(self.grantee, from_ns, to_ns)

    def quit(self, page: ControlPage) -> None:
        page.worker_free(self.slot)
        page.vgpu_free(self.vgpu)


class LastCome(FirstCome):
    """Whoever came last is next; keeps what it was told."""

    name = "last-come"

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[object, ...]] = []

    def charged(self, vgpu: int, used_ns: int, now_ns: int) -> None:
        self.told.append(("charged", vgpu, used_ns))

    def dispatched(self, vgpu: int, now_ns: int) -> None:
        super().dispatched(vgpu, now_ns)
        self.told.append(("dispatched", vgpu))

    def blocked(self, vgpu: int, now_ns: int) -> None:
        super().blocked(vgpu, now_ns)
        self.told.append(("blocked", vgpu))

    def pick(self, now_ns: int) -> int | None:
        return next(reversed(self._queue), None)


class Broken(FirstCome):
    """Raises at one event, or picks something that is no choice."""

    name = "broken"

    def __init__(self, event: str = "", choice: object = None) -> None:
        super().__init__()
        self._event = event
        self._choice = choice

    def __getattribute__(self, name: str) -> object:
        if name in EVENTS and name == object.__getattribute__(self, "_event"):
            raise ZeroDivisionError(name)
        return object.__getattribute__(self, name)

    def pick(self, now_ns: int) -> int | None:
        return self._choice if self._choice is not None else super().pick(now_ns)  # type: ignore[return-value]


def three(page: ControlPage, keeper: GrantKeeper) -> tuple[Player, Player, Player]:
    """One holds the GPU, two wait, the second of them came later."""
    holder, early, late = Player(page), Player(page), Player(page)
    for player in (holder, early, late):
        keeper.join(player.vgpu, 1)
    assert holder.enter(1)
    assert not early.enter(2)
    assert not late.enter(3)
    return holder, early, late


def test_the_choice_of_the_policy_is_published_and_followed(page: ControlPage) -> None:
    policy = LastCome()
    keeper = GrantKeeper(page, policy)
    holder, early, late = three(page, keeper)
    keeper.step(10)
    assert page.successor() == late.vgpu
    assert ("dispatched", holder.vgpu) in policy.told
    holder.leave(20)
    assert page.holder().vgpu == late.vgpu
    keeper.step(30)
    assert page.successor() == early.vgpu
    assert keeper.policy_name == "last-come"


def test_gpu_time_is_charged_once(page: ControlPage) -> None:
    policy = LastCome()
    keeper = GrantKeeper(page, policy)
    holder, _, _ = three(page, keeper)
    holder.charge(1, 5001)
    keeper.step(10)
    keeper.step(11)
    assert [told for told in policy.told if told[0] == "charged"] == [("charged", holder.vgpu, 5000)]


def test_a_new_vgpu_in_an_old_place_is_charged_from_zero(page: ControlPage) -> None:
    policy = LastCome()
    keeper = GrantKeeper(page, policy)
    first = Player(page)
    keeper.join(first.vgpu, 1)
    first.charge(1, 9001)
    keeper.step(10)
    keeper.leave(first.vgpu)
    first.quit(page)
    second = Player(page)
    assert second.vgpu == first.vgpu
    keeper.join(second.vgpu, 1)
    second.charge(20, 120)
    keeper.step(30)
    assert policy.told[-1] == ("charged", second.vgpu, 100)


def test_one_that_waits_no_more_is_blocked(page: ControlPage) -> None:
    policy = LastCome()
    keeper = GrantKeeper(page, policy)
    _, early, late = three(page, keeper)
    keeper.step(10)
    lib.fgv_grant_wait_cancel(late.grantee)
    keeper.step(11)
    assert ("blocked", late.vgpu) in policy.told
    assert page.successor() == early.vgpu


def test_those_who_waited_before_are_told_in_the_order_of_their_coming(page: ControlPage) -> None:
    keeper = GrantKeeper(page, FirstCome())
    holder, second, first = (Player(page) for _ in range(3))
    for player in (holder, second, first):
        keeper.join(player.vgpu, 1)
    assert holder.enter(1)
    assert not first.enter(2)
    assert not second.enter(3)
    keeper.step(10)
    assert page.successor() == first.vgpu


@pytest.mark.parametrize("event", EVENTS)
def test_a_policy_that_raises_is_replaced(page: ControlPage, event: str, caplog: pytest.LogCaptureFixture) -> None:
    keeper = GrantKeeper(page, Broken(event))
    holder, early, late = three(page, keeper)
    holder.charge(1, 2)
    keeper.step(10)
    lib.fgv_grant_wait_cancel(early.grantee)
    keeper.step(11)
    keeper.leave(early.vgpu)
    assert keeper.policy_name == "first-come"
    assert "the policy broken failed" in caplog.text
    assert page.successor() == late.vgpu
    holder.leave(12)
    assert page.holder().vgpu == late.vgpu


@pytest.mark.parametrize("choice", [99, -1, 63, 0, "next", 1.5, [1], object()])
def test_a_policy_that_answers_nonsense_is_replaced(page: ControlPage, choice: object) -> None:
    keeper = GrantKeeper(page, Broken(choice=choice))
    holder, early, _ = three(page, keeper)
    assert holder.vgpu == 0, "a choice that exists, and does not wait"
    keeper.step(10)
    assert keeper.policy_name == "first-come"
    assert page.successor() == early.vgpu


def test_workers_choose_where_the_policy_chooses_nobody(page: ControlPage) -> None:
    policy = Broken()
    policy.pick = lambda now_ns: None  # type: ignore[method-assign]
    keeper = GrantKeeper(page, policy)
    holder, early, _ = three(page, keeper)
    keeper.step(10)
    assert page.successor() is None
    holder.leave(11)
    assert page.holder().vgpu == early.vgpu


def test_a_vgpu_that_left_is_not_chosen(page: ControlPage) -> None:
    keeper = GrantKeeper(page, LastCome())
    _, early, late = three(page, keeper)
    keeper.step(10)
    keeper.leave(late.vgpu)
    keeper.step(11)
    assert page.successor() == early.vgpu


def test_the_thread_hears_the_bell_and_ends(page: ControlPage) -> None:
    keeper = GrantKeeper(page, LastCome())
    keeper.start()
    _, _, late = three(page, keeper)
    bell = page.bell()
    while page.successor() != late.vgpu:
        bell = page.wait_bell(0.01, bell)
    keeper.stop()
    assert page.successor() == late.vgpu
