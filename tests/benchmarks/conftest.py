"""What tests of programs on softgpu have in common."""

from collections.abc import Iterator

import pytest

from benchmarks.devices import private_device


@pytest.fixture(scope="module")
def small_device() -> Iterator[None]:
    """A softgpu of the module's own that begins with quick code, as sizes are small."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("FAIRGV_SOFTGPU_TIERS", "2")
        with private_device("soft"):
            yield
