"""Critical work beside the turns of its space, and in turns where its space does not have the device."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from backend_host.device.readings import WorkerReading
from tests.backend_host.test_space_page import BEST_EFFORT, CRITICAL, FAIR, split
from tests.backend_host.test_worker_order import NS_PER_S, Kernels
from tests.backend_host.worker_guest import make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

ENDLESS_NS = 3600 * NS_PER_S
NOT_READY = 600


@dataclass
class One:
    """A vGPU with a program that launches kernels of one block."""

    served: Served
    kernels: Kernels

    def reading(self) -> WorkerReading:
        found = self.served.host.control.worker(self.served.worker.slot)
        assert found is not None
        return found

    def begin_endless(self) -> None:
        self.kernels.late(9, ns=ENDLESS_NS)
        wait_until(lambda: self.reading().stalled_since_ns != 0, "it is on the device")

    def is_at_work(self) -> bool:
        return self.served.guest.call("cuStreamQuery", hStream=0).result == NOT_READY

    def runs(self, value: int) -> None:
        """A kernel to its end."""
        self.kernels.late(value, ns=1)
        assert self.kernels.value() == value


Make = Callable[[int, int], One]


@pytest.fixture
def make() -> Iterator[Make]:
    """A vGPU of this class in the space with this number. All their workers are of one of the device's."""
    with contextlib.ExitStack() as stack:
        host = stack.enter_context(contextlib.closing(Host(SOFTGPU, {"FAIRGV_SOFTGPU_SPACE": "tests"})))

        def one(class_number: int, space: int) -> One:
            served = Served(host, stack.enter_context(make_region()))
            host.control.set_class(served.vgpu, class_number, space)
            return One(served, Kernels(served.primary()))

        yield one


def test_a_critical_kernel_ends_while_an_endless_one_of_its_space_goes_on(make: Make) -> None:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    in_turns_ns = critical.served.gpu_ns()
    assert critical.reading().out_of_turn_ns == 0
    best.begin_endless()
    for value in range(1, 6):
        critical.runs(value)
    assert best.is_at_work()
    assert best.served.host.control.holder().vgpu == best.served.vgpu
    assert critical.reading().out_of_turn_ns == critical.served.gpu_ns() - in_turns_ns > 0, "beside another's turn"


@pytest.mark.parametrize(
    "classes", [((BEST_EFFORT, 1), (CRITICAL, 2)), ((FAIR, 0), (CRITICAL, 1)), ((BEST_EFFORT, 1), (BEST_EFFORT, 1))]
)
def test_any_other_one_waits_for_its_turn(make: Make, classes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    one, other = (make(*each) for each in classes)
    one.begin_endless()
    other.kernels.late(1, ns=1)
    wait_until(lambda: other.reading().is_waiting, "it waits")
    assert one.is_at_work()
    assert other.reading().is_waiting


def test_best_effort_gets_the_turn_of_its_critical_one_at_once(make: Make) -> None:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    critical.begin_endless()
    best.runs(1)
    assert critical.is_at_work()
    assert critical.reading().phase == "beside"
    best.runs(2)


def test_rounds_are_told(make: Make) -> None:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    critical.served.host.control.set_split(critical.served.vgpu, split(4, 1))
    best.begin_endless()
    slot, control = critical.served.worker.slot, critical.served.host.control
    before = control.rounds(slot)[0]
    for value in range(1, 41):
        critical.kernels.late(value, ns=1)
        assert critical.served.guest.call("cuCtxSynchronize").result == 0
    wait_until(lambda: control.rounds(slot)[0] == before + 40, "one for each kernel")
    nr, rounds = control.rounds(slot)
    assert nr == critical.reading().nr_rounds
    assert len(rounds) == 32
    assert all(each.took_ns > 0 for each in rounds)
    assert len({each.signature for each in rounds}) == 1, "they did the same"
    assert {each.split for each in rounds} == {0}, "without the space's page nobody is asked for room"


def test_a_critical_one_that_is_killed_leaves_best_effort_as_it_was(make: Make) -> None:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    best.begin_endless()
    critical.kernels.late(1, ns=ENDLESS_NS)
    wait_until(lambda: critical.reading().phase == "beside", "both are at work")
    critical.served.worker.process.kill()
    critical.served.worker.process.wait()
    critical.served.host.control.repair(critical.served.worker.slot)
    assert best.is_at_work()
    another = make(CRITICAL, 1)
    another.runs(3)
    assert best.is_at_work()
