"""A worker whose guest has bells: it is rung, rings where somebody sleeps, and believes nothing it is told about bells."""

import fcntl
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from ivshmem.bells import NR_GUEST_BELLS
from ivshmem.region import ClientState, Region, Wake, ffi, lib
from tests.backend_host.worker_guest import PRIMARY, Guest, make_region, wait_for_state
from tests.backend_host.worker_harness import SOFTGPU, Host
from tests.end_to_end.host import wait_until

HAS_BELL = 4096 + 65536 + 152
PARKED = 128
SLOT_PARKED = 2
FULL = 2**64 - 2


@dataclass
class House:
    """A region with bells, and eventfds as a server makes them: the worker's, and the guest's."""

    host: Host
    region: Region
    own: int
    guest_bells: list[int]

    @contextmanager
    def served(self, bell: tuple[int, int], *, has_fds: bool = True) -> Iterator[Guest]:
        """A client that says this about its bell, and its worker."""
        guest = Guest(self.region, bell=bell)
        vgpu = self.host.control.vgpu_take(0)
        self.host.start(self.region, 0, vgpu, bells=[self.own, *self.guest_bells] if has_fds else [])
        assert wait_for_state(self.region, 0, {ClientState.READY, ClientState.REFUSED}) is ClientState.READY
        guest.ok("context_create", context=0, handle=PRIMARY, is_primary=1)
        yield guest
        guest.close()

    def rung(self) -> list[int]:
        """Vectors of the guest that were rung."""
        ready = select.select(self.guest_bells, [], [], 0)[0]
        return [self.guest_bells.index(fd) for fd in ready]


@pytest.fixture
def house() -> Iterator[House]:
    fds = [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(1 + NR_GUEST_BELLS)]
    host = Host(SOFTGPU)
    with make_region(wake=Wake.BELL) as region:
        yield House(host, region, fds[0], fds[1:])
    host.close()
    for fd in fds:
        os.close(fd)


def is_parked(guest: Guest) -> bool:
    return guest.read(guest.parts["ring"] + PARKED, 4) == (1).to_bytes(4, "little")


def call_asleep(guest: Guest, own: int | None = None) -> int:
    """A call whose caller sleeps already when it is answered; rings the worker's bell, if it is given."""
    slot = guest._free.pop()
    guest.write_word(guest._slot(slot), SLOT_PARKED)
    guest.send_raw(guest.record("cuMemGetInfo_v2"), slot)
    if own is not None:
        os.eventfd_write(own, 1)
    return guest.finish("cuMemGetInfo_v2", slot).result


def test_who_sleeps_is_rung_and_nobody_else(house: House) -> None:
    with house.served((1, 3)) as guest:
        for _ in range(3):
            assert guest.call("cuMemGetInfo_v2").result == 0
        assert house.rung() == []
        wait_until(lambda: is_parked(guest), "the worker sleeps")
        assert call_asleep(guest, house.own) == 0
        wait_until(lambda: house.rung() == [3], "the caller is rung")


@pytest.mark.parametrize("bell", [(0, 3), (2, 3), (1, NR_GUEST_BELLS), (1, 2**32 - 1)])
def test_a_bell_that_makes_no_sense_is_none(house: House, bell: tuple[int, int]) -> None:
    with house.served(bell) as guest:
        assert call_asleep(guest, house.own) == 0
        assert house.rung() == []


def test_without_eventfds_there_is_no_bell(house: House) -> None:
    with house.served((1, 3), has_fds=False) as guest:
        assert call_asleep(guest, house.own) == 0
        assert house.rung() == []


def test_a_guest_that_takes_its_bell_back_is_still_served(house: House) -> None:
    with house.served((1, 0)) as guest:
        wait_until(lambda: is_parked(guest), "the worker sleeps")
        guest.write(HAS_BELL, bytes(4))
        for _ in range(20):
            assert guest.call("cuMemGetInfo_v2").result == 0  # nobody rings


def test_a_bell_that_would_block_blocks_nobody(house: House) -> None:
    """QEMU has the same eventfds: it may fill them, empty them and make them blocking."""
    for fd in (house.own, house.guest_bells[3]):
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)
        os.eventfd_write(fd, FULL)
    with house.served((1, 3)) as guest:
        for _ in range(20):
            assert call_asleep(guest) == 0
        wait_until(lambda: is_parked(guest), "the worker sleeps")
        assert guest.call("cuMemGetInfo_v2").result == 0
        assert guest.call("cuMemGetInfo_v2").result == 0


@contextmanager
def opened(guest: int, own: int) -> Iterator[Any]:
    bell = ffi.new("struct fgv_host_bell *")
    lib.fgv_host_bell_prepare(bell)
    assert lib.fgv_host_bell_open(bell, guest, own)
    yield bell
    os.close(bell.ready)
    os.close(bell.own)


def test_a_ring_before_the_sleep_ends_it_at_once() -> None:
    """With a limit that no test run has: a ring that is lost never ends."""
    fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    with opened(fd, fd) as bell:
        for _ in range(100):
            lib.fgv_host_bell_ring(bell)
            lib.fgv_host_bell_wait(bell, 10**15)
        lib.fgv_host_bell_wait(bell, 1000)  # each ring ended one sleep
    assert os.eventfd_read(fd) == 100
    os.close(fd)


@pytest.mark.parametrize("has_requests", [True, False])
def test_ringing_never_blocks(has_requests: bool) -> None:
    fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    with opened(fd, fd) as bell:
        assert bell.requests != 0, "this kernel has no asynchronous requests"
        if has_requests:
            fcntl.fcntl(fd, fcntl.F_SETFL, 0)
        kept, bell.requests = bell.requests, bell.requests if has_requests else 0
        os.eventfd_write(fd, FULL)
        for _ in range(100):
            lib.fgv_host_bell_ring(bell)
        bell.requests = kept
    os.close(fd)


def test_what_is_no_eventfd_is_no_bell() -> None:
    file = os.open("/dev/null", os.O_RDWR)
    bell = ffi.new("struct fgv_host_bell *")
    assert not lib.fgv_host_bell_open(bell, file, -1)
    os.close(file)


def test_the_daemon_is_rung(house: House) -> None:
    """By the guest, and by itself; each with a limit that no test run has."""
    house.region.listen(house.own)
    house.region.wait_announce(0)
    os.eventfd_write(house.own, 1)
    assert not house.region.wait_announce(1e5)  # rung, and nothing new
    house.region.announce()
    assert house.region.wait_announce(1e5)
    assert not house.region.wait_announce(1e5)  # what announce rang
    os.eventfd_write(house.own, FULL - 1)
    assert not house.region.wait_announce(1e5)
