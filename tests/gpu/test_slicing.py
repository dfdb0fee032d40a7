"""On a real GPU: launches in parts leave what whole ones leave, kernels by themselves and programs as guests."""

import subprocess
import sys

import pytest

from backend_host.config import PACKAGE_ROOT

TIMEOUT_S = 900

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(TIMEOUT_S + 10)]


@pytest.mark.parametrize(
    "arguments",
    [("tests.slicing",), ("tests.slicing.forced", "--device", "cuda", "--only", "programs")],
    ids=lambda words: words[0],
)
def test_the_same_in_parts(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", *arguments]
    result = subprocess.run(command, cwd=PACKAGE_ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
