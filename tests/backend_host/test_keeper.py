"""The keeper's thread, and policies that fail: no policy can stop the GPU from changing hands."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from backend_host.worker._worker import lib

from backend_host.device.control import ControlPage
from backend_host.entitlement import Entitlement
from backend_host.grants import GrantKeeper
from scheduler.fair import FairQueuing
from scheduler.first_come import FirstCome
from scheduler.policy import Policy, Standing
from tests.backend_host.keeping import EVENTS, SLICE_NS, Broken, LastCome, Player, next_of, three
from tests.end_to_end.host import wait_until

STEADY_S = 0.03


@pytest.fixture
def page() -> Iterator[ControlPage]:
    with ControlPage.create(SLICE_NS) as page:
        yield page


@pytest.mark.parametrize("event", EVENTS)
def test_a_policy_that_raises_is_replaced(page: ControlPage, event: str, caplog: pytest.LogCaptureFixture) -> None:
    keeper, debtor = GrantKeeper(page, Broken(event)), Player(page)
    keeper.join(debtor.vgpu, Entitlement(1))
    keeper.indebt(debtor.vgpu, 1)
    holder, early, late = three(page, keeper)
    holder.charge(1, 2)
    keeper.step(10)
    lib.fgw_grant_wait_cancel(early.grantee)
    keeper.step(11)
    keeper.leave(early.vgpu)
    assert keeper.policy_name == "first-come"
    assert "the policy broken failed" in caplog.text
    assert next_of(page) == late.vgpu
    holder.leave(12)
    assert page.holder().vgpu == late.vgpu


@pytest.mark.parametrize(
    "answer",
    [
        *(99, "next", (), (1.0,), (1.0, 2.0), (1.0, 2.0, 3.0), object()),
        *(Standing(math.nan), Standing(0.0, -1.0), Standing(0.0, math.inf), Standing(0.0, 0.0, 0), ("a", 0, None)),
    ],
)
def test_a_policy_that_answers_nonsense_is_replaced(page: ControlPage, answer: object) -> None:
    keeper = GrantKeeper(page, Broken(answer=answer))
    _, early, _ = three(page, keeper)
    keeper.step(10)
    assert keeper.policy_name == "first-come"
    assert next_of(page) == early.vgpu


def test_the_longest_waiting_is_next_where_the_policy_prefers_nobody(page: ControlPage) -> None:
    keeper = GrantKeeper(page, Broken(answer=Standing(math.inf)))
    holder, early, _ = three(page, keeper)
    keeper.step(10)
    holder.leave(11)
    assert page.holder().vgpu == early.vgpu


def test_the_thread_hears_the_bell_and_ends(page: ControlPage) -> None:
    policy = LastCome()
    keeper = GrantKeeper(page, policy)
    keeper.start()
    try:
        player = Player(page)
        keeper.join(player.vgpu, Entitlement(1))
        assert player.enter(time.monotonic_ns())
        page.ring_bell()
        wait_until(lambda: ("dispatched", player.vgpu) in policy.told, "the thread has seen who holds the GPU")
    finally:
        keeper.stop()


def test_the_thread_does_not_look_at_rings_that_change_nothing(page: ControlPage) -> None:
    class Counting(LastCome):
        nr_looks = 0

        def standing(self, vgpu: int, now_ns: int) -> Standing:
            self.nr_looks += 1
            return super().standing(vgpu, now_ns)

    policy = Counting()
    keeper = GrantKeeper(page, policy)
    keeper.join(Player(page).vgpu, Entitlement(1))
    began_s = time.monotonic()
    keeper.start()
    try:
        while policy.nr_looks < 5:
            page.ring_bell()
    finally:
        keeper.stop()
    assert policy.nr_looks <= (time.monotonic() - began_s) / STEADY_S + 3


class Watched:
    """A page that knows which of its waits were used."""

    def __init__(self, page: ControlPage) -> None:
        self._page = page
        self.waits: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("wait_bell", "wait_news"):
            self.waits.append(name)
        return getattr(self._page, name)


@pytest.mark.parametrize(("make", "wait"), [(FairQueuing, "wait_news"), (FirstCome, "wait_bell")])
def test_the_thread_looks_at_each_ring_unless_ranks_change_by_charges_alone(
    page: ControlPage, make: Callable[[], Policy], wait: str
) -> None:
    """By turns they change at each hand-over, of which else nothing would tell the workers."""
    watched = Watched(page)
    keeper = GrantKeeper(cast("ControlPage", watched), make())
    players = [Player(page), Player(page)]
    for player in players:
        keeper.join(player.vgpu, Entitlement(1))
        player.enter(time.monotonic_ns())
    keeper.start()
    try:
        while len(watched.waits) < 3:
            page.ring_bell()
    finally:
        keeper.stop()
    assert set(watched.waits) == {wait}
