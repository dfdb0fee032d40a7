"""A suspended worker whose contexts leave the device: it stands, sees its client call, and goes on when it is told."""

import contextlib
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from backend_host.device.readings import Sleep, Stage, WorkerReading
from tests.backend_host.swapping import DEVICE, STEP, filled, numbered, words
from tests.backend_host.test_motion import reading, with_span
from tests.backend_host.worker_guest import kernel_image
from tests.backend_host.worker_harness import Served
from tests.beside import beside
from tests.end_to_end.host import wait_until

VARIABLE = ".version 7.0\n.target sm_70\n.address_size 64\n.global .align 4 .b8 variable[1048576];"


@pytest.fixture
def served() -> Iterator[Served]:
    with with_span() as served:
        yield served


def now(served: Served) -> WorkerReading:
    return reading(served.host.control, served.worker.slot)


def wait_for(served: Served, is_so: Callable[[WorkerReading], bool], what: str) -> None:
    wait_until(lambda: is_so(now(served)), what)


def suspend(served: Served, *, is_suspended: bool = True) -> None:
    served.host.control.set_suspended(served.vgpu, is_suspended=is_suspended)


def tell(served: Served, sleep: Sleep) -> None:
    served.host.control.set_sleep(served.worker.slot, sleep)


def lay(served: Served) -> None:
    """As the daemon does, but for what the driver does."""
    suspend(served)
    tell(served, Sleep.STAND)
    wait_for(served, lambda each: each.stage is Stage.STANDS, "it stands")
    tell(served, Sleep.ASLEEP)


def test_it_stands_once_all_of_its_memory_has_left(served: Served) -> None:
    addresses = filled(served.guest, 5)
    lay(served)
    assert (now(served).resident_bytes, now(served).phase) == (0, "out")
    suspend(served, is_suspended=False)
    tell(served, Sleep.NONE)
    wait_for(served, lambda each: each.resident_bytes == 5 * STEP and each.stage is Stage.RUNS, "all is back")
    assert words(served.guest, addresses) == numbered(5)


@pytest.mark.parametrize("nr", [0, 3])
def test_a_call_waits_until_it_is_awake(served: Served, nr: int) -> None:
    """With memory in the span and without."""
    addresses = filled(served.guest, nr)
    lay(served)
    before = now(served)
    slot = served.guest.begin("cuCtxSynchronize")
    wait_for(served, lambda each: not each.is_suspended, "it is seen")
    after = now(served)
    assert (after.nr_calls, after.stage, after.sleep) == (before.nr_calls, Stage.STANDS, Sleep.ASLEEP)
    tell(served, Sleep.NONE)
    assert served.guest.finish("cuCtxSynchronize", slot).result == 0
    assert words(served.guest, addresses) == numbered(nr)
    wait_for(served, lambda each: each.stage is Stage.RUNS, "it runs")


@contextlib.contextmanager
def awakened(served: Served) -> Iterator[None]:
    """For the block it is to stand whenever it can, and who calls then is awakened, as the daemon does it."""

    def wake(is_over: threading.Event) -> None:
        while not is_over.wait(0.001):
            each = now(served)
            if each.stage is Stage.STANDS and not each.is_suspended:
                tell(served, Sleep.NONE)
            elif each.stage is Stage.RUNS and each.sleep is Sleep.NONE:
                tell(served, Sleep.STAND)

    with beside(wake):
        yield


def test_a_client_may_call_at_any_moment(served: Served) -> None:
    """Before it stands, while it comes to that, and afterwards."""
    addresses = filled(served.guest, 3)
    with awakened(served):
        for nr in range(20):
            suspend(served)
            time.sleep(nr * 0.002)
            assert words(served.guest, addresses) == numbered(3)


def test_one_that_is_not_suspended_does_not_stand(served: Served) -> None:
    filled(served.guest, 1)
    tell(served, Sleep.STAND)
    for _ in range(10):
        served.guest.ok("cuCtxSynchronize")
        assert now(served).stage is Stage.RUNS


def test_what_is_asleep_takes_nothing_of_the_device(served: Served) -> None:
    served.host.control.set_capacity(DEVICE, 2 * DEVICE)
    served.host.control.set_target(served.worker.slot, DEVICE)
    filled(served.guest, 1)
    assert served.guest.load(kernel_image(VARIABLE)).result == 0
    [before] = served.host.control.rooms()
    assert before.other_bytes > 0
    lay(served)
    assert [each.other_bytes for each in served.host.control.rooms()] == [0]
    tell(served, Sleep.STAND)
    assert served.host.control.rooms()[0].other_bytes == before.other_bytes, "it is on its way back"
    tell(served, Sleep.NONE)


def test_its_client_may_end(served: Served) -> None:
    """The driver would not answer: the worker leaves at once, and asks it for nothing."""
    filled(served.guest, 2)
    lay(served)
    began = time.monotonic()
    served.guest.close()
    assert served.worker.process.wait() == 70
    assert time.monotonic() - began < 10


def test_rubbish_in_its_ring_is_found_when_it_is_awake(served: Served) -> None:
    filled(served.guest, 1)
    lay(served)
    served.guest.send_raw(struct.pack("<8Q", *[0xFFFF_FFFF_FFFF_FFFF] * 8))
    wait_for(served, lambda each: not each.is_suspended, "it is seen")
    assert now(served).nr_refused == 0
    tell(served, Sleep.NONE)
    wait_for(served, lambda each: each.nr_refused > 0, "it is refused")
