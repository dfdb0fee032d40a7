"""Shares over time of a known record: who is entitled to what when, and what each one had."""

from typing import Any

import pytest

from benchmarks.errors import NotMeasurableError
from benchmarks.experiments import EXPERIMENTS
from benchmarks.experiments.shares_over_time import Watch, mean_share, phases, shares
from benchmarks.guests import Account

EXPERIMENT = EXPERIMENTS["shares-over-time"]


def change(at_s: float, guest: int, weight: int) -> dict[str, Any]:
    return {"at_s": at_s, "guest": guest, "weight": weight}


def record() -> dict[str, Any]:
    """A of weight 1 and B of weight 3; C of weight 4 comes at 4 s; A weighs 5 from 8 s on. Each has what it is entitled to, to the second."""
    used_s, samples = [0.0, 0.0, 0.0], [{"at_s": 0.0, "used_s": [0.0, 0.0, 0.0]}]
    for second in range(12):
        parts = (1 / 4, 3 / 4, 0) if second < 4 else (1 / 8, 3 / 8, 4 / 8) if second < 8 else (5 / 12, 3 / 12, 4 / 12)
        used_s = [used + part for used, part in zip(used_s, parts, strict=True)]
        samples.append({"at_s": second + 1.0, "used_s": used_s})
    changes = [change(0.0, 0, 1), change(0.0, 1, 3), change(4.0, 2, 4), change(8.0, 0, 5)]
    return {"kind": "shares over time", "seconds": 12.0, "changes": changes, "samples": samples}


def test_a_change_begins_a_phase() -> None:
    first, second, third = phases(record())
    assert (first.begin_s, first.end_s, first.weights) == (0.0, 4.0, {0: 1, 1: 3})
    assert (second.begin_s, second.end_s, second.weights) == (4.0, 8.0, {0: 1, 1: 3, 2: 4})
    assert (third.begin_s, third.end_s) == (8.0, 12.0)
    assert first.entitled == {0: 0.25, 1: 0.75}
    assert third.entitled == pytest.approx({0: 5 / 12, 1: 3 / 12, 2: 4 / 12})


def test_a_share_is_what_was_used_over_the_time_between_two_looks() -> None:
    at_s, parts = shares(record())
    assert list(at_s) == [float(second) for second in range(13)]
    assert parts.shape == (12, 3)
    assert parts[0] == pytest.approx([0.25, 0.75, 0])
    assert parts[11] == pytest.approx([5 / 12, 3 / 12, 4 / 12])


def test_what_a_guest_had_stands_beside_what_it_was_entitled_to() -> None:
    for phase in phases(record()):
        for guest, entitled in phase.entitled.items():
            assert mean_share(record(), phase, guest) == pytest.approx(entitled)
    [sheet] = EXPERIMENT.sheets({"records": [record()]})
    assert sheet.rows[0] == ("0.0 to 4.0", "A", "1", "25.0", "25.0", "1.000")
    assert sheet.rows[-1] == ("8.0 to 12.0", "C", "4", "33.3", "33.3", "1.000")
    assert len(sheet.rows) == 2 + 3 + 3


def test_nothing_measured_is_nothing_to_draw() -> None:
    with pytest.raises(NotMeasurableError, match="nothing was measured"):
        EXPERIMENT.plot({"records": []}, None)


class Accounts:
    """A session whose guest uses a second at each look, and which fails at the third one."""

    nr_looks = 0

    def accounts(self) -> tuple[Account, ...]:
        self.nr_looks += 1
        if self.nr_looks == 3:
            raise ConnectionError("the daemon is gone")
        return (Account(self.nr_looks * 10**9, 5 * 10**8, 0, 0, 0, 0),)


def test_looks_that_fail_are_not_hidden() -> None:
    session = Accounts()
    with pytest.raises(ConnectionError, match="the daemon is gone"), Watch(session, 1e-3) as watch:
        while session.nr_looks < 3:
            watch.now_s()
    assert [sample["used_s"] for sample in watch.samples] == [[1.5], [2.5]]
