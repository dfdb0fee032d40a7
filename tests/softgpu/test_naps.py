"""Kernels that sleep while they wait leave the CPU to others."""

import os
import subprocess
from pathlib import Path

from tests.end_to_end.host import SOFTGPU, own_device
from tests.programs.build import build_one


def test_who_waits_with_nanosleep_leaves_the_cpu(tmp_path: Path) -> None:
    """One that only polled left it some ten times of its own accord, in the runtime."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(SOFTGPU), **own_device(tmp_path)}
    with subprocess.Popen(
        [str(build_one("spin")), "1000"], env=environment, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.read() == "running\nsynchronize: cudaSuccess\nPASS\n"
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    assert used.ru_nvcsw > 100
