"""Credit: credits by weight, UNDER before OVER, round robin, limits; Strict: the vCPUs command."""

import math
from typing import TypeVar

from scheduler.credit import PERIOD_NS, Credit
from scheduler.policy import Standing
from scheduler.registry import make_policy
from scheduler.simulator.policies.extensions import Coscheduled
from scheduler.simulator.policies.registry import ALL_POLICIES
from scheduler.simulator.policies.strict import StrictCoscheduling
from tests.scheduler.choosing import Choosing

MS = 1_000_000
P = TypeVar("P", bound=Credit)


def backlogged_policy(made: P, weights: dict[int, int]) -> Choosing[P]:
    policy = Choosing(made)
    for vgpu, weight in weights.items():
        policy.joined(vgpu, weight, 0)
        policy.backlogged(vgpu, 0)
    return policy


def turn(policy: Choosing[P], used_ns: int, now_ns: int) -> int:
    choice = policy.pick(now_ns)
    assert choice is not None
    policy.dispatched(choice, now_ns)
    policy.charged(choice, used_ns, now_ns + used_ns)
    policy.backlogged(choice, now_ns + used_ns)
    return choice


def test_round_robin_within_a_class() -> None:
    policy = backlogged_policy(Credit(), {1: 1, 2: 1, 3: 1})
    assert [turn(policy, MS, i * MS) for i in range(6)] == [1, 2, 3, 1, 2, 3]


def test_who_has_credits_goes_before_who_has_none() -> None:
    policy = backlogged_policy(Credit(), {1: 1, 2: 2})
    order = [turn(policy, 5 * MS, i * 5 * MS) for i in range(60)]
    assert 18 <= order.count(1) <= 22


def test_credits_and_debts_are_limited_to_a_period() -> None:
    policy = backlogged_policy(Credit(), {1: 1, 2: 1})
    policy.dispatched(1, 0)
    policy.charged(1, 100 * PERIOD_NS, PERIOD_NS)  # hands out; the debt is cut to a period
    policy.backlogged(1, PERIOD_NS)
    assert policy.pick(PERIOD_NS) == 2
    policy.blocked(2, PERIOD_NS)
    policy.blocked(1, 10 * PERIOD_NS)
    policy.backlogged(1, 11 * PERIOD_NS)
    policy.backlogged(2, 11 * PERIOD_NS)
    policy.backlogged(1, 12 * PERIOD_NS)
    assert policy.pick(12 * PERIOD_NS) == 1, "the debt was paid within periods and not within a hundred"


def test_a_vgpu_that_runs_out_of_credits_while_it_waits_goes_behind() -> None:
    policy = backlogged_policy(Credit(), {1: 1, 2: 1})
    assert policy.pick(0) == 1
    policy.charged(1, MS, 1)
    assert policy.pick(1) == 2
    assert policy.standing(1, 1) > policy.standing(2, 1)


def test_strict_is_credit_for_callers_without_vcpus() -> None:
    strict = backlogged_policy(StrictCoscheduling(), {1: 1, 2: 2, 3: 3})
    credit = backlogged_policy(Credit(), {1: 1, 2: 2, 3: 3})
    for i in range(200):
        assert turn(strict, 4 * MS, i * 4 * MS) == turn(credit, 4 * MS, i * 4 * MS)


def test_a_vgpu_runs_only_while_its_vcpu_does() -> None:
    strict = StrictCoscheduling()
    policy = backlogged_policy(strict, {1: 1, 2: 1})
    strict.vcpu_descheduled(1, 0)
    assert policy.pick(0) == 2
    assert strict.preempts(1, 0)
    assert policy.standing(1, 0) == Standing(math.inf, 0.0)
    strict.vcpu_descheduled(2, 0)
    assert policy.pick(0) is None
    strict.vcpu_scheduled(1, 0)
    assert policy.pick(0) == 1


def test_a_vcpu_that_comes_commands_the_gpu_if_it_has_the_credits() -> None:
    strict = StrictCoscheduling()
    policy = backlogged_policy(strict, {1: 1, 2: 1, 3: 1})
    policy.dispatched(1, 0)
    assert not strict.preempts(1, 0)
    strict.vcpu_descheduled(3, 0)
    strict.vcpu_scheduled(3, 0)
    assert strict.preempts(1, 0)
    assert policy.pick(0) == 3
    assert policy.standing(3, 0) < policy.standing(2, 0)
    policy.dispatched(3, 1)
    policy.charged(3, 9 * MS, 9 * MS)
    policy.backlogged(3, 9 * MS)
    strict.vcpu_scheduled(3, 9 * MS)
    assert policy.pick(9 * MS) == 2, "others have more credits now"


def test_only_strict_hears_of_vcpus() -> None:
    assert isinstance(make_policy("strict", ALL_POLICIES), Coscheduled)
    assert not isinstance(make_policy("credit-poll", ALL_POLICIES), Coscheduled)
    assert not isinstance(make_policy("fair"), Coscheduled)
