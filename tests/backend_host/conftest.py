"""What most tests of workers begin with: a host of softgpu, a region, and a guest of it that is served."""

import os
from collections.abc import Iterator

import pytest

from backend_host.device.control import NR_OBJECTS, ControlPage
from ivshmem.region import Region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served, make_region


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host(SOFTGPU)
    yield host
    host.close()


@pytest.fixture
def region() -> Iterator[Region]:
    with make_region() as region:
        yield region


@pytest.fixture
def served(host: Host, region: Region) -> Iterator[Served]:
    served = Served(host, region)
    yield served
    served.guest.close()


@pytest.fixture
def objects() -> Iterator[list[int]]:
    """Empty files for the objects of a control page."""
    fds = [os.memfd_create(f"object-{number}") for number in range(NR_OBJECTS)]
    yield fds
    for fd in fds:
        os.close(fd)


@pytest.fixture
def control() -> Iterator[ControlPage]:
    """A control page; a slice is 6 ms."""
    with ControlPage.create(6_000_000) as page:
        yield page
