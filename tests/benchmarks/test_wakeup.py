"""The arithmetic of benchmarks.wakeup; its guest is booted by hand."""

from benchmarks.wakeup import MEASURES, WAYS, rows_of


def test_ratios_are_of_one_round_and_their_median() -> None:
    """A round in which the machine was slow changes the times and not the ratio."""
    rounds = [
        {way: dict.fromkeys(MEASURES, factor * (1.0 if way == "sysfs" else 0.25)) for way in WAYS}
        for factor in (100.0, 900.0, 120.0)
    ]
    sysfs, module, interrupts = rows_of(rounds)
    assert [row.way for row in (sysfs, module, interrupts)] == list(WAYS)
    assert sysfs.us == dict.fromkeys(MEASURES, 120.0)
    assert sysfs.ratio == dict.fromkeys(MEASURES, 1.0)
    assert module.ratio == interrupts.ratio == dict.fromkeys(MEASURES, 0.25)
    assert interrupts.nr_rounds == 3
