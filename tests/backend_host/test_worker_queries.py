"""What a guest is told of streams and events fits together, whatever marks the worker puts behind its work."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ivshmem.region import Region
from tests.backend_host.between import build_between
from tests.backend_host.worker_guest import EVENT, STREAM, Guest
from tests.backend_host.worker_harness import Host, Served
from tests.end_to_end.host import wait_until

NOT_READY = 600
LEGACY = 0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_between("slow_marks", tmp_path_factory.mktemp("slow_marks"))


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """While this file is there no mark ends."""
    return tmp_path / "slow"


@pytest.fixture
def host(library: Path, slow: Path) -> Iterator[Host]:
    host = Host(library, {"FAIRGV_SLOW_MARKS": str(slow)}, shared=[slow.parent])
    yield host
    host.close()


@pytest.fixture
def guest(host: Host, region: Region, slow: Path) -> Iterator[Guest]:
    guest = Served(host, region).primary()
    guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=0)
    guest.cast_off("cuEventCreate", phEvent=EVENT, Flags=0)
    yield guest
    slow.unlink(missing_ok=True)
    guest.close()


def record_and_see_it_done(guest: Guest, stream: int) -> None:
    """The event is the last in the stream, and the guest has been told that it is done."""
    guest.cast_off("cuEventRecord", hEvent=EVENT, hStream=stream)
    wait_until(lambda: guest.call("cuEventQuery", hEvent=EVENT).result == 0, "the event is done")


def mark_slowly(guest: Guest, slow: Path, stream: int) -> int:
    """Another thread of the guest waits for the stream, and so the worker puts a mark there: the slot of its answer."""
    slow.touch()
    return guest.begin("cuStreamSynchronize", hStream=stream)


@pytest.mark.parametrize("stream", [STREAM, LEGACY])
def test_a_stream_whose_last_event_is_done_is_done(guest: Guest, slow: Path, stream: int) -> None:
    record_and_see_it_done(guest, stream)
    slot = mark_slowly(guest, slow, stream)
    assert guest.call("cuStreamQuery", hStream=stream).result == 0
    assert not guest.is_answered(slot)


@pytest.mark.parametrize("stream", [STREAM, LEGACY])
def test_a_stream_with_work_behind_its_last_event_is_not_done(guest: Guest, slow: Path, stream: int) -> None:
    address = int(guest.ok("cuMemAlloc_v2", bytesize=64).dptr)
    record_and_see_it_done(guest, stream)
    slot = mark_slowly(guest, slow, stream)
    guest.cast_off("cuMemsetD32Async", dstDevice=address, ui=1, N=1, hStream=stream)
    assert guest.call("cuStreamQuery", hStream=stream).result == NOT_READY
    assert not guest.is_answered(slot)
    slow.unlink()
    assert guest.finish("cuStreamSynchronize", slot).result == 0
    guest.ok("cuStreamSynchronize", hStream=stream)
    assert guest.call("cuStreamQuery", hStream=stream).result == 0


def test_an_event_that_is_done_in_another_stream_tells_nothing(guest: Guest, slow: Path) -> None:
    record_and_see_it_done(guest, STREAM)
    record_and_see_it_done(guest, LEGACY)
    mark_slowly(guest, slow, STREAM)
    assert guest.call("cuStreamQuery", hStream=STREAM).result == NOT_READY


def test_the_default_stream_is_not_done_before_others_that_block_it(guest: Guest, slow: Path) -> None:
    address = int(guest.ok("cuMemAlloc_v2", bytesize=64).dptr)
    record_and_see_it_done(guest, LEGACY)
    record_and_see_it_done(guest, STREAM)
    record_and_see_it_done(guest, LEGACY)
    mark_slowly(guest, slow, STREAM)
    guest.cast_off("cuMemsetD32Async", dstDevice=address, ui=1, N=1, hStream=STREAM)
    assert guest.call("cuStreamQuery", hStream=LEGACY).result == NOT_READY
