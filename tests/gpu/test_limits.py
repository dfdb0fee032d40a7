"""Requests and limits on a GPU: a kernel is taken off it at its vGPU's limit though nobody else wants it, and bounds change meanwhile."""

import subprocess
from collections.abc import Iterator

import pytest

from backend_host.cli import host_command
from tests.end_to_end.host import Host, wait_until
from tests.gpu.test_withdraw import LIMIT_S, alone, digest, entry, read, rounds

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(200)]
__all__ = ["alone", "digest", "rounds"]

PERCENT = 50


@pytest.fixture
def long(gpu_host: Host, rounds: int) -> Iterator[subprocess.Popen[str]]:
    """A kernel of two seconds, alone on the GPU, under a limit; the test goes on once it has been taken off a few times."""
    options = ("--vgpu", "long", "--limit", str(PERCENT), "--request", "10")
    child = gpu_host.start("long_kernel", str(rounds), options=options)
    wait_until(lambda: entry(gpu_host, "long").get("nr_withdrawn", 0) > 3, "it is taken off the GPU", LIMIT_S)
    yield child
    child.kill()
    child.communicate()


def test_it_computes_the_same_and_takes_as_long_as_its_limit_makes_it(
    gpu_host: Host, long: subprocess.Popen[str], alone: tuple[str, float]
) -> None:
    digest, alone_ms = alone
    output, errors = long.communicate(timeout=LIMIT_S)
    found, took_ms = read(output)
    assert found == digest, errors
    assert took_ms > alone_ms * 100 / PERCENT * 0.9, "no load makes it faster"
    print(f"natively {alone_ms:.0f} ms, at {PERCENT} percent {took_ms:.0f} ms")


def test_bounds_change_while_it_runs(gpu_host: Host, long: subprocess.Popen[str], digest: str) -> None:
    for option in (["--request", "30"], ["--limit", "35"], ["--request", "0", "--limit", "100"]):
        answer = host_command(gpu_host.state_dir, "set", "long", *option)
        assert answer.returncode == 0, answer.stderr
    nr_withdrawn = entry(gpu_host, "long").get("nr_withdrawn", 0)
    output, errors = long.communicate(timeout=LIMIT_S)
    assert read(output)[0] == digest, errors
    assert nr_withdrawn > 3
