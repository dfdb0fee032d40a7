"""The cost of a decision of fair queuing, in operations: what it calls and what it compares, not how long that takes."""

import sys
from functools import cache
from types import FrameType

import pytest
from sortedcontainers import SortedList

from benchmarks.cli import main
from benchmarks.experiments.decisions import AIMS, SIZES, Turns
from scheduler.fair import FairQueuing

NR_DECISIONS = 300


class Counted(int):
    """A charge whose tags are compared in Python, so that each comparison of two tags is a call that can be counted."""

    def __mul__(self, other: int) -> "Counted":
        return Counted(int(self) * int(other))

    def __add__(self, other: int) -> "Counted":
        return Counted(int(self) + int(other))

    __radd__ = __add__

    def __divmod__(self, other: int) -> tuple["Counted", "Counted"]:
        quotient, rest = divmod(int(self), int(other))
        return Counted(quotient), Counted(rest)

    def __lt__(self, other: int) -> bool:
        return int.__lt__(self, other)

    def __gt__(self, other: int) -> bool:
        return int.__gt__(self, other)

    def __eq__(self, other: object) -> bool:
        return int.__eq__(self, other)

    __hash__ = int.__hash__


class CountedTags(FairQueuing):
    """Of its tags, comparisons are counted from `begin` on."""

    is_counting = False

    def begin(self) -> None:
        self.is_counting = True
        self._queue = SortedList([(Counted(tag), vgpu) for tag, vgpu in self._queue])
        for account in self._accounts.values():
            account.tag = Counted(account.tag)

    def charged(self, vgpu: int, used_ns: int, now_ns: int) -> None:
        super().charged(vgpu, Counted(used_ns) if self.is_counting else used_ns, now_ns)


@cache
def operations(nr_vgpus: int) -> int:
    """Calls, of Python and of C functions, in NR_DECISIONS decisions; comparisons of tags among them."""
    policy = CountedTags()
    turns = Turns(policy, nr_vgpus)
    for vgpu in range(nr_vgpus):
        policy.charged(vgpu, 1 + vgpu * 7919 % 100_000, 0)
    policy.begin()
    nr = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal nr
        nr += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        for _ in range(NR_DECISIONS):
            turns.decide()
    finally:
        sys.setprofile(None)
    return nr


@pytest.mark.parametrize(("nr_vgpus", "aim"), AIMS.items())
def test_a_decision_among_many_costs_little_more_than_among_ten(nr_vgpus: int, aim: float) -> None:
    assert operations(nr_vgpus) <= aim * operations(10)


def test_comparisons_are_counted() -> None:
    """Otherwise the cost could not depend on the number of vGPUs at all."""
    assert operations(1_000) > 1.2 * operations(10)


def test_the_benchmark_prints_every_size(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.experiments.decisions.SIZES", (10, 30))
    assert (
        main(["decisions", "--device", "soft", "--policy", "fair,credit-hs", "--decisions", "20", "--repetitions", "1"])
        == 0
    )
    printed = capsys.readouterr().out
    assert "credit-hs" in printed
    assert " 30 " in printed
    assert SIZES[0] == 10, "ratios are to ten"
