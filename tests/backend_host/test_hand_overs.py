"""The ring of hand-overs: who had the grant, who got it, why, and how long nobody came for it."""

import json
import os
import struct
from collections.abc import Iterator, Sequence

import pytest
from backend_host.worker._worker import lib

from backend_host import hand_overs
from backend_host.device.control import ControlPage
from backend_host.device.readings import Why
from backend_host.errors import RefusedError
from backend_host.ipc import Message
from tests.backend_host.grantees import attach

MS = 1_000_000
UNUSED_NS = 2 * MS
GRANT = 1
NR_KEPT = lib.FGW_NR_HAND_OVERS


class Player:
    """A worker's side of the grant."""

    def __init__(self, page: ControlPage) -> None:
        self.vgpu = page.vgpu_take()
        page.set_standing(self.vgpu, 0, 0, charged_ns=0)
        self.slot, self.grantee = attach(page, self.vgpu)

    def enter(self) -> bool:
        return bool(lib.fgw_grant_enter(self.grantee, lib.fgw_clock_ns()))

    def leave(self, wants_more: bool = False) -> None:
        lib.fgw_grant_leave(self.grantee, wants_more, lib.fgw_clock_ns())

    def end_slice(self) -> None:
        lib.fgw_grant_close(self.grantee)
        self.leave(wants_more=True)


@pytest.fixture
def players(control: ControlPage) -> Sequence[Player]:
    return [Player(control) for _ in range(3)]


def told(page: ControlPage, after: int = 0) -> list[tuple[int | None, int | None, Why]]:
    return [(each.from_vgpu, each.to_vgpu, each.why) for each in page.hand_overs(after)]


def test_each_reason_is_told(control: ControlPage, players: Sequence[Player]) -> None:
    one, two, three = players
    assert one.enter()
    assert not two.enter()
    one.end_slice()
    assert two.enter()
    two.leave()
    assert one.enter()
    assert not three.enter()
    assert control.evict(control.holder().sequence)
    lib.fgw_grant_nudge(one.grantee, lib.fgw_clock_ns())  # looks at when the turn began
    one.leave(wants_more=True)
    lib.fgw_grant_nudge(one.grantee, lib.fgw_clock_ns() + UNUSED_NS)
    assert one.enter()
    control.repair(one.slot)
    assert three.enter()
    three.leave()
    assert told(control) == [
        (None, 0, Why.FREE),
        (0, 1, Why.SLICE),
        (1, 0, Why.IDLE),
        (0, 2, Why.EVICTED),
        (2, 0, Why.UNUSED),
        (0, 2, Why.DIED),
        (2, None, Why.IDLE),
    ]


def test_the_gap_is_that_until_the_first_worker_came(control: ControlPage, players: Sequence[Player]) -> None:
    one, two, _ = players
    assert one.enter()
    assert not two.enter()
    one.end_slice()
    assert [each.gap_ns is None for each in control.hand_overs()] == [False, True]
    at_ns = control.hand_overs()[1].at_ns
    assert lib.fgw_grant_enter(two.grantee, at_ns + 3 * MS)
    assert control.hand_overs()[1].gap_ns == 3 * MS
    two.leave()


def test_as_many_are_kept_as_there_is_room_for(control: ControlPage, players: Sequence[Player]) -> None:
    one = players[0]
    for _ in range(NR_KEPT):
        assert one.enter()
        one.leave()
    sequence = control.holder().sequence
    assert sequence == 2 * NR_KEPT
    assert [each.sequence for each in control.hand_overs()] == list(range(sequence - NR_KEPT + 1, sequence + 1))
    assert [each.sequence for each in control.hand_overs(after=sequence - 2)] == [sequence - 1, sequence]
    assert control.hand_overs(after=sequence) == []


@pytest.mark.parametrize("before", [0xFFFF_FFFE, 0xFFFF])
def test_sequence_numbers_wrap(control: ControlPage, players: Sequence[Player], before: int) -> None:
    os.pwrite(control.objects[GRANT], before.to_bytes(4, "little"), 4)
    for _ in range(2):
        assert players[0].enter()
        players[0].leave()
    found = control.hand_overs(after=before)
    assert [each.sequence for each in found] == [(before + more) % 2**32 for more in range(1, 5)]
    assert all(each.gap_ns is not None for each in found[::2])


def test_what_a_hostile_worker_writes_is_bounded(control: ControlPage, players: Sequence[Player]) -> None:
    assert players[0].enter()
    ring = 192 + 64 * 32
    entry = struct.pack("<I2H2I2Q", 1, 77, 99, 65, 60_000, 2**64 - 1, 2**64 - 1)
    os.pwrite(control.objects[GRANT], entry, ring + 32)
    [found] = control.hand_overs()
    assert (found.from_vgpu, found.to_vgpu, found.why, found.phase) == (None, None, Why.FREE, "unknown")
    os.pwrite(control.objects[GRANT], os.urandom(lib.FGW_NR_HAND_OVERS * 32), ring)
    control.hand_overs()


def test_people_are_told_names_and_nothing_that_a_terminal_obeys(
    control: ControlPage, players: Sequence[Player], capsys: pytest.CaptureFixture[str]
) -> None:
    assert players[0].enter()
    assert not players[1].enter()
    players[0].end_slice()
    names = {0: "\x1b[31mred", 1: "a name of more than fourteen letters"}
    hand_overs.show(lambda after: hand_overs.answer(control, names, after), is_followed=False, is_json=False)
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["time", "from", "to", "why", "phase", "gap"]
    assert first.split()[1:4] == ["-", "?[31mred", "free"]
    assert "a name of mor~" in second
    assert second.split()[-1] == "-", "nobody has come for it yet"
    assert max(map(len, (head, first, second))) <= 80


class NoMoreError(Exception):
    """Ends the following."""


def test_who_follows_is_told_each_one_once_and_its_gap(
    control: ControlPage, players: Sequence[Player], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, _ = players

    def take_turns() -> Iterator[None]:
        one.enter()
        yield
        two.enter()
        one.end_slice()
        yield
        two.enter()
        yield
        two.leave()
        yield
        one.enter()
        yield

    turns = take_turns()

    def ask(after: int) -> Message:
        try:
            next(turns)
        except StopIteration:
            raise NoMoreError from None
        return hand_overs.answer(control, {0: "one", 1: "two"}, after)

    with pytest.raises(NoMoreError):
        hand_overs.show(ask, is_followed=True, is_json=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line.count('"gap_ns": null') for line in lines] == [0, 0, 0]
    assert ['"to": "two"' in line for line in lines] == [False, True, False]


def told_of(sequence: int) -> Message:
    return {
        "sequence": sequence,
        "at_ns": 0,
        "from": "one",
        "to": "two",
        "why": "slice",
        "phase": "running",
        "gap_ns": 0,
    }


@pytest.mark.parametrize("comes_after", [2, None], ids=["late", "never"])
def test_one_that_is_written_late_is_told_in_its_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, comes_after: int | None
) -> None:
    """And one that nobody writes, as whoever handed over died, holds nothing up for long."""
    monkeypatch.setattr(hand_overs, "PERIOD_S", 0)
    asked: list[int] = []

    def ask(after: int) -> Message:
        asked.append(after)
        if len(asked) > hand_overs.MAX_WAITS + 2:
            raise NoMoreError
        is_missing = comes_after is None or len(asked) <= comes_after
        numbers = [number for number in (7, 8, 9) if number > after and not (number == 8 and is_missing)]
        return {"hand_overs": [told_of(number) for number in numbers]}

    with pytest.raises(NoMoreError):
        hand_overs.show(ask, is_followed=True, is_json=True)
    numbers = [json.loads(line)["sequence"] for line in capsys.readouterr().out.splitlines()]
    assert numbers == ([7, 9] if comes_after is None else [7, 8, 9])


def test_a_refusal_comes_before_the_heading(capsys: pytest.CaptureFixture[str]) -> None:
    def ask(after: int) -> Message:
        raise RefusedError("this host has several Gpus")

    for is_followed in (False, True):
        with pytest.raises(RefusedError):
            hand_overs.show(ask, is_followed=is_followed, is_json=False)
    assert capsys.readouterr().out == ""
