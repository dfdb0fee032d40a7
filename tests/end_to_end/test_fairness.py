"""Shares of the device, with real programs through the rings: the default policy keeps to the weights, where turns alone do not.

How close they come is for the benchmark to say (`python -m benchmarks.fairness`): here other programs may use the processors meanwhile, and
a guest that is not run cannot ask for its share.
"""

import pytest

from benchmarks.fairness import Mixture, measure, min_max_ratio
from scheduler.registry import DEFAULT_POLICY

CLEARLY_FAIR, CLEARLY_UNFAIR = 0.6, 0.5
SLICE_MS = 2.0
ONE_TO_THREE = Mixture(weights=(1, 3), kernel_us=(400.0,), queue=(256,))
LONGER_THAN_A_SLICE = Mixture(weights=(1, 1), kernel_us=(100.0, 4 * SLICE_MS * 1000), queue=(1024, 16))


def test_min_max_ratio() -> None:
    assert min_max_ratio([2.0, 2.0]) == 1
    assert min_max_ratio([1.0, 4.0, 2.0]) == 0.25
    assert min_max_ratio([0.0, 0.0]) == 0


@pytest.mark.parametrize("mixture", [ONE_TO_THREE, LONGER_THAN_A_SLICE], ids=["weights", "long kernels"])
def test_the_default_policy_is_fair_where_turns_are_not(mixture: Mixture) -> None:
    fair = measure(DEFAULT_POLICY, mixture, "soft", SLICE_MS, window_s=4, alone=(1.0, 1.0))
    in_turn = measure("first-come", mixture, "soft", SLICE_MS, window_s=4, alone=(1.0, 1.0))
    assert in_turn.charged_min_max_ratio < CLEARLY_UNFAIR, "the test could not fail"
    assert fair.charged_min_max_ratio > CLEARLY_FAIR, fair
