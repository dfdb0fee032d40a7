"""torch.multiprocessing with tensors of the GPU: two processes of one guest compute with them what they compute natively."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.host import Host

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).parents[1] / "frameworks" / "torch_sharing.py"
LIMIT_S = 240
SIDE, NR_LARGE, NR_SMALL = 1024, 32, 6000
EXPECTED = [
    f"sums {[float(i) for i in range(NR_LARGE)]}",
    f"total {16 * sum(range(NR_SMALL))}",
    f"answers {[4.0 * i for i in range(NR_LARGE)]}",
    "the consumer ended with 0",
]


def test_two_processes_exchange_tensors(gpu_host: Host) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, str(PROGRAM)]
    native = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert native.stdout.splitlines() == EXPECTED, native.stderr
    guest = gpu_host.guest(*command)
    assert guest.stdout.splitlines() == EXPECTED, guest.stderr
