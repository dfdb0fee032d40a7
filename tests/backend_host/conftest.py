"""What most tests of workers begin with: a host of softgpu, a region, and a guest of it that is served."""

import os
from collections.abc import Iterator

import pytest

from backend_host.device.control import ControlPage
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
def control_fd() -> Iterator[int]:
    """A file for a control page."""
    fd = os.memfd_create("control")
    yield fd
    os.close(fd)


@pytest.fixture
def control(control_fd: int) -> Iterator[ControlPage]:
    """A control page in that file; a slice is 6 ms."""
    with ControlPage.format(control_fd, 6_000_000) as page:
        yield page
