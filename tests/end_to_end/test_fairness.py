"""Shares of the device, with real programs through the rings: the default policy keeps to the weights, where turns alone do not.

How close they come is for the benchmark to say (`python -m benchmarks.fairness`): here other programs may use the processors meanwhile, and
a guest that is not run cannot ask for its share.
"""

import pytest

from benchmarks.fairness import Mixture, measure, min_max_ratio
from scheduler.registry import DEFAULT_POLICY

CLEARLY_FAIR, CLEARLY_UNFAIR = 0.75, 0.5
ALWAYS_BACKLOGGED = Mixture(weights=(1, 3), kernel_us=(400.0,), queue=(256,))
KERNELS_SHORT_AND_LONG = Mixture(weights=(1, 1), kernel_us=(100.0, 4000.0), queue=(1024, 32))


def test_min_max_ratio() -> None:
    assert min_max_ratio([2.0, 2.0]) == 1
    assert min_max_ratio([1.0, 4.0, 2.0]) == 0.25
    assert min_max_ratio([0.0, 0.0]) == 0


def test_shares_follow_the_weights() -> None:
    fair = measure(DEFAULT_POLICY, ALWAYS_BACKLOGGED, "soft", None, window_s=2.5)
    assert fair.charged_min_max_ratio > CLEARLY_FAIR
    in_turn = measure("first-come", ALWAYS_BACKLOGGED, "soft", None, window_s=2.5)
    assert in_turn.charged_min_max_ratio < CLEARLY_UNFAIR, "the weights would not be seen to matter"


@pytest.mark.parametrize("slice_ms", [2.0, 20.0])
def test_the_length_of_kernels_gives_no_advantage(slice_ms: float) -> None:
    assert (
        measure(DEFAULT_POLICY, KERNELS_SHORT_AND_LONG, "soft", slice_ms, window_s=2.5).charged_min_max_ratio
        > CLEARLY_FAIR
    )
