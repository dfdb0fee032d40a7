"""What vGPUs got of what was due to them: by weights, under requests and limits, beside those that come, go and rest."""

from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_host.device.readings import VgpuReading
from backend_host.entitlement import Entitlement
from backend_host.fairness import APART_NS, NOTHING, WINDOW_NS, Fairness, Received, min_max_ratio

S = 1_000_000_000
STEP_NS = S // 10


def account(vgpu: int, used_ns: int, held_ns: int = 0, back_ns: int = 0) -> VgpuReading:
    return VgpuReading(vgpu, used_ns, held_ns, 0, 0, 0, 0, 1, 0, 0, back_ns=back_ns)


class Played:
    """Time that passes in steps, and what is used in it."""

    def __init__(self, **entitlements: Entitlement) -> None:
        self.fairness = Fairness()
        self.now_ns = 5 * S
        self.entitlements = {int(name.removeprefix("v")): each for name, each in entitlements.items()}
        self.used_ns = dict.fromkeys(self.entitlements, 0)
        for vgpu in self.entitlements:
            self.fairness.begin(vgpu, self.now_ns)

    def go_on(self, seconds: float, active: Collection[int], percents: Mapping[int, float]) -> "Played":
        for _ in range(round(seconds * S / STEP_NS)):
            self.now_ns += STEP_NS
            for vgpu, percent in percents.items():
                self.used_ns[vgpu] += round(STEP_NS * percent / 100)
            accounts = [account(vgpu, used_ns) for vgpu, used_ns in self.used_ns.items()]
            self.fairness.look(self.now_ns, accounts, active, self.entitlements)
        return self

    def received(self) -> list[Received]:
        return [self.fairness.received(vgpu) for vgpu in self.entitlements]


def test_weights_are_what_they_are_entitled_to() -> None:
    played = Played(v0=Entitlement(1), v1=Entitlement(3)).go_on(70, {0, 1}, {0: 25, 1: 75})
    one, three = played.received()
    assert (one.entitled, three.entitled) == pytest.approx((0.25, 0.75))
    assert (one.of_due, three.of_due) == pytest.approx((1, 1))
    assert one.is_steady
    assert min_max_ratio([one, three]) == pytest.approx(1)


def test_one_that_gets_less_is_seen() -> None:
    one, three = Played(v0=Entitlement(1), v1=Entitlement(3)).go_on(70, {0, 1}, {0: 5, 1: 95}).received()
    assert one.of_due == pytest.approx(0.2)
    assert min_max_ratio([one, three]) == pytest.approx(0.2 / (0.95 / 0.75))


def test_a_gpu_that_stands_idle_takes_nothing_from_anybody() -> None:
    """Alone, and beside another: what both leave unused was due to neither."""
    [alone] = Played(v0=Entitlement(1)).go_on(70, {0}, {0: 30}).received()
    assert (alone.entitled, alone.of_due) == pytest.approx((1, 1))
    for each in Played(v0=Entitlement(1), v1=Entitlement(1)).go_on(70, {0, 1}, {0: 20, 1: 20}).received():
        assert (each.entitled, each.of_due) == pytest.approx((0.5, 1))


def test_others_that_rest_leave_their_part() -> None:
    """What one gets while another rests, and no more, is due to it then, however much of the GPU it uses."""
    played = Played(v0=Entitlement(1), v1=Entitlement(1))
    played.go_on(30, {0}, {0: 40}).go_on(30, {0, 1}, {0: 50, 1: 50})
    steady, other = played.received()
    assert (steady.entitled, other.entitled) == pytest.approx((0.75, 0.25))
    assert (steady.of_due, other.of_due) == pytest.approx((1, 1))
    assert (steady.is_steady, other.is_steady) == (True, False)
    assert min_max_ratio([steady, other]) is None, "there is nothing to compare"


def test_requests_and_limits_count() -> None:
    entitlements = {"v0": Entitlement(1, request=60), "v1": Entitlement(1), "v2": Entitlement(9, limit=10)}
    shares = [each.entitled for each in Played(**entitlements).go_on(61, {0, 1, 2}, {}).received()]
    assert shares == pytest.approx([0.6, 0.3, 0.1])


def test_one_that_its_limit_keeps_from_a_turn_is_entitled_but_not_active() -> None:
    """What it had was due to it. It is none of those that want the GPU all the time and may be starved."""
    fairness, entitlements = Fairness(), {0: Entitlement(1, limit=10), 1: Entitlement(1)}
    for vgpu in entitlements:
        fairness.begin(vgpu, 0)
    for tenth in range(1, 610):
        has_turn = tenth % 10 == 0
        now_ns = tenth * STEP_NS
        limited = account(0, tenth // 10 * STEP_NS, back_ns=now_ns if not has_turn else 0)
        other = account(1, now_ns - tenth // 10 * STEP_NS)
        fairness.look(now_ns, [limited, other], {0, 1} if has_turn else {1}, entitlements)
    limited_received, other_received = fairness.received(0), fairness.received(1)
    assert limited_received.entitled == pytest.approx(0.1, abs=0.01)
    assert limited_received.active == pytest.approx(0.1, abs=0.01)
    assert limited_received.of_due == pytest.approx(1, abs=0.1)
    assert not limited_received.is_steady
    assert other_received.is_steady


def test_time_held_without_use_is_paid_for() -> None:
    fairness = Fairness()
    for vgpu in (0, 1):
        fairness.begin(vgpu, 0)
    both = {0: Entitlement(1), 1: Entitlement(1)}
    for second in range(1, 62):
        accounts = [account(0, second * S // 5, held_ns=second * 3 * S // 10), account(1, second * S // 2)]
        fairness.look(second * S, accounts, both, both)
    assert fairness.received(0).of_due == pytest.approx(1)


def test_who_is_not_known_or_has_just_come_got_nothing_of_nothing() -> None:
    played = Played(v0=Entitlement(1))
    assert played.received() == [NOTHING]
    assert played.fairness.received(9) == NOTHING
    played.go_on(1, {0, 9}, {0: 100})
    played.fairness.end(0)
    played.fairness.end(0)
    assert played.received() == [NOTHING]


def test_a_minute_is_forgotten() -> None:
    played = Played(v0=Entitlement(1), v1=Entitlement(1)).go_on(61, {0, 1}, {0: 10, 1: 90})
    one, _ = played.go_on(62, {0, 1}, {0: 50, 1: 50}).received()
    assert one.of_due == pytest.approx(1)


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 2)), st.tuples(*[st.integers(0, 100)] * 3)), min_size=1, max_size=30),
    st.integers(1, 2 * WINDOW_NS // 30),
)
def test_what_is_due_to_all_is_what_all_were_charged(
    looks: list[tuple[set[int], tuple[int, int, int]]], step_ns: int
) -> None:
    fairness, used = Fairness(), [0, 0, 0]
    entitlements = {vgpu: Entitlement(vgpu + 1) for vgpu in range(3)}
    for vgpu in entitlements:
        fairness.begin(vgpu, 0)
    for number, (active, more) in enumerate(looks, 1):
        used = [before + step_ns * percent // 100 for before, percent in zip(used, more, strict=True)]
        fairness.look(number * step_ns, [account(*each) for each in enumerate(used)], active, entitlements)
        kept = fairness._kept.values()
        assert sum(each.now.due for each in kept) == pytest.approx(sum(used))
        assert sum(fairness.received(vgpu).entitled for vgpu in range(3)) <= 1 + 1e-9
        assert all(len(each.notes) <= WINDOW_NS // APART_NS + 2 for each in kept)
