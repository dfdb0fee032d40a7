"""First come, first served, against a list kept by hand, over random histories."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler.registry import POLICIES, UnknownPolicyError, make_policy
from tests.scheduler.choosing import Choosing

EVENTS = st.lists(
    st.tuples(st.sampled_from(["joined", "left", "backlogged", "blocked", "dispatched", "charged"]), st.integers(0, 4)),
    max_size=60,
)


@given(EVENTS)
def test_serves_in_the_order_of_becoming_backlogged(events: list[tuple[str, int]]) -> None:
    policy = Choosing(make_policy("first-come"))
    members: set[int] = set()
    waiting: list[int] = []
    for now_ns, (event, vgpu) in enumerate(events):
        if event == "joined":
            policy.joined(vgpu, 1, now_ns)
            members.add(vgpu)
        elif event == "left":
            policy.left(vgpu, now_ns)
            members.discard(vgpu)
            waiting = [other for other in waiting if other != vgpu]
        elif event == "backlogged":
            policy.backlogged(vgpu, now_ns)
            if vgpu in members and vgpu not in waiting:
                waiting.append(vgpu)
        elif event == "charged":
            policy.charged(vgpu, 5, now_ns)
        else:
            getattr(policy, event)(vgpu, now_ns)
            waiting = [other for other in waiting if other != vgpu]
        expected = waiting[0] if waiting else None
        assert policy.pick(now_ns) == expected
        assert policy.pick(now_ns) == expected  # asking changes nothing


def test_weights_do_not_matter() -> None:
    policy = Choosing(make_policy("first-come"))
    policy.joined(1, 1, 0)
    policy.joined(2, 100, 0)
    policy.backlogged(1, 1)
    policy.backlogged(2, 2)
    policy.weight_changed(2, 1000, 3)
    assert policy.pick(4) == 1


def test_an_unknown_policy_is_named_with_those_that_exist() -> None:
    try:
        make_policy("fastest")
    except UnknownPolicyError as error:
        assert "fastest" in str(error)
        assert all(name in str(error) for name in POLICIES)
    else:
        raise AssertionError("an unknown policy was accepted")
