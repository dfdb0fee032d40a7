"""PyTorch, JAX and CuPy that are moved between two GPUs again and again while they compute: they print what they print natively."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import benchmarks.frameworks
from backend_host.cli import host_command
from backend_host.entitlement import Entitlement
from benchmarks.frameworks.__main__ import is_there
from tests.end_to_end.host import Host, start_host, stop_host, wait_until
from tests.end_to_end.travel import devices, other
from tests.gpu.test_withdraw import entry

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]

FOLDER = Path(benchmarks.frameworks.__file__).parent
LIMIT_S = 150
ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS": "--xla_gpu_autotune_level=0"}
"""JAX chooses among algorithms by their times, and they differ in the last bits."""
PAUSE_S = 0.5
"""Between two moves: a program that only moves would compute next to nothing."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    running = start_host(tmp_path_factory.mktemp("gpu"), device="cuda", vgpu=Entitlement(gpu="0"), fast_moves=True)
    if len(devices(running)) < 2:
        pytest.skip("a move needs two GPUs")
    yield running
    stop_host(running)


def results(output: str) -> Sequence[str]:
    """What it computed, without what that took."""
    return [line for line in output.splitlines() if not line.startswith("time ")]


def moved(host: Host, child: subprocess.Popen[str], name: str) -> Counter[str]:
    """Moves it until it ends; how often by each mover."""
    wait_until(lambda: entry(host, name).get("nr_launches", 0) > 0, "it computes", 60)
    movers: Counter[str] = Counter()
    while child.poll() is None:
        answer = host_command(host.state_dir, "migrate", name, "--to", str(other(host, name)), "--json")
        if answer.returncode != 0:
            child.wait(10)  # it has ended meanwhile: nothing else keeps it where it is
            break
        movers[json.loads(answer.stdout)["plan"]["mover"]] += 1
        time.sleep(PAUSE_S)
    return movers


@pytest.mark.parametrize(
    ("program", "framework", "nr_steps"),
    [
        ("torch_train", "torch", 4000),
        ("torch_graphs", "torch", 20000),
        ("jax_train", "jax", 60000),
        ("cupy_numeric", "cupy", 1500),
    ],
)
def test_a_program_prints_what_it_prints_natively(
    host: Host, program: str, framework: str, nr_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_there(sys.executable, framework):
        pytest.skip(f"{framework} is not installed")
    command = [sys.executable, str(FOLDER / f"{program}.py"), str(nr_steps)]
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    native = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert native.returncode == 0, native.stderr
    child = host.start(*command, options=("--vgpu", program))
    movers = moved(host, child, program)
    output, errors = child.communicate(timeout=LIMIT_S)
    print(program, dict(movers))
    assert results(output) == results(native.stdout), errors
    assert movers.total() >= 2
