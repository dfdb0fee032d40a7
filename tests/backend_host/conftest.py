"""What most tests of workers begin with: a host of softgpu, a region, and a guest of it that is served."""

from collections.abc import Iterator

import pytest

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
