"""What the processes that start most often do without: on a slow machine, or beside programs that compute, imports are most of their start."""

import subprocess
import sys

import pytest

from backend_host.config import PACKAGE_ROOT

FOR_PEOPLE = {"rich", "textual"}
FOR_HOSTS = {"ssl", "http", "email", "libvirt"}
FOR_CLASSES = {"dataclasses", "inspect", "typing"}
OF_THE_DAEMON = {"backend_host.vgpu", "backend_host.device.control", "backend_host.device.readings"}


@pytest.mark.parametrize(
    ("module", "spared"),
    [
        ("backend_host.cli", FOR_PEOPLE | FOR_HOSTS | OF_THE_DAEMON),
        ("backend_host.daemon", FOR_PEOPLE | FOR_HOSTS),
        ("backend_host.metrics.serving", {"cuda_api.table"}),
        ("backend_host.worker.main", FOR_PEOPLE | FOR_HOSTS | {"dataclasses", "inspect", "llvmlite", "numpy"}),
        ("backend_host.restart.keeping", FOR_PEOPLE | FOR_HOSTS | FOR_CLASSES | {"cffi"}),
    ],
)
def test_a_process_imports_no_more_than_it_needs(module: str, spared: set[str]) -> None:
    """The store is started without a search for packages, whose finder imports some of these itself."""
    options = ["-S"] if module.endswith("keeping") else []
    source = f"import sys, {module}; print(*sys.modules)"
    child = subprocess.run(
        [sys.executable, *options, "-c", source], cwd=PACKAGE_ROOT, check=True, capture_output=True, text=True
    )
    assert module in child.stdout.split()
    assert sorted(spared & set(child.stdout.split())) == []
