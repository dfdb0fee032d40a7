"""Bursts of GPU time by hand: what ends one, what does not, which are kept, and what is said of them."""

from scheduler.bursts import KEPT, Bursts, BurstView
from scheduler.patience import SWITCH_NS

US = 1_000
MS = 1_000_000
SECOND_NS = 1000 * MS


def test_nothing_is_known_before_a_burst_has_ended() -> None:
    bursts = Bursts()
    assert not bursts.resume(SWITCH_NS, SECOND_NS), "what never paused"
    bursts.pause(0, SECOND_NS)
    assert not bursts.resume(SWITCH_NS, 2 * SECOND_NS), "it has used nothing"
    assert bursts.view() == BurstView(0, 0, 0)


def test_short_pauses_are_within_a_burst() -> None:
    bursts = Bursts()
    for nr in range(1, 11):
        bursts.pause(nr * 100 * US, nr * 2 * MS)
        assert bursts.resume(SWITCH_NS, nr * 2 * MS + SWITCH_NS + (nr == 10)) == (nr == 10)
    assert bursts.view() == BurstView(MS, MS, SWITCH_NS + 1)
    assert not bursts.resume(SWITCH_NS, SECOND_NS), "what goes on has no pause"


def test_five_percent_of_a_long_burst_are_a_short_pause() -> None:
    bursts = Bursts()
    bursts.pause(100 * MS, 1)
    assert not bursts.resume(SWITCH_NS, 1 + 5 * MS)
    bursts.pause(150 * MS, SECOND_NS)
    assert bursts.resume(SWITCH_NS, SECOND_NS + 7_501 * US)
    assert bursts.view().last_ns == 150 * MS


def test_nine_in_ten_of_the_last_ones() -> None:
    bursts, gpu_ns = Bursts(), 0
    for nr in range(1, KEPT + 11):
        gpu_ns += nr * MS
        bursts.pause(gpu_ns, nr * SECOND_NS)
        assert bursts.resume(SWITCH_NS, nr * SECOND_NS + 100 * MS)
    assert bursts.nr == KEPT + 10
    assert bursts.view() == BurstView(39 * MS, 42 * MS, 100 * MS), "29 of 32: those of 11 to 39 ms"
