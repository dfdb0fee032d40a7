"""What keeps running programs from moves by replay, as the daemon tells it: from their images and from all that they have."""

import subprocess
from collections.abc import Callable, Iterator

import pytest

from backend_host.cli import host_command
from tests.end_to_end.host import Host, start_host, stop_host, wait_until

REASONS = (
    "has module variables",
    "took addresses of device functions",
    "uses the device's heap",
    "has graphs",
    "has arrays, textures or surfaces",
    "has memory that the driver placed",
)
Begin = Callable[[str], None]


@pytest.fixture(scope="module")
def host(two_devices: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = start_host(tmp_path_factory.mktemp("bound"), fast_moves=True)
    yield host
    stop_host(host)


@pytest.fixture
def begin(host: Host) -> Iterator[Begin]:
    """Begins a program, which is right when its input ends, with whatever came of its moves."""
    children = []

    def run(program: str) -> None:
        children.append(host.start(program, options=("--vgpu", "web"), stdin=subprocess.PIPE))
        assert children[0].stdout is not None
        assert children[0].stdout.readline() == "ready\n"

    yield run
    output, errors = children[0].communicate("\n", timeout=60)
    assert children[0].returncode == 0, (output, errors)
    wait_until(lambda: not host.status()["vgpus"], "its vGPU is gone")


def replay(host: Host, *options: str) -> subprocess.CompletedProcess[str]:
    [vgpu] = host.status()["vgpus"]
    to = str(1 - vgpu["gpu_number"])
    return host_command(host.state_dir, "migrate", "web", "--to", to, "--mover", "replay", *options)


def reasons(host: Host) -> str:
    """Of a plan."""
    return replay(host, "--dry-run").stderr.strip().partition(") ")[2]


def test_a_program_that_keeps_addresses_of_every_kind_is_bound_by_each(host: Host, begin: Begin) -> None:
    begin("kept_addresses")
    wait_until(lambda: reasons(host) == ", ".join(REASONS), "all reasons are told")
    refused = replay(host)
    assert refused.returncode == 1
    assert REASONS[0] in refused.stderr


@pytest.mark.parametrize("program", ["restless", "pauses"])
def test_a_program_that_keeps_none_moves(host: Host, begin: Begin, program: str) -> None:
    begin(program)
    wait_until(lambda: replay(host, "--dry-run").returncode == 0, "its images have been looked through")
    for _ in range(2):
        answer = replay(host)
        assert answer.returncode == 0, answer.stderr
        assert " by replay: one program with " in answer.stdout
