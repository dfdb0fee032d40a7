"""Who sleeps until its vGPU's turn brings an answer is woken when the turn begins, before the answer is there."""

import contextlib

from cuda_api.generated.values import Place
from tests.backend_host.test_worker_order import Kernels
from tests.backend_host.worker_guest import Guest, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

NS_PER_S = 1_000_000_000
ENDLESS_NS = 600 * NS_PER_S
WAITING, PARKED = 1, 2


def word_at(guest: Guest, offset: int) -> int:
    return int.from_bytes(guest.read(offset, 4), "little")


def copy_asleep(guest: Guest, source: int, chunk: int) -> int:
    """A copy from the device whose caller sleeps already; the place of the word that it sleeps on."""
    at = guest.parts["chunks"] + chunk * 8
    guest.write_word(at, PARKED)
    destination = chunk * guest.CHUNK_BYTES
    guest.cast_off(
        "cuMemcpyDtoHAsync_v2",
        source=source,
        destination=destination,
        stream=0,
        bytes=4,
        place=Place.ARENA,
        chunk=chunk,
    )
    return at


def synchronise_asleep(guest: Guest) -> int:
    """The same of a synchronisation."""
    at = guest._slot(slot := guest._free.pop())
    guest.write_word(at, PARKED)
    guest.send_raw(guest.record("cuCtxSynchronize"), slot)
    return at


def test_who_sleeps_is_awake_when_its_kernel_ends() -> None:
    with contextlib.closing(Host(SOFTGPU)) as host, make_region() as first, make_region() as second:
        holder, served = Served(host, first), Served(host, second)
        long, other = Kernels(holder.primary()), Kernels(served.primary())
        guest = other.guest
        long.late(1, ns=NS_PER_S)
        wait_until(lambda: host.control.workers()[0].stalled_since_ns != 0, "it is on the device")
        other.late(2, ns=ENDLESS_NS)
        words = [copy_asleep(guest, other.address, chunk=1), synchronise_asleep(guest)]
        wait_until(lambda: host.control.workers()[1].is_waiting, "it waits for its turn")
        assert [word_at(guest, at) for at in words] == [PARKED, PARKED]
        assert long.value() == 1
        wait_until(lambda: [word_at(guest, at) for at in words] == [WAITING, WAITING], "both are woken, unanswered")


def test_who_has_the_device_at_once_wakes_nobody() -> None:
    with contextlib.closing(Host(SOFTGPU)) as host, make_region() as region:
        served = Served(host, region)
        kernels = Kernels(served.primary())
        kernels.late(2, ns=ENDLESS_NS)
        at = copy_asleep(served.guest, kernels.address, chunk=1)
        wait_until(lambda: served.gpu_ns() > NS_PER_S // 10, "it is charged as it goes")
        assert word_at(served.guest, at) == PARKED
