"""Parts of a launch beside each other: which streams of the device library they go on, and what comes before and behind them."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backend_host.call_log import Call, Logged, build_call_log
from tests.backend_host.test_worker_parts import (
    BOXES,
    BROKEN,
    ILLEGAL_ADDRESS,
    LARGE,
    LONG_NS,
    PERSISTENT,
    Kernels,
    expected,
)
from tests.backend_host.worker_guest import EVENT, PRIMARY, STREAM, make_region
from tests.backend_host.worker_harness import Host, Served
from tests.end_to_end.host import wait_until

NR_BLOCKS = 48
"""Twelve parts, so that the last one goes in the lane."""
NR_PARTS = NR_BLOCKS // BOXES["least_blocks"]
LEGACY, OTHER = 0, STREAM + 1
OTHER_EVENT = EVENT + 1
BLOCKING, NON_BLOCKING = 0, 1
URGENT = 3
"""A priority, negated."""
VALUE = 7


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_call_log(tmp_path_factory.mktemp("call_log"))


class Streams(Logged):
    """One that makes streams, and waits on them."""

    def create(self, stream: int, flags: int = NON_BLOCKING, urgency: int = 0) -> int:
        """The device library's stream."""
        self.calls()
        self.guest.ok("cuStreamCreateWithPriority", phStream=stream, flags=flags, priority=-urgency)
        return created(self.calls(), urgency)

    def learn(self) -> None:
        """From now on it is known what a block takes, and a second part goes out beside the first."""
        self.count(NR_BLOCKS)
        self.wait()

    def fill(self, value: int, stream: int) -> None:
        self.guest.cast_off("cuMemsetD32Async", dstDevice=self.address, ui=value, N=NR_BLOCKS, hStream=stream)

    def record_and_wait(self, event: int, recorded: int, waiting: int) -> None:
        self.guest.ok("cuEventCreate", phEvent=event, Flags=2)
        self.guest.cast_off("cuEventRecord", hEvent=event, hStream=recorded)
        self.guest.cast_off("cuStreamWaitEvent", hStream=waiting, hEvent=event, Flags=0)


@pytest.fixture
def environment() -> dict[str, str]:
    return {}


@pytest.fixture
def settings() -> dict[str, int]:
    return BOXES


@pytest.fixture
def logged(library: Path, tmp_path: Path, environment: dict[str, str], settings: dict[str, int]) -> Iterator[Streams]:
    log = tmp_path / "calls"
    host = Host(library, {"FAIRGV_CALL_LOG": str(log), **environment}, shared=[tmp_path])
    try:
        with make_region() as region:
            yield Streams(Served(host, region, slicing=settings), log)
    finally:
        host.close()


def launches(calls: list[Call]) -> list[int]:
    """The streams of all launches."""
    return [call.stream for call in calls if call.name == "launch"]


def created(calls: list[Call], urgency: int = 0) -> int:
    """The one stream that was made."""
    [found] = [call for call in calls if call.name == "create"]
    assert found.detail == urgency
    return found.stream


def index_of(calls: list[Call], name: str, stream: int) -> int:
    """Of the first such call."""
    return next(i for i, call in enumerate(calls) if (call.name, call.stream) == (name, stream))


@pytest.mark.parametrize(("flags", "urgency"), [(None, 0), (BLOCKING, 0), (NON_BLOCKING, URGENT)])
def test_every_other_part_goes_in_a_lane(logged: Streams, flags: int | None, urgency: int) -> None:
    number = LEGACY if flags is None else STREAM
    stream = 0 if flags is None else logged.create(STREAM, flags, urgency)
    logged.count(NR_BLOCKS, stream=number)
    calls = logged.wait()
    lane = created(calls, urgency)
    assert launches(calls) == [stream, lane] * (NR_PARTS // 2)
    assert logged.words(NR_BLOCKS, stream=number) == expected(nr_blocks=NR_BLOCKS)


def test_the_lane_begins_behind_what_stood_before_and_is_waited_for(logged: Streams) -> None:
    stream = logged.create(STREAM)
    logged.count(NR_BLOCKS, stream=STREAM)
    calls = logged.wait()
    lane = created(calls)
    entered = index_of(calls, "wait", lane)
    forked = calls.index(Call("record", stream, calls[entered].detail))
    assert forked < index_of(calls, "launch", stream) < entered < index_of(calls, "launch", lane)
    joined = index_of(calls, "wait", stream)
    assert launches(calls[joined:]) == []
    last_launch = max(i for i, call in enumerate(calls) if call.name == "launch")
    assert Call("record", lane, calls[joined].detail) in calls[last_launch:joined]
    assert [call.name for call in calls if call.stream == lane].count("wait") == 1, "once for the launch"


def test_what_stood_before_ends_before_any_part(logged: Streams) -> None:
    logged.create(STREAM)
    logged.create(OTHER)
    logged.learn()
    for _ in range(2):
        logged.count(4, 4 * LONG_NS, OTHER)
    logged.record_and_wait(OTHER_EVENT, OTHER, STREAM)
    logged.fill(VALUE, STREAM)
    logged.count(NR_BLOCKS, stream=STREAM)
    assert logged.words(NR_BLOCKS, stream=STREAM) == expected(nr_blocks=NR_BLOCKS)
    assert len(set(launches(logged.calls()))) == 3, "the lane among them"


def test_constants_are_filled_before_any_part(logged: Streams) -> None:
    logged.create(STREAM)
    for value in (3, 4):
        logged.guest.to_device(logged.variable(b"factor"), struct.pack("<I", value), STREAM)
        logged.count(NR_BLOCKS, stream=STREAM)
        assert logged.words(NR_BLOCKS, stream=STREAM) == expected(value, NR_BLOCKS)


@pytest.mark.parametrize("flags", [BLOCKING, NON_BLOCKING])
def test_what_comes_behind_finds_all_parts_done(logged: Streams, flags: int) -> None:
    """In its stream, in the legacy stream if it blocks with that, and in another one behind an event."""
    logged.create(STREAM, flags)
    logged.create(OTHER)
    for then in (STREAM, OTHER, LEGACY)[: 3 - flags]:
        logged.fill(0, STREAM)
        logged.count(NR_BLOCKS, LONG_NS, STREAM)
        if then == OTHER:
            logged.record_and_wait(EVENT, STREAM, OTHER)
        assert logged.words(NR_BLOCKS, stream=then) == expected(nr_blocks=NR_BLOCKS)


def test_the_legacy_streams_order(logged: Streams) -> None:
    """Parts beside it come behind a blocking stream's work, and before that stream's next."""
    logged.create(STREAM, BLOCKING)
    logged.learn()
    logged.count(4, 4 * LONG_NS, STREAM)
    logged.fill(VALUE, STREAM)
    logged.count(NR_BLOCKS, LONG_NS, LEGACY)
    assert logged.words(NR_BLOCKS, stream=STREAM) == expected(nr_blocks=NR_BLOCKS)


def test_a_lane_is_made_once_for_each_priority(logged: Streams) -> None:
    streams = [logged.create(STREAM), logged.create(OTHER, urgency=URGENT)]
    calls: list[Call] = []
    for _ in range(2):
        for number in (STREAM, OTHER, LEGACY):
            logged.count(NR_BLOCKS, stream=number)
            calls += logged.wait()
    made = [call for call in calls if call.name == "create"]
    assert [call.detail for call in made] == [0, URGENT]
    lanes = [call.stream for call in made]
    pairs = [(streams[0], lanes[0]), (streams[1], lanes[1]), (0, lanes[0])]
    assert launches(calls) == [stream for pair in pairs * 2 for stream in pair * (NR_PARTS // 2)]


def test_launches_on_two_streams_one_after_the_other(logged: Streams) -> None:
    """The second may find the lane in use, and takes it when that has run dry."""
    streams = [logged.create(STREAM), logged.create(OTHER)]
    logged.count(NR_BLOCKS, LONG_NS, STREAM)
    logged.count(NR_BLOCKS, LONG_NS, OTHER)
    calls = logged.wait()
    lane = created(calls)
    used = launches(calls)
    assert used[:NR_PARTS] == [streams[0], lane] * (NR_PARTS // 2)
    assert used[NR_PARTS] == streams[1]
    assert set(used[NR_PARTS:]) == {streams[1], lane}
    assert logged.words(NR_BLOCKS) == expected(nr_blocks=NR_BLOCKS)


@pytest.mark.parametrize("settings", [{**BOXES, "least_blocks": NR_BLOCKS}])
def test_a_launch_of_one_part_needs_none(logged: Streams) -> None:
    logged.count(NR_BLOCKS)
    calls = logged.wait()
    assert launches(calls) == [0]
    assert [call for call in calls if call.name == "create"] == []
    assert logged.reading().nr_sliced == 1


@pytest.mark.parametrize("settings", [PERSISTENT])
def test_a_persistent_kernel_stays_in_its_stream(logged: Streams) -> None:
    stream = logged.create(STREAM)
    logged.count(NR_BLOCKS, stream=STREAM)
    assert set(launches(logged.wait())) == {stream}


@pytest.mark.parametrize("environment", [{"FAIRGV_CALL_LOG_NO_STREAMS": "1"}])
def test_without_streams_to_be_had_all_parts_go_one_after_the_other(logged: Streams) -> None:
    logged.count(NR_BLOCKS)
    assert launches(logged.wait()) == [0] * NR_PARTS
    assert logged.words(NR_BLOCKS) == expected(nr_blocks=NR_BLOCKS)
    assert logged.reading().nr_parts == NR_PARTS


def test_a_fault_in_the_lane_is_the_launchs(logged: Streams) -> None:
    stream = logged.create(STREAM)
    logged.guest.launch(BROKEN, struct.pack("<Q", logged.address), grid=24, stream=STREAM)
    assert logged.guest.call("cuStreamSynchronize", hStream=STREAM).result == ILLEGAL_ADDRESS
    calls = logged.calls()
    assert launches(calls) == [stream, created(calls)] * 3, "it is the last part that fails"
    logged.count(NR_BLOCKS, stream=STREAM)
    assert logged.guest.call("cuCtxSynchronize").result == ILLEGAL_ADDRESS
    assert launches(logged.calls()) == [], "nothing is submitted where nothing is watched"
    logged.guest.ok("context_destroy", handle=PRIMARY)
    logged.guest.close()
    assert logged.served.worker.ended() == {"ended": "the client closed"}


def test_a_stream_that_is_destroyed_meanwhile(logged: Streams) -> None:
    stream = logged.create(STREAM)
    logged.count(NR_BLOCKS, LONG_NS, STREAM)
    logged.guest.cast_off("cuStreamDestroy_v2", hStream=STREAM)
    calls = logged.wait()
    assert launches(calls) == [stream, created(calls)] * (NR_PARTS // 2)
    assert index_of(calls, "wait", stream) < index_of(calls, "destroy", stream)
    assert logged.words(NR_BLOCKS) == expected(nr_blocks=NR_BLOCKS)


def test_a_lane_goes_with_its_context(logged: Streams) -> None:
    logged.count(NR_BLOCKS, LONG_NS)
    logged.guest.ok("context_destroy", handle=PRIMARY)
    calls = logged.calls()
    assert [call.stream for call in calls if call.name == "destroy"] == [created(calls)]


def test_what_is_in_the_lane_is_charged(logged: Streams) -> None:
    """The device runs one part after the other here, and each of them as long as a block at least."""
    logged.count(NR_BLOCKS)
    logged.wait()
    before_ns = logged.served.gpu_ns()
    logged.count(NR_BLOCKS, LONG_NS)
    logged.wait()
    assert logged.served.gpu_ns() - before_ns >= LONG_NS * NR_PARTS * 3 // 4


def test_the_gpu_is_handed_over_between_parts_in_both(logged: Streams) -> None:
    """The other vGPU's kernel comes in the middle; afterwards parts go on where they were, and end as one launch."""
    logged.learn()
    stream = logged.create(STREAM)
    control = logged.served.host.control
    with make_region() as region:
        other = Kernels(Served(logged.served.host, region))
        other.count(1)
        other.guest.ok("cuCtxSynchronize")
        control.set_standing(logged.served.vgpu, 2.0, 0.0, charged_ns=0)
        control.set_standing(other.served.vgpu, 1.0, 0.0, charged_ns=0)
        logged.calls()
        nr_parts = logged.reading().nr_parts
        logged.count(LARGE, 4 * LONG_NS, STREAM)
        wait_until(lambda: logged.reading().nr_parts > nr_parts + 1, "one part is in the lane")
        other.count(1)
        assert other.words(1) == expected(nr_blocks=1)
        calls = logged.wait()
        handed_over = calls.index(next(call for call in calls if call.name == "launch" and call.detail == 1))
        mine = [call for call in calls if call.name == "launch" and call.detail != 1]
        used = [call.stream for call in mine]
        assert used == [stream, used[1]] * (LARGE // BOXES["least_blocks"] // 2)
        assert calls.index(mine[0]) < handed_over < len(calls) - 1 - calls[::-1].index(mine[-1])
        assert logged.words(LARGE, stream=STREAM) == expected(nr_blocks=LARGE)
        other.guest.stop_beating()
