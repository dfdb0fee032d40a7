"""Features of PyTorch, JAX, CuPy, Triton and Numba: each script of features/ prints through FairGV what it prints natively."""

import sys
from difflib import unified_diff
from pathlib import Path

import pytest

from benchmarks.frameworks.__main__ import is_there
from tests.end_to_end.host import Host

LIMIT_S = 240
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(2 * LIMIT_S + 60)]

FOLDER = Path(__file__).parent / "features"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*_*.py"))
"""Each begins with the framework that it needs."""
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR", "PYTORCH_KERNEL_CACHE_PATH")
"""Where frameworks keep what they compiled: each side begins with nothing, so that both do the same."""
NOT_DONE = ": not done, "
"""Of a part that the installed framework, or the device, lacks (features/report.py)."""


def command(script: Path, caches: Path) -> list[str]:
    """Runs a script with caches of its own."""
    caches.mkdir()
    settings = ["XLA_PYTHON_CLIENT_PREALLOCATE=false", *(f"{name}={caches}" for name in CACHES)]
    return ["/usr/bin/env", *settings, sys.executable, str(script)]


def run_both(host: Host, script: Path, caches: Path) -> list[str]:
    """What it prints, natively and as a guest; AssertionError where that differs."""
    native = host.native(*command(script, caches / "native"), timeout_s=LIMIT_S)
    guest = host.guest(*command(script, caches / "guest"), timeout_s=LIMIT_S)
    lines = native.stdout.splitlines()
    difference = unified_diff(lines, guest.stdout.splitlines(), "natively", "guest", lineterm="")
    assert guest.stdout == native.stdout, "\n".join([*difference, guest.stderr])
    assert guest.returncode == native.returncode, guest.stderr
    assert native.returncode == 0, native.stderr
    return lines


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_prints_what_it_prints_natively(gpu_host: Host, name: str, tmp_path: Path) -> None:
    framework, _, _ = name.partition("_")
    if not is_there(sys.executable, framework):
        pytest.skip(f"{framework} is not installed")
    lines = run_both(gpu_host, FOLDER / f"{name}.py", tmp_path)
    lacking = [line for line in lines if NOT_DONE in line]
    if lacking:
        pytest.skip(f"the same, and natively without {'; '.join(lacking)}")
