"""Persistent launches under a split: what they leave, when they wait for a place, what is taken back, and which launches go so in a space."""

import contextlib
import os
import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backend_host.worker._worker import lib

from cuda_api.generated.values import SPLIT_K_SHIFT, PersistentState
from ivshmem.region import Region
from tests.backend_host.call_log import Logged, build_call_log
from tests.backend_host.grantees import attach
from tests.backend_host.test_space_page import BEST_EFFORT, CRITICAL
from tests.backend_host.test_worker_parts import (
    BOXES,
    COUNT,
    LARGE,
    LONG_NS,
    NR_BLOCKS,
    PERSISTENT,
    Kernels,
    another,
    check_handed_over,
    expected,
)
from tests.backend_host.worker_guest import FUNCTION, MODULE, NO_CHUNK, STREAM, kernel_image, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

WHOLE_PERSISTENT = PERSISTENT | {"run_blocks": 0}
NR_MULTIPROCESSORS, NR_EACH = 16, 32
"""softgpu's, and blocks of one thread that fit each."""
RUNNERS = {"FAIRGV_SOFTGPU_THREADS": "4"}
"""On so many of them blocks can be."""
ALL = NR_MULTIPROCESSORS | NR_EACH << SPLIT_K_SHIFT
RUBBISH = 0xFFFFFFFF
PAGE_BYTES = 4096
EARLY = FUNCTION + 3
SPOILS = FUNCTION + 3
OTHERS = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry early(.param .u64 out)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<3>;
    .reg .pred %p<2>;
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 ret;
    bar.sync 0;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], 1;
    ret;
}
.visible .entry spoils(.param .u64 at, .param .u32 value)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [at];
    ld.param.u32 %r1, [value];
    setp.eq.u64 %p1, %rd1, 0;
    @%p1 ret;
    st.volatile.global.u32 [%rd1], %r1;
    ret;
}
"""
NR_LONG = 500
"""Kernels of LONG_NS: a second of them."""
OTHER_MODULE = MODULE + 1


class Divided(Served):
    """A guest whose worker finds the split word in a page of the guest's: here it is the test's to write."""

    def told(self, changes: dict[str, Any]) -> dict[str, Any]:
        self._page = self.guest.allocate(PAGE_BYTES)
        return changes | {"slicing": changes["slicing"] | {"split_address": self.guest.address + self._page}}

    def split(self, word: int) -> None:
        self.guest.write_word(self._page, word)

    def show_page(self) -> None:
        """To the device."""
        self.guest.ok("host_register", address=self.guest.address + self._page, bytes=PAGE_BYTES)


def divided(host: Host, region: Region, settings: dict[str, int]) -> tuple[Divided, Kernels]:
    """Under no split yet, its variant made."""
    served = Divided(host, region, slicing=settings)
    kernels = Kernels(served)
    served.show_page()
    kernels.count()
    assert kernels.words() == expected()
    kernels.clear()
    return served, kernels


def load(kernels: Kernels, handle: int, name: bytes) -> None:
    assert kernels.guest.load(kernel_image(OTHERS), handle=OTHER_MODULE).result == 0
    fields: dict[str, Any] = {"module": OTHER_MODULE, "handle": handle, "name_bytes": len(name)}
    kernels.guest.ok("cuModuleGetFunction", name, chunk=NO_CHUNK, **fields)


@pytest.fixture
def host() -> Iterator[Host]:
    with contextlib.closing(Host(SOFTGPU, RUNNERS)) as host:
        yield host


@pytest.mark.parametrize(
    "word",
    [
        0,
        1 | 1 << SPLIT_K_SHIFT,
        1 | NR_EACH << SPLIT_K_SHIFT,
        NR_MULTIPROCESSORS | (NR_EACH - 1) << SPLIT_K_SHIFT,
        0xFFFF,
    ],
    ids=["none", "one of the first", "all of the first", "all but one of each", "n beyond the device, and k 0"],
)
@pytest.mark.parametrize("settings", [PERSISTENT, WHOLE_PERSISTENT], ids=["stopped", "to the end"])
def test_every_block_runs_once_under_a_split(host: Host, region: Region, settings: dict[str, int], word: int) -> None:
    served, kernels = divided(host, region, settings)
    served.split(word)
    kernels.count()
    assert kernels.words() == expected()
    assert kernels.words(1, kernels.variable(b"total")) == [2 * NR_BLOCKS]
    assert (kernels.reading().nr_sliced, kernels.reading().whole) == (2, {})


@pytest.mark.parametrize("word", [ALL, RUBBISH, 0xFFFF | NR_EACH << SPLIT_K_SHIFT], ids=["all", "rubbish", "n"])
def test_without_a_place_it_waits_until_there_is_one(host: Host, region: Region, word: int) -> None:
    served, kernels = divided(host, region, WHOLE_PERSISTENT)
    nr_parts = kernels.reading().nr_parts
    served.split(word)
    kernels.count()
    waits = kernels.guest.begin("cuCtxSynchronize")
    wait_until(lambda: kernels.reading().nr_parts == nr_parts + 1, "it was launched, and its blocks found no place")
    with make_region() as other_region:
        other = Kernels(Served(host, other_region))
        other.count(1)
        assert other.words(1) == expected(nr_blocks=1), "others get the GPU meanwhile"
        other.guest.stop_beating()
    assert not kernels.guest.is_answered(waits)
    assert kernels.reading().nr_parts == nr_parts + 1, "nor was it launched again"
    served.split(0)
    assert kernels.guest.finish("cuCtxSynchronize", waits).result == 0
    assert kernels.words() == expected()
    assert kernels.reading().nr_parts == nr_parts + 2


def test_who_was_kept_out_gets_a_turn_beside_one_that_always_wants_one(host: Host, region: Region) -> None:
    served, kernels = divided(host, region, WHOLE_PERSISTENT)
    with another(host) as other:
        host.control.set_standing(kernels.served.vgpu, 1.0, 0.0, charged_ns=0)
        host.control.set_standing(other.served.vgpu, 2.0, 0.0, charged_ns=0)
        nr_parts = kernels.reading().nr_parts
        served.split(ALL)
        kernels.count()
        waits = kernels.guest.begin("cuCtxSynchronize")
        wait_until(lambda: kernels.reading().nr_parts == nr_parts + 1, "it was launched, and its blocks found no place")
        for _ in range(NR_LONG):
            other.count(1, LONG_NS)
        goes_on = other.guest.begin("cuCtxSynchronize")
        served.split(0)
        assert kernels.guest.finish("cuCtxSynchronize", waits).result == 0
        assert not other.guest.is_answered(goes_on)
        assert kernels.words() == expected()
        assert other.guest.finish("cuCtxSynchronize", goes_on).result == 0


def test_a_client_that_leaves_while_its_launch_is_kept_out(host: Host, region: Region) -> None:
    served, kernels = divided(host, region, WHOLE_PERSISTENT)
    nr_parts = kernels.reading().nr_parts
    served.split(ALL)
    kernels.count()
    wait_until(lambda: kernels.reading().nr_parts == nr_parts + 1, "it was launched")
    kernels.guest.close()
    assert served.worker.ended() == {"ended": "the client closed"}


@pytest.mark.parametrize("take_back_ns", [0, 1_000_000])
def test_a_split_that_changes_all_the_time(host: Host, region: Region, take_back_ns: int) -> None:
    served, kernels = divided(host, region, WHOLE_PERSISTENT | {"take_back_ns": take_back_ns})
    chance = random.Random(take_back_ns)
    for nr_launches in range(1, 4):
        kernels.count(LARGE, LONG_NS // 4)
        waits = kernels.guest.begin("cuCtxSynchronize")
        while not kernels.guest.is_answered(waits):
            served.split(
                chance.choice((0, ALL, RUBBISH, chance.getrandbits(32), chance.randrange(8) | 31 << SPLIT_K_SHIFT))
            )
            os.sched_yield()
        assert kernels.guest.finish("cuCtxSynchronize", waits).result == 0
        assert kernels.words(LARGE) == expected(nr_blocks=LARGE)
        assert kernels.words(1, kernels.variable(b"total")) == [NR_BLOCKS + nr_launches * LARGE]


def test_blocks_come_back_also_when_the_word_changes_behind_what_was_told_of_it(host: Host, region: Region) -> None:
    """A critical worker tells of the word as it submits it, and the device writes that some time later."""
    served, kernels = divided(host, region, WHOLE_PERSISTENT | {"shares_device": 1})
    host.control.set_class(served.vgpu, BEST_EFFORT, 1)
    vgpu = host.control.vgpu_take()
    host.control.set_class(vgpu, CRITICAL, 1)
    _, critical = attach(host.control, vgpu)
    most = NR_MULTIPROCESSORS | (NR_EACH - 2) << SPLIT_K_SHIFT
    served.split(most)
    lib.fgw_space_tell_split(critical, most)
    before = kernels.reading()
    nr_parts = before.nr_parts
    kernels.count(LARGE, 2 * LONG_NS)
    waits = kernels.guest.begin("cuCtxSynchronize")
    wait_until(lambda: kernels.reading().nr_parts == nr_parts + 1, "it has begun")
    lib.fgw_space_tell_split(critical, 0)
    time.sleep(0.02)
    assert kernels.reading().nr_parts == nr_parts + 1, "the word stands"
    served.split(0)
    wait_until(lambda: kernels.reading().nr_parts > nr_parts + 1, "what gave way is taken back")
    assert kernels.reading().nr_sliced == before.nr_sliced, "of the same launch"
    assert not kernels.guest.is_answered(waits)
    lib.fgw_grantee_detach(critical)
    assert kernels.guest.finish("cuCtxSynchronize", waits).result == 0
    assert kernels.words(LARGE) == expected(nr_blocks=LARGE)


def test_the_gpu_is_handed_over_under_a_split(host: Host, region: Region) -> None:
    served, kernels = divided(host, region, WHOLE_PERSISTENT)
    with another(host) as other:
        served.split(NR_MULTIPROCESSORS | (NR_EACH - 2) << SPLIT_K_SHIFT)
        check_handed_over(host, kernels, other, 2 * LONG_NS)


@pytest.fixture
def logged(tmp_path: Path, region: Region) -> Iterator[Logged]:
    """Taking back every moment. softgpu runs kernels one after another: what is taken back begins when the kernel has ended."""
    log = tmp_path / "calls"
    library = build_call_log(tmp_path)
    tmp_path.chmod(0o755)
    with contextlib.closing(Host(library, {"FAIRGV_CALL_LOG": str(log), **RUNNERS}, shared=[tmp_path])) as host:
        served = Divided(host, region, slicing=WHOLE_PERSISTENT | {"take_back_ns": 100_000})
        kernels = Logged(served, log)
        served.show_page()
        yield kernels


def test_what_is_taken_back_runs_beside_and_what_follows_waits_for_it(logged: Logged) -> None:
    logged.guest.ok("cuStreamCreate", phStream=STREAM, Flags=1)
    logged.count(LARGE, 2 * LONG_NS, STREAM)
    logged.guest.cast_off("cuMemsetD32Async", dstDevice=logged.address, ui=7, N=25, hStream=STREAM)
    assert logged.words(LARGE, stream=STREAM) == [7] * 25 + expected(nr_blocks=LARGE)[25:]
    calls = logged.wait()
    stream = next(call.stream for call in calls if call.name == "create")
    launches = [call for call in calls if call.name == "launch"]
    [lane] = {call.stream for call in launches} - {stream}
    assert launches[0].stream == stream
    beside = [call.detail for call in launches if call.stream == lane]
    assert 0 < max(beside) <= LARGE
    assert logged.reading().nr_sliced == 1
    assert logged.words(1, logged.variable(b"total")) == [LARGE]


@pytest.mark.parametrize(
    ("of", "word"),
    [
        ("COUNTER", RUBBISH),  # with little, a kernel that begins again and again
        *((of, word) for of in ("LIMIT", "LIVE") for word in (0, 1, RUBBISH, RUBBISH - 1)),
    ],
)
def test_rubbish_in_the_state_is_its_programs_own_loss(logged: Logged, of: str, word: int) -> None:
    """The kernel writes where its variant counts."""
    load(logged, SPOILS, b"spoils")
    logged.guest.launch(SPOILS, struct.pack("<QI", 0, 0), grid=NR_BLOCKS)
    [state] = [call.stream for call in logged.wait() if call.name == "state"]
    at = state + getattr(PersistentState, of)
    logged.guest.launch(SPOILS, struct.pack("<QI", at, word), grid=NR_BLOCKS)
    logged.guest.ok("cuCtxSynchronize")
    logged.count()
    assert logged.words() == expected()
    assert logged.reading().nr_sliced == 3


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["off", "boxes", "persistent"])
def test_what_the_device_does_not_take_at_once_goes_persistently_in_a_space(
    host: Host, region: Region, mode: int
) -> None:
    settings = BOXES | {"mode": mode, "threshold_blocks": 1 << 40, "shares_device": 1}
    kernels = Kernels(Served(host, region, slicing=settings))
    for nr_blocks, nr_sliced in ((NR_MULTIPROCESSORS * NR_EACH, 0), (NR_MULTIPROCESSORS * NR_EACH + 1, 1)):
        kernels.clear()
        kernels.count(nr_blocks)
        assert kernels.words(nr_blocks) == expected(nr_blocks=nr_blocks)
        reading = kernels.reading()
        assert (reading.nr_sliced, reading.nr_variants, reading.nr_parts) == (nr_sliced, nr_sliced, nr_sliced)
    assert kernels.reading().whole == {}


@pytest.mark.parametrize("threshold_blocks", [10, 1 << 40])
def test_what_cannot_be_persistent_goes_as_it_would_otherwise(
    host: Host, region: Region, threshold_blocks: int
) -> None:
    settings = BOXES | {"threshold_blocks": threshold_blocks, "least_blocks": 100, "shares_device": 1}
    kernels = Kernels(Served(host, region, slicing=settings))
    load(kernels, EARLY, b"early")
    for _ in range(2):
        kernels.clear()
        kernels.guest.launch(EARLY, struct.pack("<Q", kernels.address), grid=LARGE)
        assert kernels.words(LARGE) == [1] * LARGE
    reading = kernels.reading()
    assert reading.nr_variants == 1
    assert (reading.nr_sliced, reading.nr_parts) == ((2, 12) if threshold_blocks == 10 else (0, 0))
    assert reading.whole == {}


def test_a_small_launch_of_a_program_with_the_device_for_itself_goes_whole(host: Host, region: Region) -> None:
    kernels = Kernels(Served(host, region, slicing=BOXES | {"threshold_blocks": 1 << 40}))
    kernels.guest.launch(COUNT, struct.pack("<QQ", kernels.address, 0), grid=LARGE)
    assert kernels.words(LARGE) == expected(nr_blocks=LARGE)
    assert (kernels.reading().nr_sliced, kernels.reading().nr_variants) == (0, 0)
