"""The driver's cases, built once, and a device of a test's own for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.softgpu.driver_harness import Device, build


@pytest.fixture(scope="session")
def driver_cases() -> None:
    """The library and the cases are up to date."""
    build()


@pytest.fixture
def device(driver_cases: None, tmp_path: Path) -> Iterator[Device]:
    """A device that no other test has."""
    device = Device(tmp_path)
    yield device
    device.close()
