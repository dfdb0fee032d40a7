"""One daemon on NVIDIA's driver for the tests of a module."""

from collections.abc import Iterator

import pytest

from backend_host.entitlement import Entitlement
from tests.end_to_end.host import Host, start_host, stop_host


@pytest.fixture(scope="module")
def gpu_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A private daemon on NVIDIA's driver."""
    running = start_host(tmp_path_factory.mktemp("gpu"), device="cuda", vgpu=Entitlement(gpu="0"))
    yield running
    stop_host(running)
