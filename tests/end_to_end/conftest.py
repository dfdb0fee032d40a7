"""One daemon for all tests of a module that only run programs; tests that break things start their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.host import Host, start_host, stop_host


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


@pytest.fixture(scope="module")
def two_devices() -> Iterator[None]:
    """softgpu has two, for daemons that begin in this module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
        yield
