"""Fresh device memory holds nothing that another vGPU left there, also when that one was killed with the memory in its hands."""

import pytest

from tests.end_to_end.host import Host

pytestmark = pytest.mark.gpu

MIB = "16384"
"""Much, so that what another program had is among it."""


@pytest.mark.parametrize("way", ["natively", "as guests"])
def test_nothing_is_left_for_the_next_one(gpu_host: Host, way: str) -> None:
    run = gpu_host.native if way == "natively" else gpu_host.guest
    filled = run("leftovers", "fill", MIB)
    assert filled.returncode == 0, filled.stdout + filled.stderr
    seen = run("leftovers", "look", MIB)
    assert seen.stdout.startswith("0 of "), seen.stdout + seen.stderr
