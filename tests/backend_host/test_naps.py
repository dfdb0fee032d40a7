"""While its work is on the device a worker sleeps, but not through the moment in which it is to hand the grant on."""

import ctypes

import pytest

from backend_host.device.control import NR_OBJECTS
from tests.backend_host.parts import PAGE, TRACK, TURN, load_parts

US = 1000
WORK_NS, LATE_NS = 500 * US, 10 * US
LEAD_NS = 50 * US
PARTS = ("rest", "round", "space_gate", *TURN, *PAGE, *TRACK)
MOMENTS = range(60 * US, WORK_NS - LEAD_NS, US)


Objects = ctypes.c_int * NR_OBJECTS


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """rest.c with what it calls here."""
    library = load_parts("naps", PARTS, tmp_path_factory.mktemp("naps"))
    library.begin.argtypes = [Objects, ctypes.c_bool, ctypes.c_uint64, ctypes.c_uint64]
    library.begin.restype = ctypes.c_bool
    library.nap_ns.argtypes = [ctypes.c_uint64]
    library.nap_ns.restype = ctypes.c_uint64
    library.rest.argtypes = [ctypes.c_bool, ctypes.c_long]
    library.gap.argtypes = [ctypes.c_uint64]
    return library


def ends(library: ctypes.CDLL) -> dict[int, int]:
    """For each moment when the sleep is over that begins then, late as it is."""
    naps = {at: library.nap_ns(at) for at in MOMENTS}
    return {at: at + nap + LATE_NS if nap else at for at, nap in naps.items()}


def test_who_is_to_hand_the_grant_on_is_awake_then(library: ctypes.CDLL, objects: list[int]) -> None:
    assert library.begin(Objects(*objects), True, WORK_NS, LATE_NS)
    library.end_slice()
    ends_at = ends(library)
    assert max(ends_at.values()) <= WORK_NS - LEAD_NS
    assert all(ends_at[at] > at for at in MOMENTS if at < WORK_NS // 2), "it sleeps while there is time"


@pytest.mark.parametrize(("is_preemptive", "is_over"), [(True, False), (False, True)])
def test_nobody_is_kept_awake_for_a_grant_that_stays_until_the_end(
    library: ctypes.CDLL, objects: list[int], is_preemptive: bool, is_over: bool
) -> None:
    """In its slice, or on a device that does not preempt."""
    assert library.begin(Objects(*objects), is_preemptive, WORK_NS, LATE_NS)
    if is_over:
        library.end_slice()
    ends_at = ends(library)
    assert all(ends_at[at] > at for at in MOMENTS)
    assert max(ends_at.values()) > WORK_NS - LEAD_NS


def test_who_waits_at_the_gate_of_its_space_sleeps_until_its_bell(library: ctypes.CDLL, objects: list[int]) -> None:
    """Without looking at what the bell tells, that is; ten times a second is for bells that nobody can ring."""
    assert library.begin(Objects(*objects), True, WORK_NS, LATE_NS)
    library.wait_at_gate(0x10004)
    assert library.nap_ns(1000 * US) == 100_000 * US


def test_who_finds_the_gate_open_does_not_sleep(library: ctypes.CDLL, objects: list[int]) -> None:
    assert library.begin(Objects(*objects), True, WORK_NS, LATE_NS)
    library.wait_at_gate(0)
    assert library.nap_ns(1000 * US) == 0


@pytest.mark.parametrize(("is_held_back", "nap_ns"), [(False, 0), (True, 100_000 * US)])
def test_what_waits_for_nothing_is_tried_at_once(
    library: ctypes.CDLL, objects: list[int], is_held_back: bool, nap_ns: int
) -> None:
    """A critical one gives its turn up for its companion, beside which it goes on. What a limit holds back is not tried."""
    assert library.begin(Objects(*objects), True, WORK_NS, LATE_NS)
    library.stand_out_with_a_backlog(is_held_back)
    assert library.nap_ns(1000 * US) == nap_ns


@pytest.mark.parametrize(
    ("is_critical", "nr_cpus", "pause_ns", "sleeps"),
    [
        (True, 16, 3000 * US, False),
        (True, 16, 6000 * US, True),
        (True, 4, 3000 * US, True),
        (False, 16, 3000 * US, True),
        (False, 16, 90 * US, False),
    ],
)
def test_a_critical_one_is_awake_through_pauses_of_milliseconds(
    library: ctypes.CDLL, objects: list[int], is_critical: bool, nr_cpus: int, pause_ns: int, sleeps: bool
) -> None:
    """To wake up takes as long as a short round. Not where it would keep a core from others that have few."""
    assert library.begin(Objects(*objects), True, WORK_NS, LATE_NS)
    library.rest(is_critical, nr_cpus)
    for _ in range(10):
        library.gap(pause_ns)
    assert (library.nap_ns(pause_ns) != 0) is sleeps
