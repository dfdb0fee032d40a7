"""Host functions between a worker and a guest made by hand: the mailbox, what waits behind a function and is not charged, lies, ends."""

import struct
from collections.abc import Iterator

import pytest

from ivshmem.region import Wake
from tests.backend_host.worker_guest import EVENT, PRIMARY, STREAM, Guest, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

MAILBOX = Guest.NR_RESPONSES - 1
WAITING, DONE = 1, 3
INVALID_VALUE, INVALID_HANDLE, CAPTURE_UNSUPPORTED = 1, 400, 900
OTHER_STREAM = STREAM + 1
EXEC = 0x4A_00000001_000001
SECOND, THIRD = PRIMARY + 1, PRIMARY + 2
HOST_NODE = 3
ILLEGAL_STATE = 401
NON_BLOCKING = 1
NR_MORE_THAN_FIT = 600
NR_CONTEXTS, NR_EVENTS = 60, 500
"""Who waits for a function looks about once a millisecond, and a context with so many events takes a good part of one to go."""
AREA_BYTES = 1 << 22
"""That takes the device longer to set than any latency that is taken off."""


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host(SOFTGPU)
    yield host
    host.close()


@pytest.fixture(params=[Wake.FUTEX, Wake.POLL])
def served(host: Host, request: pytest.FixtureRequest) -> Iterator[Served]:
    with make_region(wake=request.param) as region:
        served = Served(host, region)
        guest = served.primary()
        for stream in (STREAM, OTHER_STREAM):
            guest.cast_off("cuStreamCreate", phStream=stream, Flags=NON_BLOCKING)
        guest._free.remove(MAILBOX)
        yield served


def slot_of(guest: Guest) -> int:
    return guest.parts["responses"] + MAILBOX * 512


def rearm(guest: Guest) -> None:
    guest.write_word(slot_of(guest), WAITING)


def open_mailbox(guest: Guest) -> None:
    rearm(guest)
    guest.cast_off("host_mailbox", slot=MAILBOX)


def posted(guest: Guest) -> tuple[int, int]:
    """Waits for the next function: its number and the status of its stream."""
    guest._wait(slot_of(guest))
    payload = guest.read(slot_of(guest) + 16, 16)
    return int.from_bytes(payload[:8], "little"), int.from_bytes(payload[8:12], "little")


def take_mailbox(guest: Guest) -> None:
    """Before anything of the guest goes on for long, which may have the mailbox's place for its answer."""
    guest._free.remove(MAILBOX)
    open_mailbox(guest)


def set_behind_function(guest: Guest, address: int, value: int) -> None:
    """A word that a stream of its own sets once its function has returned: `posted` tells of the call, and `rearm` lets it return."""
    guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=NON_BLOCKING)
    guest.cast_off("cuLaunchHostFunc", stream=STREAM, function=1)
    guest.cast_off("cuMemsetD32Async", dstDevice=address, ui=value, N=1, hStream=STREAM)


def is_posted(guest: Guest) -> bool:
    return guest.read(slot_of(guest), 4) == DONE.to_bytes(4, "little")


def test_a_function_stands_in_its_stream(served: Served) -> None:
    guest = served.guest
    open_mailbox(guest)
    guest.cast_off("cuLaunchHostFunc", stream=STREAM, function=42)
    guest.cast_off("cuStreamAddCallback", stream=STREAM, function=(1 << 64) - 1)
    waits = guest.begin("cuStreamSynchronize", hStream=STREAM)
    assert posted(guest) == (42, 0)
    guest.ok("cuStreamSynchronize", hStream=OTHER_STREAM)
    assert not guest.is_answered(waits)
    rearm(guest)
    assert posted(guest) == ((1 << 64) - 1, 0)
    assert not guest.is_answered(waits)
    rearm(guest)
    assert guest.finish("cuStreamSynchronize", waits).result == 0


def test_what_waits_behind_a_function_costs_nobody_anything(served: Served) -> None:
    guest = served.guest
    address = guest.ok("cuMemAlloc_v2", bytesize=1 << 22).dptr
    guest.cast_off("cuEventCreate", phEvent=EVENT, Flags=2)
    open_mailbox(guest)
    guest.cast_off("cuLaunchHostFunc", stream=STREAM, function=1)
    assert posted(guest) == (1, 0)
    for _ in range(100):
        guest.cast_off("cuMemsetD8Async", dstDevice=address, uc=3, N=1 << 16, hStream=STREAM)
    guest.cast_off("cuEventRecord", hEvent=EVENT, hStream=STREAM)
    guest.cast_off("cuStreamWaitEvent", hStream=OTHER_STREAM, hEvent=EVENT)
    guest.cast_off("cuMemsetD8Async", dstDevice=address, uc=7, N=1 << 22, hStream=OTHER_STREAM)
    waits = guest.begin("cuCtxSynchronize")
    guest.ok("cuMemGetInfo_v2")
    wait_until(lambda: served.host.control.holder().vgpu is None, "the grant is free")
    before_ns = served.gpu_ns()
    guest.ok("cuMemGetInfo_v2")
    assert not guest.is_answered(waits)
    assert served.host.control.holder().vgpu is None
    assert served.gpu_ns() == before_ns
    rearm(guest)
    assert guest.finish("cuCtxSynchronize", waits).result == 0
    assert guest.from_device(address + (1 << 21), 4) == b"\x07" * 4
    assert served.gpu_ns() > before_ns
    wait_until(lambda: served.host.control.holder().vgpu is None, "nothing is in flight")


def test_work_before_a_function_is_charged_and_work_after_it_again(served: Served) -> None:
    guest = served.guest
    address = guest.ok("cuMemAlloc_v2", bytesize=1 << 24).dptr
    open_mailbox(guest)
    charged = [served.gpu_ns()]
    for number in (1, 2, 3):
        guest.cast_off("cuMemsetD8Async", dstDevice=address, uc=number, N=1 << 24, hStream=STREAM)
        guest.cast_off("cuLaunchHostFunc", stream=STREAM, function=number)
    for number in (1, 2, 3):
        assert posted(guest) == (number, 0)
        wait_until(lambda: served.host.control.holder().vgpu is None, "what runs is over, what is left waits")
        charged.append(served.gpu_ns())
        rearm(guest)
    guest.ok("cuCtxSynchronize")
    assert charged == sorted(set(charged))


def test_more_functions_than_fit_into_the_driver(served: Served) -> None:
    guest = served.guest
    open_mailbox(guest)
    for number in range(NR_MORE_THAN_FIT):
        guest.cast_off("cuLaunchHostFunc", stream=STREAM, function=number)
    waits = guest.begin("cuCtxSynchronize")
    for number in range(NR_MORE_THAN_FIT):
        assert posted(guest) == (number, 0)
        rearm(guest)
    assert guest.finish("cuCtxSynchronize", waits).result == 0


def test_work_behind_a_function_and_a_value_waits_for_both(served: Served) -> None:
    guest = served.guest
    address = guest.ok("cuMemAlloc_v2", bytesize=16 * AREA_BYTES).dptr
    guest.cast_off("cuMemsetD32_v2", dstDevice=address, ui=0, N=1)
    guest.ok("cuCtxSynchronize")
    open_mailbox(guest)
    guest.cast_off("cuStreamWaitValue32_v2", stream=STREAM, addr=address, value=1, flags=0)
    guest.cast_off("cuMemsetD8Async", dstDevice=address + AREA_BYTES, uc=3, N=4 * AREA_BYTES, hStream=STREAM)
    guest.cast_off("cuLaunchHostFunc", stream=STREAM, function=1)
    guest.cast_off("cuLaunchHostFunc", stream=OTHER_STREAM, function=2)
    guest.cast_off("cuStreamWaitValue32_v2", stream=OTHER_STREAM, addr=address, value=2, flags=0)
    for stream, uc in ((STREAM, 7), (OTHER_STREAM, 9)):
        for _ in range(50):
            guest.cast_off("cuMemsetD8Async", dstDevice=address + AREA_BYTES * uc, uc=uc, N=AREA_BYTES, hStream=stream)
    waits = guest.begin("cuCtxSynchronize")
    idle = "nobody holds the grant"

    def rests() -> int:
        guest.ok("cuMemGetInfo_v2")
        wait_until(lambda: served.host.control.holder().vgpu is None, idle)
        assert not guest.is_answered(waits)
        return served.gpu_ns()

    assert posted(guest) == (2, 0)
    charged = rests()
    rearm(guest)  # the value is still to come
    assert rests() == charged
    guest.cast_off("cuStreamWriteValue32_v2", stream=0, addr=address, value=1)
    assert posted(guest) == (1, 0)
    wait_until(lambda: served.gpu_ns() > charged, "what stood before the function is charged")
    charged = rests()
    guest.cast_off("cuStreamWriteValue32_v2", stream=0, addr=address, value=2)
    guest.ok("cuStreamSynchronize", hStream=OTHER_STREAM)
    wait_until(lambda: served.gpu_ns() > charged, "what waited for the value alone is charged")
    rests()
    rearm(guest)
    assert guest.finish("cuCtxSynchronize", waits).result == 0
    assert (
        guest.from_device(address + AREA_BYTES * 7, 1) + guest.from_device(address + AREA_BYTES * 9, 1) == b"\x07\x09"
    )
    assert guest.take_error() == 0
    wait_until(lambda: served.host.control.holder().vgpu is None, idle)


def test_a_captured_stream_takes_no_function(served: Served) -> None:
    guest = served.guest
    open_mailbox(guest)
    guest.ok("capture_begin", stream=STREAM)
    for call in ("cuLaunchHostFunc", "cuStreamAddCallback"):
        assert guest.call(call, stream=STREAM, function=1).result == CAPTURE_UNSUPPORTED
    guest.ok("cuLaunchHostFunc", stream=OTHER_STREAM, function=2)
    assert posted(guest) == (2, 0)
    rearm(guest)
    guest.ok("capture_end", stream=STREAM)
    guest.ok("cuLaunchHostFunc", stream=STREAM, function=3)
    assert posted(guest) == (3, 0)
    rearm(guest)
    guest.ok("cuCtxSynchronize")


def test_lies_about_functions(served: Served) -> None:
    guest = served.guest
    for call in ("cuLaunchHostFunc", "cuStreamAddCallback"):
        assert guest.call(call, stream=STREAM, function=1).result == INVALID_VALUE, "there is no mailbox"
    for slot in (Guest.NR_RESPONSES, 1 << 31, (1 << 32) - 1):
        assert guest.call("host_mailbox", slot=slot).result == INVALID_VALUE
    open_mailbox(guest)
    for stream in (STREAM + 7, 3, 1 << 63):
        assert guest.call("cuLaunchHostFunc", stream=stream, function=1).result == INVALID_HANDLE
    guest.write_word(slot_of(guest), 77)  # no state there is: nobody waits, so nothing is posted
    guest.cast_off("cuLaunchHostFunc", stream=STREAM, function=5)
    guest.ok("cuStreamSynchronize", hStream=OTHER_STREAM)
    assert not is_posted(guest)
    rearm(guest)
    assert posted(guest) == (5, 0)
    guest.cast_off("cuLaunchHostFunc", stream=STREAM, function=6)
    waits = guest.begin("cuCtxSynchronize")

    def is_answered() -> bool:
        rearm(guest)  # again and again, before it is posted and after: it hurts the guest alone
        return guest.is_answered(waits)

    wait_until(is_answered, "the stream has gone on")
    assert guest.finish("cuCtxSynchronize", waits).result == 0


def graph_of_function(guest: Guest, number: int) -> None:
    """Instantiated as EXEC: one host node."""
    graph = guest.ok("graph_create").graph
    params = struct.pack("<I12xQQ", HOST_NODE, 0x400000, number).ljust(256, b"\0")
    assert guest.call("graph_add_node", params, graph=graph).root == graph
    assert guest.ok("graph_instantiate", exec=EXEC, graph=graph).error == 0


def test_a_node_of_a_graph_runs_the_guests_function(served: Served) -> None:
    guest = served.guest
    open_mailbox(guest)
    graph_of_function(guest, 42)
    for _ in range(3):
        guest.cast_off("cuGraphLaunch", hGraphExec=EXEC, hStream=STREAM)
    waits = guest.begin("cuStreamSynchronize", hStream=STREAM)
    for _ in range(3):
        assert posted(guest) == (42, 0)
        guest.ok("cuStreamSynchronize", hStream=OTHER_STREAM)
        assert not guest.is_answered(waits)
        rearm(guest)
    assert guest.finish("cuStreamSynchronize", waits).result == 0


def test_a_captured_function_is_run_by_launches(served: Served) -> None:
    guest = served.guest
    assert guest.call("capture_host_function", stream=STREAM, function=1).result == ILLEGAL_STATE, "nothing is captured"
    assert guest.call("capture_host_function", stream=STREAM + 7, function=1).result == INVALID_HANDLE
    open_mailbox(guest)
    guest.ok("capture_begin", stream=STREAM)
    root = guest.ok("capture_host_function", stream=STREAM, function=(1 << 64) - 1).root
    assert guest.call("capture_host_function", stream=OTHER_STREAM, function=1).result == ILLEGAL_STATE
    graph = guest.ok("capture_end", stream=STREAM).graph
    assert root == graph
    assert not is_posted(guest)
    assert guest.ok("graph_instantiate", exec=EXEC, graph=graph).error == 0
    guest.cast_off("cuGraphLaunch", hGraphExec=EXEC, hStream=STREAM)
    assert posted(guest) == ((1 << 64) - 1, 0)
    rearm(guest)
    guest.ok("cuCtxSynchronize")


def test_contexts_that_end_beside_a_node_leave_it_its_function(served: Served) -> None:
    """The stream of the node goes on when its function has returned, and not before."""
    guest = served.guest
    open_mailbox(guest)
    guest.ok("context_create", context=0, handle=SECOND)
    guest.context = SECOND
    guest.cast_off("cuStreamCreate", phStream=STREAM + 2, Flags=NON_BLOCKING)
    graph_of_function(guest, 42)
    for _ in range(NR_CONTEXTS):
        guest.ok("context_create", context=0, handle=THIRD)
        for number in range(NR_EVENTS):
            guest.cast_off("cuEventCreate", context=THIRD, phEvent=EVENT + number)
        guest.cast_off("cuGraphLaunch", hGraphExec=EXEC, hStream=STREAM + 2)
        waits = guest.begin("cuStreamSynchronize", hStream=STREAM + 2)
        assert posted(guest) == (42, 0)
        guest.ok("context_destroy", context=0, handle=THIRD)
        guest.ok("cuMemGetInfo_v2")
        assert not guest.is_answered(waits)
        rearm(guest)
        assert guest.finish("cuStreamSynchronize", waits).result == 0


def test_a_context_ends_while_a_function_of_another_one_runs(served: Served) -> None:
    """Also where the arena is registered in that one: no call of the worker's waits for it."""
    guest = served.guest
    open_mailbox(guest)
    guest.ok("context_create", context=0, handle=SECOND)
    guest.cast_off("cuLaunchHostFunc", stream=STREAM, function=1)
    assert posted(guest) == (1, 0)
    guest.ok("context_destroy", context=0, handle=SECOND)
    rearm(guest)
    guest.ok("cuCtxSynchronize")


def test_nodes_of_a_guest_that_runs_nothing(served: Served) -> None:
    guest = served.guest
    graph_of_function(guest, 42)
    guest.cast_off("cuGraphLaunch", hGraphExec=EXEC, hStream=STREAM)
    guest.ok("cuCtxSynchronize")  # there is no mailbox
    open_mailbox(guest)
    guest.cast_off("cuGraphLaunch", hGraphExec=EXEC, hStream=STREAM)
    assert posted(guest) == (42, 0)
    guest.close()
    assert served.worker.ended() == {"ended": "the client closed"}


def test_a_guest_that_ends_during_a_function(served: Served) -> None:
    guest = served.guest
    open_mailbox(guest)
    for stream in (STREAM, OTHER_STREAM, 0):
        for number in range(3):
            guest.cast_off("cuLaunchHostFunc", stream=stream, function=number)
    posted(guest)
    guest.close()
    assert served.worker.ended() == {"ended": "the client closed"}


def test_a_context_goes_when_its_functions_have_returned(served: Served) -> None:
    guest = served.guest
    open_mailbox(guest)
    guest.cast_off("cuLaunchHostFunc", stream=STREAM, function=1)
    posted(guest)
    waits = guest.begin("context_destroy", context=0, handle=guest.context)
    rearm(guest)
    assert guest.finish("context_destroy", waits).result == 0
    guest.ok("context_create", context=0, handle=guest.context, is_primary=1)
    guest.ok("cuMemAlloc_v2", bytesize=4096)
