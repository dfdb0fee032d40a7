"""What vGPUs are entitled to of a GPU: by weight, with requests and limits, and beside others that are active alone."""

from collections.abc import Mapping
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_host import entitled
from backend_host.device.control import ControlPage
from backend_host.entitled import entitled_shares
from backend_host.entitlement import Entitlement
from backend_host.grants import GrantKeeper
from scheduler.elastic import Claim, Elastic, allotments


def test_weights_alone() -> None:
    found = entitled_shares({1: Entitlement(1), 5: Entitlement(2), 7: Entitlement(5)})
    assert found == pytest.approx({1: 1 / 8, 5: 2 / 8, 7: 5 / 8})
    assert entitled_shares({3: Entitlement(7)}) == {3: 1.0}
    assert entitled_shares({}) == {}


def test_requests_and_limits() -> None:
    found = entitled_shares({1: Entitlement(request=60.0), 2: Entitlement(2, limit=10.0), 3: Entitlement(2)})
    assert found == pytest.approx({1: 0.6, 2: 0.1, 3: 0.3})
    assert entitled_shares({2: Entitlement(limit=12.5)}) == {2: 0.125}, "alone, too"


@given(st.dictionaries(st.integers(0, 63), st.integers(1, 10_000), min_size=1))
def test_all_is_handed_out(weights: dict[int, int]) -> None:
    found = entitled_shares({vgpu: Entitlement(weight) for vgpu, weight in weights.items()})
    assert sum(found.values()) == pytest.approx(1)
    assert all(found[vgpu] == pytest.approx(weight / sum(weights.values())) for vgpu, weight in weights.items())


def test_what_many_looks_find_alike_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As who is active changes at each look. What others ask for is found at once."""
    computed: list[int] = []

    def counted(claims: Mapping[int, Claim]) -> dict[int, Fraction]:
        computed.append(len(claims))
        return allotments(claims)

    monkeypatch.setattr(entitled, "allotments", counted)
    entitled._parts.cache_clear()
    everybody = {vgpu: Entitlement(1 + vgpu % 2, limit=60.0) for vgpu in range(64)}
    active = [{vgpu: everybody[vgpu] for vgpu in (first, (first + 1) % 64)} for first in range(64)]
    found = [entitled_shares(each) for each in active]
    assert computed == [2]
    assert found == [{vgpu: [0.4, 0.6][vgpu % 2] for vgpu in each} for each in active]
    assert entitled_shares({0: Entitlement(3), 1: Entitlement(1)}) == {0: 0.75, 1: 0.25}
    assert computed == [2, 2]


def test_what_is_kept_is_bounded() -> None:
    for weight in range(1, 2 * entitled._MOST_KEPT):
        entitled_shares({0: Entitlement(weight)})
    assert entitled._parts.cache_info().currsize == entitled._MOST_KEPT


def test_only_those_that_are_active_share(control: ControlPage) -> None:
    keeper = GrantKeeper(control, Elastic())
    first, second, third = (control.vgpu_take(0) for _ in range(3))
    for vgpu, weight in ((first, 1), (second, 3), (third, 4)):
        keeper.join(vgpu, Entitlement(weight))
    assert keeper.entitled_shares({}) == {}
    assert keeper.entitled_shares({first: 1, second: 1}) == pytest.approx({first: 0.25, second: 0.75})
    keeper.change(first, Entitlement(9))
    assert keeper.entitled_shares({first: 1, second: 1}) == pytest.approx({first: 0.75, second: 0.25}), "at once"
    keeper.leave(second)
    assert keeper.entitled_shares({first: 1, second: 1}) == {first: 1.0}
