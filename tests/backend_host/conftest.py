"""What most tests of workers begin with: a host of softgpu, a region, and a guest of it that is served."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from backend_host import hand_overs
from backend_host.device.control import NR_OBJECTS, ControlPage
from ivshmem.region import Region
from tests.backend_host.walled import build
from tests.backend_host.worker_guest import make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served

NR_TOLD = 20


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed tells how the GPU went from one to the next, and which workers had ended."""
    report = yield
    if report.failed:
        report.sections += [("hand-overs", hand_overs.lines(host.control, NR_TOLD)) for host in Host.running]
        report.sections += [("workers", host.ends()) for host in Host.running]
    return report


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


@pytest.fixture(scope="session")
def taken_over(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A device library that its guest owns; anybody may write to the file."""
    folder = tmp_path_factory.mktemp("taken-over")
    folder.chmod(0o755)
    built = build(folder)
    built.chmod(0o777)
    return built


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
