"""The word by which kernels are asked to give way: when it is set, when it is zero again, and what addresses it may have.

softgpu takes no kernel off the device, so a kernel that is not asked, or does not look, keeps it until it ends by itself. Here it does when a
second word, in the guest's own memory, lets it.
"""

import contextlib
import struct
from collections.abc import Iterator

import pytest

from backend_host.device.readings import Keeps, Motion, Stage, WorkerReading
from ivshmem.region import Region
from tests.backend_host.swapping import CAPACITY, DEVICE, SPAN, bring_out, set_target, wait_for
from tests.backend_host.test_host_functions import posted, rearm, set_behind_function, take_mailbox
from tests.backend_host.test_worker_order import Kernels
from tests.backend_host.worker_guest import (
    FUNCTION,
    MODULE,
    NO_CHUNK,
    PRIMARY,
    Guest,
    kernel_image,
    make_region,
)
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

LOOKS_MODULE, LOOKS = MODULE + 1, FUNCTION + 2
LOOKS_PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 variable;
.visible .entry looks(.param .u64 word, .param .u64 gate)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [word];
    ld.param.u64 %rd2, [gate];
    st.volatile.global.u32 [%rd2+4], 1;
again:
    ld.volatile.global.u32 %r1, [%rd1];
    ld.volatile.global.u32 %r2, [%rd2];
    or.b32 %r3, %r1, %r2;
    setp.eq.u32 %p1, %r3, 0;
    @%p1 bra again;
    ret;
}
"""
SECOND = PRIMARY + (1 << 24)
INVALID_VALUE, INVALID_CONTEXT = 1, 201
WORDS = 1024
SLICE_NS = 80_000_000_000
"""A guest waits for no answer for so long. Who is behind by a slice is a newcomer after a thirty-second of it."""


class Looking:
    """A guest with a kernel that looks at a word in device memory until that is not zero, or until it is let end."""

    def __init__(self, served: Served) -> None:
        self.served, self.guest = served, served.guest
        guest = self.guest
        assert guest.load(kernel_image(LOOKS_PTX), handle=LOOKS_MODULE, blob=8).result == 0
        guest.ok("cuModuleGetFunction", b"looks", module=LOOKS_MODULE, handle=LOOKS, name_bytes=5, chunk=NO_CHUNK)
        self.gate = guest.allocate(4096)
        guest.ok("host_register", address=guest.address + self.gate, bytes=4096)
        self.memory = self.allocate()

    def allocate(self) -> int:
        """Words that are zero."""
        address = int(self.guest.ok("cuMemAlloc_v2", bytesize=4 * WORDS).dptr)
        self.guest.ok("cuMemsetD32_v2", dstDevice=address, ui=0, N=WORDS)
        return address

    def attach(self, word: int) -> int:
        return self.guest.call("yield_attach", word=word).result

    def detach(self) -> None:
        self.guest.ok("yield_detach", address=0, bytes=2**64 - 1)

    def look(self, word: int) -> int:
        """Its kernel runs; the slot of who waits for its end."""
        self.guest.write_word(self.gate, 0)
        self.guest.write_word(self.gate + 4, 0)
        self.guest.launch(LOOKS, struct.pack("<QQ", word, self.guest.address + self.gate))
        slot = self.guest.begin("cuCtxSynchronize")
        wait_until(lambda: self.guest.read(self.gate + 4, 4) != bytes(4), "it runs")
        return slot

    def let_end(self) -> None:
        self.guest.write_word(self.gate, 1)

    def await_end(self, slot: int) -> None:
        assert self.guest.finish("cuCtxSynchronize", slot).result == 0

    def word(self, address: int) -> int:
        return int(struct.unpack("<I", self.guest.from_device(address, 4))[0])

    def reading(self) -> WorkerReading:
        found = self.served.host.control.worker(self.served.worker.slot)
        assert found is not None
        return found

    def nr_gave_way(self) -> int:
        return sum(self.reading().nr_gave_way.values())

    def await_phase(self, phase: str) -> None:
        wait_until(lambda: self.reading().phase == phase, f"it is {phase}")


class Beside:
    """A guest whose kernels look, and another vGPU's, which wants the GPU for a moment."""

    def __init__(self, host: Host, looking: Served, other: Served) -> None:
        self.host = host
        looking.primary().ok("span_open", address=SPAN, bytes=4 * DEVICE)
        self.looking, self.other = Looking(looking), Kernels(other.primary())
        for vgpu, per_ns in ((0, 1.0), (1, 0.0)):  # the other one is always next, for as long as it wants the device
            host.control.set_standing(vgpu, 0.0, per_ns=per_ns, charged_ns=0)

    def ask(self) -> int:
        """The other one's kernel comes; the slot of who waits for it."""
        self.other.late(2, ns=1000)
        return self.other.guest.begin("cuCtxSynchronize")

    def await_other(self, slot: int) -> None:
        assert self.other.guest.finish("cuCtxSynchronize", slot).result == 0


@pytest.fixture
def beside(host: Host, region: Region) -> Iterator[Beside]:
    with make_region() as other:
        yield Beside(host, Served(host, region, memory="span"), Served(host, other))


def test_a_kernel_gives_way_and_its_word_is_zero_in_the_next_turn(beside: Beside) -> None:
    """More than once, and each time is counted. Between them nothing of the word is left for the next launch."""
    looking = beside.looking
    assert looking.attach(looking.memory) == 0
    for nr in range(1, 4):
        end = looking.look(looking.memory)
        beside.await_other(beside.ask())
        looking.await_end(end)
        wait_until(lambda nr=nr: looking.nr_gave_way() == nr, "it is counted")  # type: ignore[misc]
        assert looking.word(looking.memory) == 0
    assert looking.reading().gave_way_ns > 0
    assert looking.reading().nr_bad_phases == 0


def test_nobody_is_asked_while_nobody_waits(beside: Beside) -> None:
    looking = beside.looking
    assert looking.attach(looking.memory) == 0
    begun_ns = looking.served.gpu_ns()
    end = looking.look(looking.memory)
    wait_until(lambda: looking.served.gpu_ns() - begun_ns > 10 * 6_000_000, "ten slices are over")
    assert not looking.guest.is_answered(end)
    looking.let_end()
    looking.await_end(end)
    assert looking.nr_gave_way() == 0


def test_what_was_there_is_zero_before_the_first_launch(beside: Beside) -> None:
    looking = beside.looking
    looking.guest.ok("cuMemsetD32_v2", dstDevice=looking.memory, ui=7, N=2)
    assert looking.attach(looking.memory) == 0
    assert [looking.word(looking.memory + offset) for offset in (0, 4)] == [0, 7]


def test_a_newcomer_need_not_wait_for_the_slice(beside: Beside) -> None:
    looking = beside.looking
    assert looking.attach(looking.memory) == 0
    beside.host.control.set_slice_ns(SLICE_NS)
    for vgpu, standing in ((0, 2.0), (1, 1.0)):
        beside.host.control.set_standing(vgpu, standing, 0.0, charged_ns=0)
    end = looking.look(looking.memory)
    beside.await_other(beside.ask())
    looking.await_end(end)


def test_the_last_word_counts(beside: Beside) -> None:
    looking = beside.looking
    first, last = looking.memory, looking.memory + 64
    assert [looking.attach(word) for word in (first, last)] == [0, 0]
    looking.guest.ok("cuMemsetD32_v2", dstDevice=first, ui=7, N=1)
    end = looking.look(last)
    beside.await_other(beside.ask())
    looking.await_end(end)
    assert looking.word(first) == 7, "nothing is written there any more"


def test_the_same_word_again_is_taken_back_too(beside: Beside) -> None:
    """Also between the end of a kernel that gave way and its next launch."""
    looking = beside.looking
    assert looking.attach(looking.memory) == 0
    end = looking.look(looking.memory)
    beside.await_other(beside.ask())
    looking.await_end(end)
    assert looking.attach(looking.memory) == 0
    looking.detach()
    assert looking.attach(looking.memory) == 0
    assert looking.word(looking.memory) == 0


def test_detached_while_a_kernel_runs(beside: Beside) -> None:
    """It is not asked, and what is attached when its turn is over already is asked at once."""
    looking = beside.looking
    assert looking.attach(looking.memory) == 0
    end = looking.look(looking.memory)
    looking.detach()
    asked = beside.ask()
    looking.await_phase("draining")
    assert not looking.guest.is_answered(end)
    assert looking.attach(looking.memory) == 0
    beside.await_other(asked)
    looking.await_end(end)


def keeps_what_is_there(beside: Beside, address: int) -> None:
    """A turn comes to its end while 7 stands there, and nothing is written."""
    looking = beside.looking
    looking.guest.ok("cuMemsetD32_v2", dstDevice=address, ui=7, N=1)
    other = looking.allocate()
    end = looking.look(other)
    asked = beside.ask()
    looking.await_phase("draining")
    looking.let_end()
    looking.await_end(end)
    beside.await_other(asked)
    assert looking.word(address) == 7
    assert looking.nr_gave_way() == 0


def test_a_word_ends_with_its_memory(beside: Beside) -> None:
    looking = beside.looking
    freed = looking.allocate()
    assert looking.attach(freed) == 0
    looking.guest.ok("cuMemFree_v2", dptr=freed)
    assert looking.allocate() == freed, "else this shows nothing"
    keeps_what_is_there(beside, freed)


def test_a_word_ends_with_memory_of_a_pool(beside: Beside) -> None:
    looking, guest = beside.looking, beside.looking.guest
    word = int(guest.ok("cuMemAllocFromPoolAsync", bytes=4 * WORDS).address)
    assert looking.attach(word) == 0
    guest.ok("cuMemFreeAsync", address=word, stream=0)
    again = int(guest.ok("cuMemAllocFromPoolAsync", bytes=4 * WORDS).address)
    assert again == word, "else this shows nothing"
    keeps_what_is_there(beside, word)


def test_a_word_in_mapped_memory_ends_with_the_mapping(beside: Beside) -> None:
    looking, guest = beside.looking, beside.looking.guest
    size = 2 << 20
    address = int(guest.ok("cuMemAddressReserve", bytes=size, alignment=size).address)
    guest.ok("cuMemCreate", handle=5, bytes=size)

    def put() -> None:
        guest.ok("cuMemMap", address=address, bytes=size, handle=5)
        guest.ok("cuMemSetAccess", address=address, bytes=size, access=3)
        guest.ok("cuMemsetD32_v2", dstDevice=address, ui=0, N=WORDS)

    put()
    assert looking.attach(address) == 0
    end = looking.look(address)
    beside.await_other(beside.ask())
    looking.await_end(end)
    wait_until(lambda: looking.nr_gave_way() == 1, "it is counted")
    guest.ok("cuMemUnmap", address=address, bytes=size)
    put()
    guest.ok("cuMemsetD32_v2", dstDevice=address, ui=7, N=1)
    end = looking.look(looking.memory)
    asked = beside.ask()
    looking.await_phase("draining")
    looking.let_end()
    looking.await_end(end)
    beside.await_other(asked)
    assert looking.word(address) == 7


def test_a_word_waits_for_its_memory(host: Host, region: Region) -> None:
    """Which has left the device to make room; a word that cannot be written is none."""
    host.control.set_capacity(CAPACITY, 2 * CAPACITY)
    with make_region() as other:
        served = Served(host, region, memory="span")
        set_target(served, CAPACITY)
        beside = Beside(host, served, Served(host, other))
        looking = beside.looking
        bring_out(served)
        slot = looking.guest.begin("yield_attach", word=looking.memory)
        wait_for(served, lambda each: each.displaced_since_ns != 0, "it waits for its memory")
        assert not looking.guest.is_answered(slot)
        set_target(served, CAPACITY)
        assert looking.guest.finish("yield_attach", slot).result == 0
        end = looking.look(looking.memory)
        beside.await_other(beside.ask())
        looking.await_end(end)


def test_wrong_addresses(beside: Beside) -> None:
    """Each is refused, and the word that was attached before is the context's still."""
    looking, guest = beside.looking, beside.looking.guest
    memory = looking.memory
    guest.ok("context_create", context=0, handle=SECOND)
    guest.context = SECOND
    others = looking.allocate()
    guest.context = PRIMARY
    variable = guest.ok("cuModuleGetGlobal_v2", b"variable", module=LOOKS_MODULE, name_bytes=8).address
    freed = looking.allocate()
    guest.ok("cuMemFree_v2", dptr=freed)
    assert looking.attach(memory) == 0
    wrong = {
        "nothing": 0,
        "the end of all addresses": 2**64 - 4,
        "not aligned": memory + 2,
        "behind its end": memory + 4 * WORDS,
        "across its end": memory + 4 * WORDS - 2,
        "pinned memory": guest.address + looking.gate,
        "another context's": others,
        "a variable": variable,
        "freed": freed,
        "another program's": beside.other.address + (64 << 20),
    }
    nr_refused = looking.reading().nr_refused
    assert {what: looking.attach(word) for what, word in wrong.items()} == dict.fromkeys(wrong, INVALID_VALUE)
    assert looking.reading().nr_refused == nr_refused + len(wrong)
    assert guest.call("yield_attach", context=0, word=memory).result == INVALID_CONTEXT
    assert guest.call("yield_detach", context=0, bytes=2**64 - 1).result == INVALID_CONTEXT
    guest.ok("yield_detach", address=memory + 4, bytes=64)
    end = looking.look(memory)
    beside.await_other(beside.ask())
    looking.await_end(end)


def test_contexts_have_a_word_each(beside: Beside) -> None:
    """Which ends with the context."""
    looking, guest = beside.looking, beside.looking.guest
    guest.ok("context_create", context=0, handle=SECOND)
    guest.context = SECOND
    others = looking.allocate()
    assert looking.attach(others) == 0
    guest.context = PRIMARY
    assert looking.attach(looking.memory) == 0
    end = looking.look(looking.memory)
    beside.await_other(beside.ask())
    looking.await_end(end)
    guest.ok("context_destroy", handle=SECOND)
    end = looking.look(looking.memory)
    beside.await_other(beside.ask())
    looking.await_end(end)
    wait_until(lambda: looking.nr_gave_way() == 2, "both are counted")


def test_one_that_does_not_look_is_let_run(region: Region) -> None:
    """Where the device preempts it is waited for no longer than a persistent kernel: the grant goes on beside it."""
    with contextlib.closing(Host(SOFTGPU, is_preemptive=True)) as host, make_region() as other:
        two = Beside(host, Served(host, region, memory="span"), Served(host, other))
        looking = two.looking
        assert looking.attach(looking.memory) == 0
        end = looking.look(looking.allocate())
        asked = two.ask()
        wait_until(lambda: host.control.holder().vgpu == 1, "the other vGPU has the grant")
        assert not looking.guest.is_answered(end)
        looking.let_end()
        looking.await_end(end)
        two.await_other(asked)


def test_a_client_that_leaves_while_its_kernel_looks(beside: Beside) -> None:
    """Nobody is left to end it, and no driver lets go of what runs."""
    looking = beside.looking
    assert looking.attach(looking.memory) == 0
    looking.look(looking.memory)
    looking.guest.close()
    assert looking.served.worker.ended() == {"ended": "the client closed"}
    beside.await_other(beside.ask())


def test_it_is_asked_before_its_program_is_paused(region: Region) -> None:
    """Its vGPU is to move to another Gpu; the kernel would have it wait for ever."""
    with contextlib.closing(Host(SOFTGPU)) as host:
        served = Served(host, region, quota_bytes=1 << 30, memory="span")
        served.primary().ok("span_open", address=SPAN, bytes=4 * DEVICE)
        looking = Looking(served)
        assert looking.attach(looking.memory) == 0
        end = looking.look(looking.memory)
        for motion, stage in ((Motion.PREPARE, Stage.PREPARED), (Motion.STAND, Stage.STANDS)):
            host.control.set_motion(served.vgpu, motion)
            wait_until(lambda stage=stage: looking.reading().stage is stage, stage.name)  # type: ignore[misc]
        assert looking.reading().resident_bytes == 0
        host.control.set_motion(served.vgpu, Motion.NONE)
        looking.await_end(end)
        assert looking.word(looking.memory) == 0
        end = looking.look(looking.memory)
        looking.let_end()
        looking.await_end(end)
        assert looking.nr_gave_way() == 1


def test_it_waits_for_what_stands_behind_a_host_function(region: Region) -> None:
    """It does not look at the word that asks it, and ends by what comes behind the function once its vGPU is to move."""
    with contextlib.closing(Host(SOFTGPU)) as host:
        served = Served(host, region, quota_bytes=1 << 30, memory="span")
        guest = served.primary()
        guest.ok("span_open", address=SPAN, bytes=4 * DEVICE)
        take_mailbox(guest)
        looking = Looking(served)
        word = looking.allocate()
        assert looking.attach(looking.memory) == 0
        end = looking.look(word)
        set_behind_function(guest, word, 1)
        assert posted(guest) == (1, 0)
        host.control.set_motion(served.vgpu, Motion.STAND)
        wait_until(lambda: looking.reading().keeps is Keeps.FOR_WORK, "it is to stand")
        rearm(guest)
        looking.await_end(end)
        wait_until(lambda: looking.reading().stage is Stage.STANDS, "it stands")


def fuzzed(guest: Guest) -> Iterator[bytes]:
    """Records of any length and content."""
    whole = guest.record("yield_attach", word=2**64 - 1)
    yield from (whole[:length] for length in range(len(whole)))
    yield whole + bytes(8)
    yield guest.record("yield_detach", address=2**63, bytes=2**63)
    yield guest.record("yield_detach", address=2**64 - 1, bytes=2**64 - 1)


def test_odd_records(beside: Beside) -> None:
    looking = beside.looking
    assert looking.attach(looking.memory) == 0
    for record in fuzzed(looking.guest):
        slot = looking.guest.begin_raw(record)
        assert looking.guest.finish("yield_attach", slot).result in (0, INVALID_VALUE)
    end = looking.look(looking.memory)
    beside.await_other(beside.ask())
    looking.await_end(end)
