"""What a burst of work costs its vGPU: the device's time as use, and the way there and back as holding it, while others wait."""

import ctypes

import pytest

from backend_host.device.control import NR_OBJECTS
from tests.backend_host.parts import PAGE, TRACK, TURN, load_parts

MS = 1_000_000
LATENCY_NS, NR_BURSTS = 12_000, 40
PARTS = (*TURN, *PAGE, *TRACK, "gate", "bell")
Objects = ctypes.c_int * NR_OBJECTS


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """turn.c with what it calls here."""
    library = load_parts("bursts", PARTS, tmp_path_factory.mktemp("bursts"))
    library.begin.argtypes = [Objects, ctypes.c_uint64, ctypes.c_bool, ctypes.c_bool]
    library.begin.restype = ctypes.c_bool
    library.burst.argtypes = library.mate_charges.argtypes = [ctypes.c_uint64]
    library.burst_beside.argtypes = [ctypes.c_uint64] * 2
    library.burst.restype = library.burst_beside.restype = library.used_ns.restype = library.held_ns.restype = (
        ctypes.c_uint64
    )
    return library


def test_a_turn_of_bursts_costs_what_a_turn_of_one_costs(library: ctypes.CDLL, objects: list[int]) -> None:
    """A program that waits for each kernel keeps the device for as long as one that queues them."""
    assert library.begin(Objects(*objects), LATENCY_NS, True, False)
    took_ns = sum(library.burst(MS) for _ in range(NR_BURSTS))
    assert library.held_ns() == NR_BURSTS * LATENCY_NS
    assert library.used_ns() + library.held_ns() == took_ns


def test_what_is_shorter_than_the_latency_holds_the_device_for_as_long_as_it_takes(
    library: ctypes.CDLL, objects: list[int]
) -> None:
    assert library.begin(Objects(*objects), LATENCY_NS, True, False)
    took_ns = library.burst(LATENCY_NS // 3)
    assert (library.used_ns(), library.held_ns()) == (0, took_ns)


@pytest.mark.parametrize(
    ("has_other", "has_mate", "is_closed"), [(False, False, False), (True, True, False), (True, False, True)]
)
def test_nobody_is_kept_off_the_device(
    library: ctypes.CDLL, objects: list[int], has_other: bool, has_mate: bool, is_closed: bool
) -> None:
    """Where nobody waits, another program of the vGPU uses it meanwhile, or the grant has gone on."""
    assert library.begin(Objects(*objects), LATENCY_NS, has_other, has_mate)
    if is_closed:
        library.close_turn()
    took_ns = library.burst(MS)
    assert (library.used_ns(), library.held_ns()) == (took_ns - LATENCY_NS, 0)


def test_a_charge_of_another_program_of_the_vgpu_makes_nothing_free(library: ctypes.CDLL, objects: list[int]) -> None:
    """Nor does it cost more than its own once the work has ended."""
    assert library.begin(Objects(*objects), LATENCY_NS, False, True)
    took_ns = library.burst_beside(MS, 1000)
    assert library.used_ns() == took_ns - LATENCY_NS
    library.mate_charges(1000)
    assert library.used_ns() == took_ns - LATENCY_NS + 1000
