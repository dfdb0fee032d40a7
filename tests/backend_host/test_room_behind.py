"""How long the room of a round stands behind it: a moment, and not at all where the next one is not expected within that."""

import ctypes
import random
from collections.abc import Sequence

import pytest

from tests.backend_host.parts import load_parts

US, MS = 1_000, 1_000_000
MOMENT_NS = 500 * US


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """turn/room_behind.h by itself."""
    library = load_parts("room_behind", [], tmp_path_factory.mktemp("room_behind"))
    library.paused.argtypes = [ctypes.c_uint64]
    library.stands_ns.restype = ctypes.c_uint64
    return library


def stands(room: ctypes.CDLL, pauses: Sequence[int]) -> list[int]:
    """After each of them."""
    room.begin()
    found = []
    for pause in pauses:
        room.paused(pause)
        found.append(room.stands_ns())
    return found


def test_it_stands_while_nothing_is_known(room: ctypes.CDLL) -> None:
    assert stands(room, []) == []
    assert room.stands_ns() == MOMENT_NS
    assert stands(room, [2 * MS]) == [MOMENT_NS], "one pause is no rule"


def test_where_pauses_are_long_it_goes_at_once(room: ctypes.CDLL) -> None:
    drawn = random.Random(1)
    found = stands(room, [drawn.randint(MS, 3 * MS) for _ in range(1000)])
    assert set(found[5:]) == {0}


@pytest.mark.parametrize("pauses", [[10 * US], [400 * US], [450 * US, 550 * US]])
def test_where_they_are_short_it_stands(room: ctypes.CDLL, pauses: list[int]) -> None:
    assert set(stands(room, pauses * 100)) == {MOMENT_NS}


def test_where_rounds_come_in_rows_it_stands(room: ctypes.CDLL) -> None:
    """Layers of a network, that is: eight rounds in a row, then a request's end."""
    assert set(stands(room, ([10 * US] * 7 + [20 * MS]) * 50)) == {MOMENT_NS}


def test_the_first_short_pause_brings_it_back(room: ctypes.CDLL) -> None:
    found = stands(room, [2 * MS] * 50 + [10 * US] + [2 * MS])
    assert (found[49], found[50], found[51]) == (0, MOMENT_NS, MOMENT_NS)


def test_one_long_rest_changes_nothing(room: ctypes.CDLL) -> None:
    found = stands(room, [2 * MS] * 50 + [60_000 * MS] + [2 * MS] * 5)
    assert set(found[40:]) == {0}
