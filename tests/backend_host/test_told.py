"""What a client was told of its module variables: each address means one thing, wherever the variables are, and no other address is changed."""

import ctypes
import random

import pytest

from tests.backend_host.parts import load_parts
from tests.backend_host.test_handles import LIBRARY, MODULE

AREA, AREA_BYTES = 0x5000_0000_0000, 64 << 20
MOST = 4096
HERE, THERE = 0x7F00_0000_0000, 0x7F80_0000_0000


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = load_parts("told_table", ["client/kernel", "client/told"], tmp_path_factory.mktemp("told"))
    library.begin.argtypes = [ctypes.c_bool, ctypes.c_bool]
    library.tell.argtypes = [ctypes.c_uint8, *[ctypes.c_uint64] * 4]
    library.will_be.argtypes = [ctypes.c_uint64] * 2
    library.forget.argtypes = [ctypes.c_uint8, ctypes.c_uint64]
    library.forget_context.argtypes = [ctypes.c_uint64]
    for name in ("tell", "led", "as_told", "pass_on"):
        getattr(library, name).restype = ctypes.c_uint64
    for name in ("led", "as_told", "pass_on"):
        getattr(library, name).argtypes = [ctypes.c_uint64]
    library.lead.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint32, ctypes.c_uint32]
    library.lead.restype = ctypes.c_int64
    library.hides.argtypes = [ctypes.c_uint64] * 2
    library.hides.restype = library.is_lost.restype = ctypes.c_bool
    library.begin(True, True)
    return library


@pytest.fixture(autouse=True)
def fresh(told: ctypes.CDLL) -> None:
    told.begin(True, True)


def tell(told: ctypes.CDLL, address: int, nr_bytes: int = 64, owner: int = 1) -> int:
    return int(told.tell(MODULE, owner, 0, address, nr_bytes))


def test_addresses_lead_to_where_variables_are(told: ctypes.CDLL) -> None:
    assert tell(told, HERE) == HERE
    assert told.led(HERE + 63) == HERE + 63
    told.will_be(HERE, THERE)
    told.exchange()
    assert [told.led(HERE + at) for at in (-1, 0, 63, 64)] == [HERE - 1, THERE, THERE + 63, HERE + 64]
    assert [told.as_told(THERE + at) for at in (-1, 0, 63, 64)] == [THERE - 1, HERE, HERE + 63, THERE + 64]
    assert tell(told, THERE) == HERE, "it is told what it was told"
    told.exchange()
    assert told.led(HERE) == HERE


def test_what_changes_places_means_what_it_meant(told: ctypes.CDLL) -> None:
    """Two moves, after which each lies where the other was told to be."""
    assert [tell(told, HERE), tell(told, HERE + 4096)] == [HERE, HERE + 4096]
    for now, other in ((HERE, THERE), (HERE + 4096, THERE + 4096)):
        told.will_be(now, other)
    told.exchange()
    for now, other in ((THERE, HERE + 4096), (THERE + 4096, HERE)):
        told.will_be(now, other)
    told.exchange()
    assert [told.led(HERE + 4), told.led(HERE + 4096)] == [HERE + 4100, HERE]


def test_a_variable_that_comes_where_another_was_told_to_be(told: ctypes.CDLL) -> None:
    """It is told elsewhere, where there is no memory, and its address leads to it."""
    tell(told, HERE)
    told.will_be(HERE, THERE)
    told.exchange()
    other = tell(told, HERE + 32, 100, owner=2)
    assert AREA <= other <= AREA + AREA_BYTES - 100
    assert other % 256 == 0
    assert [told.led(HERE + 40), told.led(other + 99)] == [THERE + 40, HERE + 131]
    assert [told.as_told(HERE + 32), told.as_told(THERE)] == [other, HERE]
    assert tell(told, HERE + 32, 100, owner=2) == other
    told.forget(MODULE, 1)
    assert told.led(HERE) == HERE
    assert told.led(other) == HERE + 32


def test_no_addresses_are_left_for_it(told: ctypes.CDLL) -> None:
    told.begin(True, False)
    tell(told, HERE)
    assert tell(told, HERE + 8) == 0
    assert told.is_lost()
    told.begin(True, True)
    tell(told, HERE)
    assert tell(told, HERE + 8, AREA_BYTES + 1) == 0


def test_what_is_told_beyond_the_table_is_lost(told: ctypes.CDLL) -> None:
    for i in range(MOST):
        assert tell(told, HERE + 64 * i) == HERE + 64 * i
    assert not told.is_lost()
    assert tell(told, THERE) == THERE
    assert told.is_lost()
    assert told.nr_told() == MOST


def test_nothing_is_noted_where_nobody_moves(told: ctypes.CDLL) -> None:
    told.begin(False, True)
    assert tell(told, HERE) == HERE
    assert told.nr_told() == 0


def test_a_variable_of_no_bytes_has_no_address(told: ctypes.CDLL) -> None:
    assert tell(told, HERE, 0) == HERE
    assert told.nr_told() == 0


@pytest.mark.parametrize("nr_bytes", [1 << 63, (1 << 64) - 1])
def test_sizes_that_no_variable_has(told: ctypes.CDLL, nr_bytes: int) -> None:
    """A driver that is none of ours may say so."""
    tell(told, HERE, nr_bytes)
    tell(told, THERE, 64, owner=2)
    assert told.led(HERE - 1) == HERE - 1


def test_what_is_passed_to_kernels_counts_once(told: ctypes.CDLL) -> None:
    tell(told, HERE)
    tell(told, HERE + 64)
    assert [told.pass_on(at) for at in (HERE - 1, HERE + 128)] == [HERE - 1, HERE + 128]
    assert told.nr_passed() == 0
    assert [told.pass_on(at) for at in (HERE + 64, HERE + 127)] == [HERE + 64, HERE + 127]
    assert told.nr_passed() == 1
    told.will_be(HERE + 64, THERE)
    told.will_be(HERE, THERE + 64)
    told.exchange()
    assert [told.pass_on(at) for at in (HERE + 127, HERE)] == [THERE + 63, THERE + 64]
    assert told.nr_passed() == 2
    told.forget(MODULE, 1)
    assert told.nr_passed() == 0


def test_memory_of_the_drivers_that_would_have_two_meanings(told: ctypes.CDLL) -> None:
    tell(told, HERE)
    assert not told.hides(0, 1 << 63), "it is there"
    told.will_be(HERE, THERE)
    told.exchange()
    assert [told.hides(at, 16) for at in (HERE - 16, HERE - 15, HERE + 63, HERE + 64, THERE)] == [
        False,
        True,
        True,
        False,
        False,
    ]


def test_what_goes_with_its_module_its_library_or_the_context(told: ctypes.CDLL) -> None:
    for i, (kind, owner, context) in enumerate([(MODULE, 1, 7), (LIBRARY, 1, 7), (LIBRARY, 1, 8), (MODULE, 2, 7)]):
        told.tell(kind, owner, context, HERE + 64 * i, 64)
    told.forget_context(7)
    assert told.nr_told() == 3
    told.forget(LIBRARY, 1)
    told.forget(MODULE, 1)
    assert told.nr_told() == 1


@pytest.mark.parametrize("seed", range(8))
def test_addresses_stay_what_they_mean(told: ctypes.CDLL, seed: int) -> None:
    """Modules come, move and go at random, at few places: what a byte of a variable was told to be always leads to it."""
    draw = random.Random(seed)
    places = [HERE + 64 * i for i in range(12)]
    at: dict[int, int] = {}
    """Where a variable is, by what was told."""
    owners: dict[int, int] = {}
    for owner in range(2, 300):
        free = [place for place in places if place not in at.values()]
        step = draw.choice(["load", "load", "move", "unload"])
        if step == "load" and free:
            place = draw.choice(free)
            name = tell(told, place, 64, owner)
            assert name not in at
            at[name], owners[name] = place, owner
        elif step == "unload" and at:
            name = draw.choice(sorted(at))
            told.forget(MODULE, owners.pop(name))
            del at[name]
        elif step == "move":
            new = dict(zip(at, draw.sample(places, len(at)), strict=True))
            for name, place in new.items():
                told.will_be(at[name], place)
            told.exchange()
            at = new
        for name, place in at.items():
            assert [told.led(name), told.led(name + 63), told.as_told(place + 1)] == [place, place + 63, name + 1]


NOWHERE = (1 << 32) - 1


def test_parameters_are_led_by_one_question_each(told: ctypes.CDLL) -> None:
    """However many of them are addresses: a launch keeps the GPU for as long as that takes."""
    tell(told, HERE)
    told.will_be(HERE, THERE)
    told.exchange()
    nr = 4000
    words = (ctypes.c_uint64 * nr)(*[HERE + 8] * nr)
    assert told.lead(words, nr, NOWHERE) <= nr + 1
    assert set(words) == {THERE + 8}
    assert told.lead((ctypes.c_uint64 * nr)(*[1] * nr), nr, NOWHERE) == 0, "no address of a variable is among them"


def test_a_launch_whose_parameters_cannot_be_led_fails(told: ctypes.CDLL) -> None:
    tell(told, HERE)
    assert told.lead((ctypes.c_uint64 * 4)(1, HERE, 2, 3), 4, 1) == -999
