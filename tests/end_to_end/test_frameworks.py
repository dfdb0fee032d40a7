"""CuPy and Numba in the form that docs/softgpu.md gives: they compute on softgpu, natively and through FairGV."""

import subprocess
from pathlib import Path

import pytest

from backend_host.config import PACKAGE_ROOT
from tests.end_to_end.host import Host

PYTHON = PACKAGE_ROOT / "build/frameworks/bin/python"
PROGRAMS = Path(__file__).parents[1] / "frameworks"
SETTINGS = {"cupy": ("CUPY_COMPILE_WITH_PTX=1", "CUPY_ACCELERATORS="), "numba": ()}
EXPECTED = {
    "cupy": [
        "sum 1000000.0 10.0",
        f"rows {[float(sum(range(100 * row, 100 * row + 100))) for row in range(10)]} [900.0, 901.0, 902.0]",
        f"chosen -998.0 {float(sum(i if i % 3 == 0 else -i for i in range(1000)))}",
        "scaled 499.5",
    ],
    "numba": ["sum True", "reversed True", f"histogram {[100] * 10}", f"total {float(sum(range(1024)))}"],
}


@pytest.mark.skipif(not PYTHON.exists(), reason="make test installs them")
@pytest.mark.parametrize("framework", ["cupy", "numba"])
def test_it_computes_on_softgpu(host: Host, framework: str) -> None:
    command = ["/usr/bin/env", *SETTINGS[framework], str(PYTHON), str(PROGRAMS / f"{framework}_program.py")]
    native = subprocess.run(command, env=host.environment(), capture_output=True, text=True, check=False, timeout=240)
    assert native.stdout.splitlines() == EXPECTED[framework], native.stderr
    guest = host.guest(*command)
    assert guest.stdout.splitlines() == EXPECTED[framework], guest.stderr
    assert "softgpu:" not in native.stderr + guest.stderr
