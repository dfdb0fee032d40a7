"""Best-effort launches that cannot give way: at the gate of their space they wait while rounds ask for room, and not for good."""

import struct
from dataclasses import dataclass
from typing import Any

import pytest

from tests.backend_host.test_space_page import BEST_EFFORT, CRITICAL, split
from tests.backend_host.test_worker_order import LATE, NS_PER_S
from tests.backend_host.test_worker_space import ENDLESS_NS, NOT_READY, WHOLE, Make, One, make
from tests.backend_host.worker_guest import STREAM
from tests.end_to_end.host import wait_until

__all__ = ["make"]  # a fixture

COOPERATIVE = 1
NR_WIDE = 64
"""Blocks, on twice as many as the device has multiprocessors: too many for what rounds leave, few enough to be there at once."""


@dataclass
class Gate:
    """A best-effort program whose launches cannot give way, and a critical one whose round lasts until it is told."""

    best: One
    critical: One

    def launch(self, value: int, grid: int = NR_WIDE) -> None:
        fields: dict[str, Any] = {"grid": [grid, 1, 1], "block": [1, 1, 1], "flags": COOPERATIVE}
        parameters = struct.pack("<QQI", self.best.kernels.address, 1, value)
        guest = self.best.served.guest
        guest.cast_off("cuLaunchKernel", parameters, function=LATE, nr_parameter_bytes=len(parameters), **fields)

    def is_held(self) -> bool:
        return self.best.reading().nr_space_gated == 1

    def stop_asking(self) -> None:
        """As if it had used what it may ahead of its turns."""
        self.critical.served.host.control.set_urgent(self.critical.served.vgpu, is_urgent=False)


@pytest.fixture
def gate(make: Make) -> Gate:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    critical.served.host.control.set_split(critical.served.vgpu, WHOLE)
    return Gate(best, critical)


@pytest.mark.parametrize("make", ["page"], indirect=True)
def test_what_cannot_give_way_waits_until_rounds_ask_for_nothing(gate: Gate) -> None:
    gate.critical.begin_endless()
    gate.launch(5)
    wait_until(gate.is_held, "it waits at the gate")
    wait_until(lambda: gate.best.reading().phase == "out", "and wants no turn")
    assert gate.critical.is_at_work()
    gate.stop_asking()
    assert gate.best.kernels.value() == 5
    assert gate.critical.is_at_work()
    assert gate.best.reading().space_gated_ns > 0
    assert gate.best.reading().nr_sliced == 0


@pytest.mark.parametrize("make", ["page"], indirect=True)
def test_a_launch_does_not_wait_for_good_at_the_gate(gate: Gate) -> None:
    gate.critical.begin_endless()
    for value in (5, 6):
        gate.launch(value)
        assert gate.best.kernels.value() == value, "while the round goes on and asks for all"
    assert gate.critical.is_at_work()
    assert gate.best.reading().nr_space_gated == 2
    assert gate.best.reading().space_gated_ns >= 2 * NS_PER_S


@pytest.mark.parametrize("make", ["page"], indirect=True)
@pytest.mark.parametrize("work", ["a kernel", "a stream that waits"])
def test_a_launch_beside_own_work_that_does_not_end_does_not_wait_for_good(gate: Gate, work: str) -> None:
    """That may wait for what the launch does."""
    best = gate.best
    guest = best.served.guest
    guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=1)
    if work == "a kernel":
        best.kernels.late(9, ns=ENDLESS_NS, stream=STREAM)
    else:
        word = guest.allocate(4096)
        guest.ok("host_register", address=guest.address + word, bytes=4096)
        guest.cast_off("cuStreamWaitValue32_v2", stream=STREAM, addr=guest.address + word, value=1)
        best.kernels.late(9, ns=1, stream=STREAM)
    assert guest.call("cuStreamQuery", hStream=STREAM).result == NOT_READY
    gate.critical.begin_endless()
    for value in (5, 6):
        gate.launch(value)
        assert best.kernels.value() == value
    assert best.reading().nr_space_gated == 2
    assert guest.call("cuStreamQuery", hStream=STREAM).result == NOT_READY


@pytest.mark.parametrize("make", ["page"], indirect=True)
def test_what_fits_into_what_rounds_leave_does_not_wait(gate: Gate) -> None:
    gate.critical.served.host.control.set_split(gate.critical.served.vgpu, split(4, 1))
    gate.critical.begin_endless()
    gate.launch(5, grid=1)
    assert gate.best.kernels.value() == 5
    assert gate.best.reading().nr_space_gated == 0
    gate.launch(6)
    wait_until(gate.is_held, "the other one waits")


@pytest.mark.parametrize("make", ["page"], indirect=True)
def test_the_gate_stays_shut_while_an_entitlement_changes_otherwise(gate: Gate) -> None:
    gate.critical.begin_endless()
    gate.critical.served.host.control.set_class(gate.critical.served.vgpu, CRITICAL, 1)
    gate.launch(5)
    wait_until(gate.is_held, "it waits at the gate")


@pytest.mark.parametrize("make", ["page"], indirect=True)
def test_a_worker_that_dies_in_a_round_opens_the_gate(gate: Gate) -> None:
    gate.critical.begin_endless()
    gate.launch(5)
    wait_until(gate.is_held, "it waits at the gate")
    gate.critical.served.worker.process.kill()
    gate.critical.served.worker.process.wait()
    gate.critical.served.host.control.repair(gate.critical.served.worker.slot)
    assert gate.best.kernels.value() == 5


def test_without_a_space_there_is_no_gate(gate: Gate) -> None:
    """Without the page of one, that is: a worker of turns alone."""
    gate.critical.begin_endless()
    gate.launch(5)
    assert gate.best.kernels.value() == 5
    assert gate.critical.is_at_work()
    assert gate.best.reading().nr_space_gated == 0
