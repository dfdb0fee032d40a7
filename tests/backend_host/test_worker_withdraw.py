"""Work that is taken off the device for others: when, what its program sees meanwhile, and what refusals of the driver lead to.

softgpu cannot hold a kernel, so a library of the tests answers in the driver's place: here a withdrawn kernel runs on. That one stands still on
an NVIDIA GPU is for tests/gpu/test_withdraw.py. As softgpu runs one kernel at a time, the neighbour's is on the device until the long one ends,
which it does when the test lets it: one that ends by the clock may have ended before its neighbour comes.
"""

import contextlib
import itertools
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.channels import LIBRARY, SOURCE
from backend_host.device.readings import WorkerReading
from tests.backend_host.test_worker_order import Kernels
from tests.backend_host.worker_guest import FUNCTION, MODULE, NO_CHUNK, Guest, kernel_image, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served, tenant_of
from tests.end_to_end.host import wait_until

NS_PER_S = 1_000_000_000
KERNEL_NS = NS_PER_S
ENDLESS_NS = 600 * NS_PER_S
LOOK_NS = KERNEL_NS // 4
NS_PER_MS, TAKES_NS = 1_000_000, 1_000_000_000
SLICE_NS, SHORT_NS = 1_500_000_000, 10_000_000
REFUSES = {"FAIRGV_OFF_REFUSED": "h"}
HELD_MODULE, HELD = MODULE + 1, FUNCTION + 2
HELD_PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry held(.param .u64 out, .param .u64 gate, .param .u32 value)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [gate];
    ld.param.u32 %r1, [value];
    st.volatile.global.u32 [%rd2+4], 1;
again:
    ld.volatile.global.u32 %r2, [%rd2];
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra again;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
FLAGS = ("-O2", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("off") / "off_log.so"
    source = Path(__file__).with_name("off_log.c")
    subprocess.run(["gcc", *FLAGS, "-I", str(SOURCE.parent), str(source), "-o", str(built)], check=True)
    return built


class HeldKernels(Kernels):
    """With a kernel that ends when it is let, by a word in the guest's own memory, and says by the next one that it runs."""

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest)
        assert guest.load(kernel_image(HELD_PTX), handle=HELD_MODULE, blob=8).result == 0
        guest.ok("cuModuleGetFunction", b"held", module=HELD_MODULE, handle=HELD, name_bytes=4, chunk=NO_CHUNK)
        self.gate = guest.allocate(4096)
        guest.ok("host_register", address=guest.address + self.gate, bytes=4096)

    def held(self, value: int) -> None:
        """Stores the value once it is let."""
        self.guest.write_word(self.gate, 0)
        self.guest.write_word(self.gate + 4, 0)
        self.guest.launch(HELD, struct.pack("<QQI", self.address, self.guest.address + self.gate, value))

    def is_running(self) -> bool:
        return self.guest.read(self.gate + 4, 4) != bytes(4)

    def let_end(self) -> None:
        self.guest.write_word(self.gate, 1)


class Two:
    """Two vGPUs on a device that is said to preempt, each with a program: one for long kernels, and a neighbour."""

    def __init__(self, host: Host, long: Served, other: Served, log: Path) -> None:
        self.host, self.log = host, log
        self.served, self.others = long, other
        self.long, self.other = HeldKernels(long.primary()), Kernels(other.primary())
        for vgpu, per_ns in ((0, 1.0), (1, 0.0)):  # the neighbour is always next, for as long as it wants the device
            host.control.set_standing(vgpu, 0.0, per_ns=per_ns, charged_ns=0)

    def asked(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def asked_by(self, number: int) -> str:
        """By one worker: 0 is the long one's."""
        tenants = self.host.worker_start.tenants
        assert tenants is not None
        tenant = tenants.take(tenant_of(self.host.workers[number].vgpu))
        own = self.log.with_name(f"{self.log.name}.{tenant.uid}")
        return own.read_text() if own.exists() else ""

    def is_being_taken_off(self) -> bool:
        """The long one's work, at some moment between two looks at how often it was off."""
        nr_before = self.reading().nr_withdrawn
        is_asked = self.asked_by(0).count("h") == nr_before + 1
        return is_asked and self.reading().nr_withdrawn == nr_before

    def reading(self, number: int = 0) -> WorkerReading:
        """Of one worker: 0 is the long one's."""
        found = self.host.control.worker(self.host.workers[number].slot)
        assert found is not None
        return found

    def overlap(self, other_ns: int = 1000) -> None:
        """A kernel that is held, and a neighbour's that comes after it: one that was only submitted may let that one pass."""
        self.long.held(1)
        wait_until(lambda: self.reading().stalled_since_ns != 0, "it is on the device")
        wait_until(self.long.is_running, "it runs")
        self.other.late(2, ns=other_ns)

    def stay_beside(self) -> None:
        """The neighbour's turn goes on for a while beside the long one's kernel, and the long one has looked since."""
        self._wait_charged(self.others, LOOK_NS)
        self._wait_charged(self.served, 0)

    @staticmethod
    def _wait_charged(served: Served, more_ns: int) -> None:
        before_ns = served.gpu_ns()
        wait_until(lambda: served.gpu_ns() - before_ns > more_ns, "it is charged")

    def await_off(self) -> str:
        """The long one's work is off the device and the neighbour's on it, where it stays until the long one's ends.

        Gives what the driver was asked by then for the long one. A neighbour that its host does not run within 2 ms of its grant is passed
        over: what was off has another turn then, and goes again.
        """
        wait_until(
            lambda: self.asked_by(0).endswith("h") and self.reading(1).stalled_since_ns != 0, "it is off the device"
        )
        return self.asked_by(0)

    def is_off(self) -> bool:
        """The long one waits for its turn, and its kernel with it."""
        reading = self.reading()
        is_off = reading.phase == "off-waiting" and reading.stalled_since_ns == 0
        return is_off and reading.is_waiting and not reading.is_user


@pytest.fixture
def two(request: pytest.FixtureRequest, library: Path, tmp_path: Path) -> Iterator[Two]:
    """Its parameter: how the driver behaves; see off_log.c."""
    environment = {
        "LD_PRELOAD": str(library),
        "FAIRGV_OFF_LOG": str(tmp_path / "log"),
        **getattr(request, "param", {}),
    }
    (tmp_path / "log").touch()
    (tmp_path / "log").chmod(0o666)  # workers of two users write into it
    with (
        contextlib.closing(Host(SOFTGPU, environment, is_preemptive=True, shared=[library.parent, tmp_path])) as host,
        make_region() as first,
        make_region() as second,
    ):
        yield Two(host, Served(host, first), Served(host, second), tmp_path / "log")


def test_it_is_withdrawn_for_others_and_goes_on_in_its_turn(two: Two) -> None:
    two.overlap()
    so_far = two.await_off()
    asked = two.long.guest.begin("cuMemGetInfo_v2")
    wait_until(two.is_off, "it waits for its turn")
    used_ns, others_ns = two.served.gpu_ns(), two.others.gpu_ns()
    wait_until(lambda: two.others.gpu_ns() - others_ns > LOOK_NS, "the neighbour has its turn")
    assert two.served.gpu_ns() == used_ns  # what is off the device pays nothing
    assert not two.long.guest.is_answered(asked)  # a call might wait for what stands still
    back_ns = time.monotonic_ns()
    two.long.let_end()
    wait_until(lambda: two.asked() == so_far + "l", "its turn has come")
    assert two.served.gpu_ns() - used_ns <= time.monotonic_ns() - back_ns  # nor afterwards for the time that it was off
    assert two.long.guest.finish("cuMemGetInfo_v2", asked).result == 0
    assert (two.long.value(), two.other.value()) == (1, 2)
    assert two.reading().nr_withdrawn == so_far.count("h")


def test_one_that_does_not_give_way_is_withdrawn(two: Two) -> None:
    """Its word is set, and nobody looks there. In its next turn the word is zero again."""
    guest = two.long.guest
    word = int(guest.ok("cuMemAlloc_v2", bytesize=4096).dptr)
    assert guest.call("yield_attach", word=word).result == 0
    two.overlap()
    so_far = two.await_off()
    wait_until(two.is_off, "it waits for its turn")
    two.long.let_end()
    wait_until(lambda: two.asked() == so_far + "l", "its turn has come")
    assert two.long.value() == 1
    assert struct.unpack("<I", guest.from_device(word, 4)) == (0,)
    assert sum(two.reading().nr_gave_way.values()) == 0


@pytest.mark.parametrize("two", [{"FAIRGV_OFF_TAKES_MS": str(TAKES_NS // NS_PER_MS)}], indirect=True)
def test_beside_a_holder_half_of_what_it_takes_to_go_is_paid_and_nothing_of_what_to_come_back(two: Two) -> None:
    """While it goes, each keeps the other off the device. Here the kernel runs on, and has ended when it is brought back."""
    began_ns = time.monotonic_ns()
    two.overlap(TAKES_NS * 3 // 2)
    wait_until(lambda: two.asked() == "h", "it is taken off")
    two.long.let_end()
    wait_until(lambda: two.asked() == "hl", "it is brought back")
    assert (two.long.value(), two.other.value()) == (1, 2)
    passed_ns = time.monotonic_ns() - began_ns
    assert TAKES_NS // 2 <= two.served.gpu_ns() <= passed_ns - TAKES_NS * 3 // 2


@pytest.mark.parametrize("two", [{"FAIRGV_OFF_TAKES_MS": str(TAKES_NS // NS_PER_MS)}], indirect=True)
def test_for_a_neighbour_that_takes_whole_slices_it_goes_before_the_grant_does(two: Two) -> None:
    """Which is known from its last turn. Half of what that takes is paid."""
    two.host.control.set_standing(1, 0.0, per_ns=1.0, charged_ns=0)
    two.host.control.set_slice_ns(SLICE_NS // 5)
    two.long.late(1, ns=ENDLESS_NS)
    wait_until(lambda: two.reading().stalled_since_ns != 0, "it is on the device")
    for _ in range(2 * SLICE_NS // SHORT_NS):
        two.other.late(2, ns=SHORT_NS)
    wait_until(lambda: two.reading().nr_withdrawn >= 1 and two.is_being_taken_off(), "it goes again")
    seen_ns, holder, used_ns = time.monotonic_ns(), two.host.control.holder().vgpu, two.served.gpu_ns()
    assert two.is_being_taken_off()
    assert holder == 0
    wait_until(lambda: two.reading().is_waiting, "it is off the device")
    paid_ns = two.served.gpu_ns() - used_ns
    took_ns = max(TAKES_NS, time.monotonic_ns() - seen_ns)  # longer where the processors are busy
    assert TAKES_NS // 2 <= paid_ns < took_ns


def test_turns_are_taken_for_as_long_as_both_want_the_device(two: Two) -> None:
    two.host.control.set_standing(1, 0.0, per_ns=1.0, charged_ns=0)
    two.overlap()
    wait_until(lambda: min(reading.nr_withdrawn for reading in two.host.control.workers()) >= 2, "two turns of each")
    two.long.let_end()
    assert (two.long.value(), two.other.value()) == (1, 2)
    assert [two.asked_by(number).replace("hl", "") for number in range(2)] == ["", ""]
    assert sum(reading.nr_withdrawn for reading in two.host.control.workers()) == len(two.asked()) // 2


@pytest.mark.parametrize(("two", "gives_way"), [({}, True), (REFUSES, False)], indirect=["two"])
def test_a_queue_of_kernels_gives_way_to_who_slept(two: Two, *, gives_way: bool) -> None:
    """Once a part of the slice is over, where it can be withdrawn; where that was refused, not before its end."""
    if not gives_way:  # found out with the first that is in the way
        two.overlap()
        wait_until(lambda: two.asked() == "h", "it is asked for")
        two.long.let_end()
        assert (two.long.value(), two.other.value()) == (1, 2)
    two.host.control.set_slice_ns(SLICE_NS)
    sequence, before_ns = two.host.control.holder().sequence, two.served.gpu_ns()
    for _ in range(2 * SLICE_NS // SHORT_NS):
        two.long.late(1, ns=SHORT_NS)
    wait_until(lambda: two.served.gpu_ns() > before_ns, "it is on the device")
    two.other.late(3, ns=1000)
    assert two.other.value() == 3
    turn = itertools.pairwise(two.host.control.hand_overs(after=sequence))
    begun, ended = next((one, next_one) for one, next_one in turn if one.to_vgpu == 0 and next_one.to_vgpu == 1)
    assert (ended.at_ns - begun.at_ns < SLICE_NS) == gives_way


def test_who_was_withdrawn_did_not_sleep(two: Two) -> None:
    """The neighbour's turn goes on to its end, whoever stands first."""
    two.host.control.set_slice_ns(SLICE_NS)
    two.long.late(1, ns=ENDLESS_NS)
    wait_until(lambda: two.reading().stalled_since_ns != 0, "it is on the device")
    for _ in range(2 * SLICE_NS // SHORT_NS):
        two.other.late(2, ns=SHORT_NS)
    so_far = two.await_off()
    two.host.control.set_standing(0, -1.0, per_ns=0.0, charged_ns=0)
    wait_until(lambda: two.asked_by(0) == so_far + "l", "its turn has come")
    assert two.others.gpu_ns() >= SLICE_NS // 2


def test_a_lone_kernel_stays_where_it_is(two: Two) -> None:
    two.long.late(1, ns=KERNEL_NS // 4)
    assert two.long.value() == 1
    assert two.asked() == ""


@pytest.mark.parametrize("two", [REFUSES], indirect=True)
def test_where_the_driver_refuses_to_hold_it_is_asked_once(two: Two) -> None:
    for _ in range(2):
        two.overlap()
        two.stay_beside()
        two.long.let_end()
        assert (two.long.value(), two.other.value()) == (1, 2)
    assert two.asked() == "h"
    assert two.reading().nr_withdrawn == 0
    assert two.long.guest.ok("cuMemGetInfo_v2")


@pytest.mark.parametrize("two", [{"FAIRGV_OFF_REFUSED": "l"}], indirect=True)
def test_where_the_driver_refuses_to_let_go_the_program_is_told_and_others_go_on(two: Two) -> None:
    two.overlap()
    wait_until(lambda: "h" in two.asked(), "it is off the device")
    two.long.let_end()
    assert two.host.workers[0].ended() == {"ended": "the driver does not let its work go on"}
    assert two.asked() == "hl"
    assert two.other.value() == 2


def test_a_program_that_ends_meanwhile_is_let_go_first(two: Two) -> None:
    two.overlap()
    so_far = two.await_off()
    two.long.guest.close()
    wait_until(lambda: two.asked() == so_far + "l", "it is let go")
    two.long.let_end()
    assert two.host.workers[0].ended() == {"ended": "the client closed"}
    assert two.asked() == so_far + "l"
    assert two.other.value() == 2


def test_a_worker_that_is_killed_meanwhile_keeps_nothing_from_others(two: Two) -> None:
    two.overlap()
    so_far = two.await_off()
    worker = two.host.workers[0]
    worker.process.kill()
    worker.process.wait()
    two.host.control.repair(worker.slot)
    assert two.other.value() == 2
    assert two.asked() == so_far


def test_a_driver_without_channels(tmp_path: Path) -> None:
    """The library that workers on a GPU are started with finds none of softgpu's."""
    with (
        contextlib.closing(Host(SOFTGPU, {"LD_PRELOAD": str(LIBRARY)}, is_preemptive=True)) as host,
        make_region() as first,
        make_region() as second,
    ):
        two = Two(host, Served(host, first), Served(host, second), tmp_path / "log")
        two.overlap()
        two.stay_beside()
        two.long.let_end()
        assert (two.long.value(), two.other.value()) == (1, 2)
        two.long.guest.close()
        two.host.workers[0].ended()
        assert "its channels cannot be held: No such device, status 0x0" in two.host.workers[0].errors()


def test_no_device_that_does_not_preempt_is_asked(library: Path, tmp_path: Path) -> None:
    environment = {"LD_PRELOAD": str(library), "FAIRGV_OFF_LOG": str(tmp_path / "log")}
    with (
        contextlib.closing(Host(SOFTGPU, environment, shared=[library.parent, tmp_path])) as host,
        make_region() as first,
        make_region() as second,
    ):
        two = Two(host, Served(host, first), Served(host, second), tmp_path / "log")
        two.overlap()
        wait_until(lambda: two.host.control.workers()[1].is_waiting, "the neighbour waits")
        two.long.let_end()
        assert (two.long.value(), two.other.value()) == (1, 2)
        assert two.asked() == ""
