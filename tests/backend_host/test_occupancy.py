"""A worker that was taken over keeps the device and says that it has nothing there: whoever is queued behind it is not blamed for that."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from backend_host.device.auditor import LOOK_S, STILL_NS, Auditor
from backend_host.device.control import ControlPage
from backend_host.device.occupancy import occupant
from backend_host.entitlement import Entitlement
from backend_host.grants import OVERRUN_NS, GrantKeeper
from backend_host.watchdog import Watchdog
from scheduler.fair import FairQueuing
from tests.backend_host.claims import OWN
from tests.backend_host.test_worker_order import Kernels
from tests.backend_host.worker_guest import make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

S = 1_000_000_000
ENDLESS_NS = 600 * S
LIMIT_NS = S


class Two:
    """Both have a kernel that does not end, on one device: the first one's is there, the other's stands still behind it. A third one waits."""

    def __init__(self, host: Host, first: Served, second: Served, third: Served) -> None:
        self.host, self.first, self.second, self.third = host, first, second, third
        self.kernels = [Kernels(served.primary()) for served in (first, second, third)]

    def stalls(self, served: Served) -> bool:
        reading = self.host.control.worker(served.worker.slot)
        return reading is not None and reading.stalled_since_ns != 0

    def begin(self) -> None:
        control = self.host.control
        self.kernels[0].late(1, ns=ENDLESS_NS)
        wait_until(lambda: self.stalls(self.first), "it is on the device")
        self.kernels[1].late(1, ns=ENDLESS_NS)
        wait_until(lambda: bool(control.backlogged()), "the other one waits")
        assert control.evict(control.holder().sequence)
        wait_until(lambda: self.stalls(self.second), "the other one's is behind it")
        self.kernels[2].late(1)
        wait_until(lambda: bool(control.backlogged()), "a third one waits")

    def hide(self) -> None:
        """The first one says that it has nothing on the device, and does not say anything else any more."""
        os.kill(self.first.worker.process.pid, signal.SIGSTOP)
        reading = self.host.control.worker(self.first.worker.slot)
        assert reading is not None
        with mmap.mmap(self.host.control.objects[OWN + self.first.vgpu], 0) as memory:
            place = memory.find(reading.stalled_since_ns.to_bytes(8, "little"))
            memory[place : place + 8] = bytes(8)
        assert not self.stalls(self.first)


@pytest.fixture
def two() -> Iterator[Two]:
    with (
        contextlib.closing(Host(SOFTGPU)) as host,
        make_region() as one,
        make_region() as other,
        make_region() as another,
    ):
        yield Two(host, *(Served(host, region) for region in (one, other, another)))


def watch(page: ControlPage, limit_s: float) -> list[int]:
    """Whom the watchdog ends within that time; no look follows that."""
    ended: list[int] = []
    watchdog = Watchdog(page, LIMIT_NS, lambda slot, _: ended.append(slot))
    end = time.monotonic() + limit_s
    while not ended and time.monotonic() < end:
        watchdog.look(page.workers(), time.monotonic_ns())
        time.sleep(0.05)
    return ended


def test_who_hides_that_it_keeps_the_device_is_ended_and_who_is_behind_it_is_not(two: Two) -> None:
    two.begin()
    two.hide()
    assert watch(two.host.control, 30) == [two.first.worker.slot]


def test_who_keeps_the_device_and_says_so_is_ended(two: Two) -> None:
    two.begin()
    assert watch(two.host.control, 30) == [two.first.worker.slot]


def test_nobody_is_let_in_behind_a_kernel_that_nobody_can_take_back(two: Two) -> None:
    """However long it takes: what another one submitted would wait behind it, and both would be charged."""
    control = two.host.control
    keeper = GrantKeeper(control, FairQueuing())
    for served in (two.first, two.second):
        keeper.join(served.vgpu, Entitlement())
    two.kernels[0].late(1, ns=ENDLESS_NS)
    wait_until(lambda: two.stalls(two.first), "it is on the device")
    two.kernels[1].late(1)
    wait_until(lambda: bool(control.backlogged()), "the other one waits")
    later_ns = time.monotonic_ns() + control.slice_ns + 2 * OVERRUN_NS
    keeper.step(later_ns)
    assert control.holder().vgpu == two.first.vgpu
    two.first.worker.process.kill()
    two.first.worker.process.wait()
    keeper.step(later_ns)
    assert control.holder().vgpu == two.second.vgpu


def test_who_got_the_grant_while_another_one_was_judged_keeps_it(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of more than 5 s ends, and its turn with it, just as the daemon asks who keeps the device."""
    control, heirs = two.host.control, list[int | None]()
    keeper = GrantKeeper(control, FairQueuing())
    for served in (two.first, two.second, two.third):
        keeper.join(served.vgpu, Entitlement())
    two.kernels[0].late(1, ns=ENDLESS_NS)
    wait_until(lambda: two.stalls(two.first), "it is on the device")
    for kernels in two.kernels[1:]:
        kernels.late(1)
    wait_until(lambda: len(control.backlogged()) == len(two.kernels) - 1, "both others wait")

    def goes_on(page: ControlPage, vgpu: int) -> bool:
        assert page.evict(page.holder().sequence)
        heirs.append(page.holder().vgpu)
        return False

    monkeypatch.setattr("backend_host.grants.keeps_device", goes_on)
    keeper.step(time.monotonic_ns() + control.slice_ns + 2 * OVERRUN_NS)
    assert [control.holder().vgpu] == heirs != [two.first.vgpu]


def test_who_charges_nothing_keeps_the_grant_while_its_kernel_keeps_the_device(two: Two) -> None:
    """Its worker gets no processor for a while, say. Once the kernel is gone the next one gets the grant."""
    control = two.host.control
    auditor = Auditor(control, lambda *_: None, lambda *_: None, lambda *_: None, is_preemptive=False)
    two.kernels[0].late(1, ns=ENDLESS_NS)
    wait_until(lambda: two.stalls(two.first), "it is on the device")
    two.kernels[1].late(1)
    wait_until(lambda: bool(control.backlogged()), "the other one waits")
    os.kill(two.first.worker.process.pid, signal.SIGSTOP)
    end_ns = time.monotonic_ns() + 3 * STILL_NS
    while time.monotonic_ns() < end_ns:
        auditor.look()
        time.sleep(LOOK_S)
    assert control.holder().vgpu == two.first.vgpu
    two.first.worker.process.kill()
    two.first.worker.process.wait()
    wait_until(lambda: (auditor.look(), control.holder().vgpu)[1] == two.second.vgpu, "the other one has it")


def test_a_process_that_ends_while_it_is_looked_at_keeps_nothing() -> None:
    for _ in range(200):
        child = subprocess.Popen(["sleep", "0.002"])
        reaper = threading.Thread(target=child.wait)
        reaper.start()
        while reaper.is_alive():
            assert occupant([child.pid]) is None
        reaper.join()


def test_who_is_left_keeps_it_itself(two: Two) -> None:
    two.begin()
    pids = [served.worker.process.pid for served in (two.first, two.second)]
    found = occupant(pids)
    assert found is not None
    assert found.pid == pids[0]
    two.first.worker.process.kill()
    two.first.worker.process.wait()

    def keeper() -> int:
        found = occupant(pids)
        return 0 if found is None else found.pid

    wait_until(lambda: keeper() == pids[1], "the other one's kernel runs")
