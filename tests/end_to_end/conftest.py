"""One daemon for all tests of a module that only run programs; tests that break things, or want a service, start their own."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.errors import FairGVError
from tests.end_to_end.host import Host, start_host, stop_host
from tests.end_to_end.service_host import Service


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A private daemon on softgpu."""
    running = start_host(tmp_path_factory.mktemp("host"))
    yield running
    stop_host(running)


@pytest.fixture
def own_host(tmp_path: Path) -> Iterator[Host]:
    """A private daemon for one test."""
    running = start_host(tmp_path)
    yield running
    stop_host(running)


@pytest.fixture
def mortal_host(tmp_path: Path) -> Iterator[Host]:
    """A private daemon for one test, which may kill it and leave none; kernels may take as long as they like."""
    running = start_host(tmp_path, watchdog_s=0)
    yield running
    with contextlib.suppress(FairGVError):
        stop_host(running)


@pytest.fixture(scope="module")
def two_devices() -> Iterator[None]:
    """softgpu has two, for daemons that begin in this module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
        yield


@pytest.fixture
def service() -> Iterator[Service]:
    """Not started. Its folder is not below pytest's, which is closed to others."""
    with tempfile.TemporaryDirectory(prefix="fairgv-service-", ignore_cleanup_errors=True) as directory:
        folder = Path(directory)
        folder.chmod(0o755)
        service = Service(folder)
        service.write()
        yield service
        with contextlib.suppress(FairGVError):
            stop_host(service.host)
