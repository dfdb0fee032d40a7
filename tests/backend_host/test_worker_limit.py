"""A vGPU at its limit: it stops whether others want the GPU or not, waits for no turn, pays back what could not be stopped, and goes on."""

import contextlib
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.device.readings import Why, WorkerReading
from tests.backend_host.test_worker_order import LATE, NS_PER_S, Kernels
from tests.backend_host.test_worker_withdraw import HeldKernels, library
from tests.backend_host.worker_guest import make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

__all__ = ["library"]

MS = 1_000_000
SLICE_NS = 6 * MS
TENTH, NONE = 100, 0
NR, NR_AT_ONCE = 60, 8
"""Kernels that are launched in a row, and of which so many are on their way before it is known how long they are."""
NR_USUAL, LONG_SLICE_NS = 8, 200 * MS
BOXES = {"mode": 1, "waits_for_variant": 1, "threshold_blocks": 10, "least_blocks": 4, "part_ns": 0, "run_blocks": 0}


class Limited:
    """A program whose vGPU has a limit, and a neighbour."""

    def __init__(self, host: Host, served: Served, other: Served) -> None:
        self.host, self.served, self.other = host, served, other
        self.kernels, self.others = Kernels(served.primary()), Kernels(other.primary())

    def limit(self, permille: int) -> None:
        self.host.control.set_limit(self.served.vgpu, permille)

    def reading(self, served: Served | None = None) -> WorkerReading:
        found = self.host.control.worker((served or self.served).worker.slot)
        assert found is not None
        return found

    def is_held_back(self, served: Served | None = None) -> bool:
        """It wants a turn, does not wait for one, and has counted since when."""
        reading = self.reading(served)
        return reading.phase == "out" and not reading.is_waiting and reading.limited_ns > 0

    def learn(self) -> None:
        """How long kernels are, and how many fit a turn, is known from those that have ended."""
        for _ in range(4):
            self.kernels.late(0, ns=SLICE_NS)
            assert self.kernels.guest.call("cuCtxSynchronize").result == 0

    def ends_by_limit(self) -> int:
        """How many of its turns were ended so."""
        turns = [each for each in self.host.control.hand_overs() if each.from_vgpu == self.served.vgpu]
        return sum(each.why is Why.LIMIT for each in turns)

    def await_value(self, value: int) -> None:
        """Until the kernel that stores it has ended."""
        wait_until(lambda: self.kernels.value() == value, "they have ended")


@pytest.fixture
def limited() -> Iterator[Limited]:
    with contextlib.closing(Host(SOFTGPU)) as host, make_region() as one, make_region() as two:
        yield Limited(host, Served(host, one, slicing=BOXES), Served(host, two))


def test_who_had_more_than_its_limit_neither_has_the_gpu_nor_waits_for_it(limited: Limited) -> None:
    """A kernel that nobody can stop is paid back: 10 s at a tenth for one of a second. Its neighbour is not kept from anything by that."""
    limited.limit(TENTH)
    limited.kernels.late(1, ns=NS_PER_S)
    assert limited.kernels.guest.call("cuCtxSynchronize").result == 0
    limited.kernels.late(2, ns=1)
    wait_until(limited.is_held_back, "it is held back")
    account = limited.served.account()
    assert account.limited_until_ns > time.monotonic_ns()
    assert account.nr_waiting == 0
    assert limited.host.control.holder().vgpu is None
    limited.others.late(3, ns=1)
    assert limited.others.value() == 3
    assert limited.is_held_back(), "it was not woken for that"
    limited.limit(NONE)
    limited.await_value(2)
    assert not limited.reading().is_waiting


def test_a_turn_is_ended_by_the_limit_though_nobody_waits(limited: Limited) -> None:
    limited.learn()
    limited.limit(TENTH)
    for value in range(1, NR + 1):
        limited.kernels.late(value, ns=SLICE_NS)
    wait_until(lambda: limited.reading().limited_ns > 0, "it is held back")
    assert limited.reading().nr_launches < NR
    assert limited.ends_by_limit() > 0
    limited.limit(NONE)
    limited.await_value(NR)


def test_it_goes_on_by_itself_and_keeps_to_the_limit(limited: Limited) -> None:
    """In any window: at most the limit's part of it, a slice, and a kernel that was under way. Load can only make it less."""
    limited.learn()
    limited.limit(5 * TENTH)
    begun_ns, before_ns = time.monotonic_ns(), limited.served.gpu_ns()
    for value in range(1, NR + 1):
        limited.kernels.late(value, ns=SLICE_NS)
    limited.await_value(NR)
    used_ns, passed_ns = limited.served.gpu_ns() - before_ns, time.monotonic_ns() - begun_ns
    assert used_ns <= passed_ns * 0.5 + SLICE_NS + NR_AT_ONCE * used_ns / NR
    assert limited.reading().limited_ns > 0


def test_a_large_launch_ends_between_its_parts(limited: Limited) -> None:
    limited.limit(TENTH)
    grid = 400
    limited.served.guest.launch(LATE, struct.pack("<QQI", limited.kernels.address, MS, 7), grid=grid)
    wait_until(limited.is_held_back, "it is held back in the midst of it")
    assert limited.reading().nr_parts > 0
    assert limited.ends_by_limit() > 0
    limited.limit(NONE)
    limited.await_value(7)
    assert limited.reading().nr_sliced == 1


def test_programs_of_a_vgpu_have_one_limit_together(limited: Limited) -> None:
    with make_region() as region:
        mate = Served.__new__(Served)
        mate.host, mate.region, mate.vgpu = limited.host, region, limited.served.vgpu
        mate.guest = type(limited.served.guest)(region)
        mate.worker = limited.host.start(region, 0, mate.vgpu)
        kernels = Kernels(mate.primary())
        limited.limit(TENTH)
        limited.kernels.late(1, ns=NS_PER_S // 2)
        wait_until(lambda: limited.kernels.guest.call("cuCtxSynchronize").result == 0, "it has ended")
        kernels.late(2, ns=1)
        wait_until(lambda: limited.is_held_back(mate), "the other one is held back for it")
        limited.limit(NONE)
        wait_until(lambda: kernels.value() == 2, "it goes on")


def test_what_it_holds_without_use_counts(limited: Limited) -> None:
    from backend_host.worker._worker import ffi, lib  # noqa: PLC0415

    grantee = ffi.new("struct fgw_grantee *")
    control = limited.host.control
    limited.limit(TENTH)
    assert lib.fgw_grantee_attach(grantee, control.page, limited.served.vgpu, limited.served.worker.slot)
    before = limited.served.account()
    lib.fgw_grant_charge_hold(grantee, NS_PER_S)
    after = limited.served.account()
    assert after.held_ns - before.held_ns == NS_PER_S
    assert after.limited_until_ns - time.monotonic_ns() > 9 * NS_PER_S


@pytest.mark.parametrize("usual_ns", [0, LONG_SLICE_NS + LONG_SLICE_NS // 4])
def test_a_kernel_is_taken_off_the_device_at_the_limit_and_brought_back(
    library: Path, tmp_path: Path, usual_ns: int
) -> None:
    """Where the device preempts, and though nobody else wants it. Meanwhile it waits for no turn.

    `usual_ns`: what kernels took before, so that this one seems to end soon when the limit is reached, and is let end; 0: nothing is known.
    """
    log = tmp_path / "log"
    log.touch()
    log.chmod(0o666)
    environment = {"LD_PRELOAD": str(library), "FAIRGV_OFF_LOG": str(log)}
    slice_ns = LONG_SLICE_NS if usual_ns else SLICE_NS
    host = Host(SOFTGPU, environment, slice_ns, is_preemptive=True, shared=[library.parent, tmp_path])
    with contextlib.closing(host), make_region() as region:
        served = Served(host, region)
        kernels = HeldKernels(served.primary())

        def reading() -> WorkerReading:
            found = host.control.worker(served.worker.slot)
            assert found is not None
            return found

        for _ in range(NR_USUAL if usual_ns else 0):
            kernels.late(0, ns=usual_ns)
            assert kernels.guest.call("cuCtxSynchronize").result == 0
        host.control.set_limit(served.vgpu, 1)
        kernels.held(1)
        wait_until(lambda: reading().phase == "off-out", "it is off the device")
        assert not reading().is_waiting
        assert not reading().is_user
        used_ns = served.gpu_ns()
        asked = kernels.guest.begin("cuMemGetInfo_v2")
        assert served.gpu_ns() == used_ns
        host.control.set_limit(served.vgpu, 0)
        wait_until(lambda: reading().phase == "running", "it is brought back")
        kernels.let_end()
        assert kernels.guest.finish("cuMemGetInfo_v2", asked).result == 0
        assert kernels.value() == 1
        assert reading().nr_withdrawn >= 1
