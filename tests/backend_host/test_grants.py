"""The keeper of grants: the policy's choice is published and followed, and what each used is told to the policy."""

import time
from collections.abc import Iterator
from random import Random

import pytest
from backend_host.worker._worker import lib

from backend_host.device.control import ControlPage
from backend_host.entitlement import Entitlement
from backend_host.grants import GrantKeeper
from scheduler.fair import OWED_NS, FairQueuing
from scheduler.first_come import FirstCome
from scheduler.policy import Standing
from tests.backend_host.keeping import SLICE_NS, Broken, LastCome, Player, next_of, three

SHORT_NS = 2_000_000
MS = 1_000_000


@pytest.fixture
def page() -> Iterator[ControlPage]:
    with ControlPage.create(SLICE_NS) as page:
        yield page


class Short(FirstCome):
    """The first vGPU's turns are short."""

    def standing(self, vgpu: int, now_ns: int) -> Standing:
        return super().standing(vgpu, now_ns)._replace(budget_ns=SHORT_NS if vgpu == 0 else None)


def test_the_choice_of_the_policy_is_published_and_followed(page: ControlPage) -> None:
    policy = LastCome()
    keeper = GrantKeeper(page, policy)
    holder, early, late = three(page, keeper)
    keeper.step(10)
    assert next_of(page) == late.vgpu
    assert ("dispatched", holder.vgpu) in policy.told
    holder.leave(20)
    assert page.holder().vgpu == late.vgpu
    keeper.step(30)
    assert next_of(page) == early.vgpu
    assert keeper.policy_name == "last-come"


def test_gpu_time_is_charged_once(page: ControlPage) -> None:
    policy = LastCome()
    keeper = GrantKeeper(page, policy)
    holder, _, _ = three(page, keeper)
    holder.charge(1, 5001)
    keeper.step(10)
    keeper.step(11)
    assert [told for told in policy.told if told[0] == "charged"] == [("charged", holder.vgpu, 5000)]


def test_a_wait_for_a_turn_is_counted_by_its_length(page: ControlPage) -> None:
    holder, waiter = Player(page), Player(page)
    now_ns = lib.fgw_clock_ns()
    for waited_ns in (MS // 2, MS, 20_000 * MS):  # 1 ms is a bound: no longer than it
        assert holder.enter(now_ns)
        assert not waiter.enter(now_ns)
        holder.leave(now_ns)
        now_ns += waited_ns
        assert waiter.enter(now_ns)
        waiter.leave(now_ns)
    readings = [page.worker(player.slot) for player in (waiter, holder)]
    assert [reading and reading.nr_waits for reading in readings] == [{"1000000": 2, "longer": 1}, {}]
    assert readings[0] is not None
    assert readings[0].wait_ns == MS // 2 + MS + 20_000 * MS


def test_a_turn_is_as_long_as_the_policy_says(page: ControlPage) -> None:
    keeper = GrantKeeper(page, Short())
    now_ns = lib.fgw_clock_ns()
    for budget_ns in (SHORT_NS, SLICE_NS):
        player = Player(page)
        keeper.join(player.vgpu, Entitlement(1))
        assert player.enter(now_ns)
        keeper.step(now_ns)
        assert lib.fgw_grant_left_ns(player.grantee, now_ns) == budget_ns
        player.leave(now_ns)


@pytest.mark.parametrize(
    ("over_ns", "has_other", "counted_ns"), [(5 * MS, True, 5 * MS), (5 * MS, False, 0), (-MS, True, 0)]
)
def test_what_goes_on_beyond_a_turn_counts_while_others_wait(
    page: ControlPage, over_ns: int, has_other: bool, counted_ns: int
) -> None:
    player, other = Player(page), Player(page)
    begun_ns = lib.fgw_clock_ns()
    assert player.enter(begun_ns)
    assert not has_other or not other.enter(begun_ns)
    player.leave(begun_ns + page.slice_ns + over_ns)
    reading = page.worker(player.slot)
    assert reading is not None
    assert reading.overuse_ns == counted_ns


def used(page: ControlPage, player: Player) -> int:
    reading = page.vgpu(player.vgpu)
    assert reading is not None
    return reading.used_ns


def test_a_device_that_preempts_gives_its_time_in_equal_parts() -> None:
    with ControlPage.create(SLICE_NS, is_preemptive=True) as page:
        players = [Player(page) for _ in range(3)]
        for player in players[:2]:
            lib.fgw_grant_set_running(player.grantee, True)
            player.charge(1000, 2000)
        players[2].charge(1000, 1600)  # which is seen before it is known to run
        assert [used(page, player) for player in players] == [1000, 500, 200]
        lib.fgw_grant_set_running(players[0].grantee, False)
        players[1].charge(2000, 3000)
        assert used(page, players[1]) == 1500
        players[0].quit(page)
        lib.fgw_grant_set_running(players[2].grantee, True)
        page.repair(players[2].slot)  # a dead one runs nothing
        players[1].charge(3000, 4000)
        assert used(page, players[1]) == 2500


def test_who_is_kept_off_the_device_does_not_pay_for_that_and_who_keeps_it_pays_half() -> None:
    with ControlPage.create(SLICE_NS, is_preemptive=True) as page:
        leaving, holder = Player(page), Player(page)
        for player in (leaving, holder):
            lib.fgw_grant_set_running(player.grantee, True)
        lib.fgw_grant_spare_holder(leaving.grantee, 1500)  # there is none
        assert holder.enter(1000)
        lib.fgw_grant_spare_holder(holder.grantee, 1500)  # nobody spares himself
        lib.fgw_grant_spare_holder(leaving.grantee, 1300)
        lib.fgw_grant_charge_half(leaving.grantee, 1000, 1300)
        lib.fgw_grant_spare_holder(leaving.grantee, 1100)  # what is spared stays so
        holder.charge(1000, 1200)
        holder.charge(1200, 1500)
        assert [used(page, player) for player in (leaving, holder)] == [150, 100]


def test_a_device_that_does_not_preempt_serves_one_at_a_time(page: ControlPage) -> None:
    players = [Player(page) for _ in range(2)]
    for player in players:
        lib.fgw_grant_set_running(player.grantee, True)
    players[0].charge(1000, 2000)
    assert used(page, players[0]) == 1000


def behind(page: ControlPage, player: Player, other: Player) -> float:
    """How much later one is to have the GPU than another, in ns of its standing."""
    return page.standing(player.vgpu) - page.standing(other.vgpu)


@pytest.mark.parametrize("has_seen_another", [False, True], ids=["the first ever", "after another"])
@pytest.mark.parametrize("weight", [1, 4])
def test_what_was_used_while_nobody_waited_is_no_debt(page: ControlPage, weight: int, has_seen_another: bool) -> None:
    """The keeper looks when a second one waits, which has the GPU by then: it has never seen the first one hold it."""
    keeper = GrantKeeper(page, FairQueuing())
    first, second, third = (Player(page) for _ in range(3))
    for player, its_weight in ((first, weight), (second, 1), (third, 1)):
        keeper.join(player.vgpu, Entitlement(its_weight))
    begun_ns = time.monotonic_ns()
    if has_seen_another:
        assert third.enter(begun_ns)
        third.charge(begun_ns, begun_ns + 50 * MS)
        keeper.step(begun_ns + 50 * MS)
        third.leave(begun_ns + 51 * MS)
    assert first.enter(begun_ns + 60 * MS)
    first.charge(begun_ns + 60 * MS, begun_ns + 900 * MS)
    assert not second.enter(begun_ns + 900 * MS)
    first.give_way(begun_ns + 900 * MS)
    assert second.enter(begun_ns + 900 * MS)
    second.charge(begun_ns + 900 * MS, begun_ns + 901 * MS)
    keeper.step(begun_ns + 901 * MS)
    assert -MS <= behind(page, first, second) <= 0
    assert next_of(page) == first.vgpu


@pytest.mark.parametrize("worked_ms", [200, 500])
def test_of_several_that_had_the_gpu_unseen_nobody_owes_and_nobody_gains(page: ControlPage, worked_ms: int) -> None:
    """One worked, then slept while another did: both are where a third one begins."""
    keeper = GrantKeeper(page, FairQueuing())
    sleeper, worker, third = (Player(page) for _ in range(3))
    for player in (sleeper, worker, third):
        keeper.join(player.vgpu, Entitlement(1))
    begun_ns = time.monotonic_ns()
    slept_ns, end_ns = begun_ns + 300 * MS, begun_ns + (300 + worked_ms) * MS
    for player, from_ns, until_ns in ((sleeper, begun_ns, slept_ns), (worker, slept_ns, end_ns)):
        assert player.enter(from_ns)
        player.charge(from_ns, until_ns)
        player.leave(until_ns)
    assert third.enter(end_ns)
    third.charge(end_ns, end_ns + MS)
    assert not sleeper.enter(end_ns + MS)
    assert not worker.enter(end_ns + MS)
    keeper.step(end_ns + MS)
    assert abs(behind(page, sleeper, third)) <= MS
    assert abs(behind(page, worker, third)) <= MS


def bursts(random: Random, nr_vgpus: int) -> list[tuple[int, int, int]]:
    """vGPU, begin and end in ns of work that never overlaps, with pauses and without."""
    found, now_ns = [], 0
    for _ in range(random.randrange(1, 8)):
        begun_ns = now_ns + int(random.choice([0, 0.05, 1, 20, 200]) * MS * random.random())
        now_ns = begun_ns + int(random.choice([0.5, 5, 50, 500]) * MS * random.random()) + 1000
        found.append((random.randrange(nr_vgpus), begun_ns, now_ns))
    return found


def play(page: ControlPage, keeper: GrantKeeper, players: list[Player], random: Random) -> int:
    """One after the other has the GPU to itself, while the keeper looks now and then. When the last one was done."""
    begun_ns = time.monotonic_ns()
    history = bursts(random, len(players))
    end_ns = history[-1][2]
    looks = sorted(random.randrange(end_ns) for _ in range(random.randrange(4)))
    for number, from_ns, until_ns in history:
        player, charged_ns = players[number], from_ns
        assert player.enter(begun_ns + from_ns)
        while looks and looks[0] < until_ns:
            look_ns = looks.pop(0)
            if look_ns > charged_ns:
                player.charge(begun_ns + charged_ns, begun_ns + look_ns)
                charged_ns = look_ns
            keeper.step(begun_ns + max(look_ns, from_ns))
        player.charge(begun_ns + charged_ns, begun_ns + until_ns)
        player.leave(begun_ns + until_ns)
    return begun_ns + end_ns


@pytest.mark.parametrize("seed", range(100))
def test_however_rarely_the_keeper_looks_nobody_owes_what_was_used_alone(page: ControlPage, seed: int) -> None:
    """All come at once in the end. Who was away for a moment only may keep what it is owed, which is bounded."""
    random = Random(seed)
    keeper = GrantKeeper(page, FairQueuing())
    players = [Player(page) for _ in range(random.randrange(2, 5))]
    for player in players:
        keeper.join(player.vgpu, Entitlement(random.choice([1, 2, 3])))
    end_ns = play(page, keeper, players, random)
    *others, first = players
    assert first.enter(end_ns)
    for player in others:
        assert not player.enter(end_ns)
    first.charge(end_ns, end_ns + MS)
    keeper.step(end_ns + MS)
    for player in others:
        assert abs(behind(page, player, first)) <= OWED_NS + MS


def test_what_goes_on_beside_a_holder_without_a_turn_is_paid_for() -> None:
    """A kernel that outlived its slice: its vGPU got the GPU no more since, and owes what it takes."""
    with ControlPage.create(SLICE_NS, is_preemptive=True) as page:
        keeper = GrantKeeper(page, FairQueuing())
        long, holder = Player(page), Player(page)
        for player in (long, holder):
            keeper.join(player.vgpu, Entitlement(1))
        assert long.enter(1)
        assert not holder.enter(1)
        keeper.step(1)
        long.leave(10)
        assert holder.enter(10)
        keeper.step(10)
        holder.charge(10, 400_000_000)
        long.charge(10, 700_000_000)
        keeper.step(700_000_000)
        assert behind(page, long, holder) >= 300_000_000


def test_who_was_waited_for_pays(page: ControlPage) -> None:
    """As the keeper saw, one waited while the other had the GPU for longer than its share."""
    keeper = GrantKeeper(page, FairQueuing())
    holder, waiting, _ = three(page, keeper)
    keeper.step(10)
    holder.charge(10, 40_000_000)
    holder.give_way(40_000_000)
    assert waiting.enter(40_000_000)
    waiting.charge(40_000_000, 41_000_000)
    keeper.step(41_000_000)
    assert behind(page, holder, waiting) >= 38_000_000


def test_a_new_vgpu_in_an_old_place_is_charged_from_zero(page: ControlPage) -> None:
    policy = LastCome()
    keeper = GrantKeeper(page, policy)
    first = Player(page)
    keeper.join(first.vgpu, Entitlement(1))
    first.charge(1, 9001)
    keeper.step(10)
    keeper.leave(first.vgpu)
    first.quit(page)
    second = Player(page)
    assert second.vgpu == first.vgpu
    keeper.join(second.vgpu, Entitlement(1))
    second.charge(20, 120)
    keeper.step(30)
    assert policy.told[-1] == ("charged", second.vgpu, 100)


def test_one_that_waits_no_more_is_blocked(page: ControlPage) -> None:
    policy = LastCome()
    keeper = GrantKeeper(page, policy)
    _, early, late = three(page, keeper)
    keeper.step(10)
    lib.fgw_grant_wait_cancel(late.grantee)
    keeper.step(11)
    assert ("blocked", late.vgpu) in policy.told
    assert next_of(page) == early.vgpu


def test_those_who_waited_before_are_told_in_the_order_of_their_coming(page: ControlPage) -> None:
    keeper = GrantKeeper(page, FirstCome())
    holder, second, first = (Player(page) for _ in range(3))
    for player in (holder, second, first):
        keeper.join(player.vgpu, Entitlement(1))
    assert holder.enter(1)
    assert not first.enter(2)
    assert not second.enter(3)
    keeper.step(10)
    assert next_of(page) == first.vgpu


def test_what_is_used_after_the_last_look_counts(page: ControlPage) -> None:
    """The keeper sleeps; the one that it ranked first has used the GPU meanwhile."""
    keeper = GrantKeeper(page, Broken(answer=Standing(0.0, 1.0)))
    holder, early, late = three(page, keeper)
    keeper.step(10)
    early.charge(11, 5_000)
    late.charge(5_001, 6_000)
    assert (page.standing(early.vgpu), page.standing(late.vgpu)) == (4989.0, 999.0)
    holder.leave(7_000)
    assert page.holder().vgpu == late.vgpu


def test_a_changed_weight_is_told(page: ControlPage) -> None:
    policy = LastCome()
    keeper = GrantKeeper(page, policy)
    holder, _, _ = three(page, keeper)
    keeper.change(holder.vgpu, Entitlement(9))
    assert ("weight_changed", holder.vgpu, 9) in policy.told


def test_a_vgpu_that_left_is_not_chosen(page: ControlPage) -> None:
    keeper = GrantKeeper(page, LastCome())
    _, early, late = three(page, keeper)
    keeper.step(10)
    keeper.leave(late.vgpu)
    keeper.step(11)
    assert next_of(page) == early.vgpu
