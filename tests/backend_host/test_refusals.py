"""What would be ignored is refused: another entitlement or region for a vGPU that is there, a quota below what it has."""

import os
from collections.abc import Iterator

import pytest

from backend_host.cli import host_command
from backend_host.errors import RefusedError
from backend_host.ipc import Connection
from tests.end_to_end.host import Host, start_host, stop_host, wait_until

REGION_BYTES = 16 << 20


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    running = start_host(tmp_path_factory.mktemp("host"), nr_warm_workers=0)
    yield running
    stop_host(running)


@pytest.fixture
def shared(host: Host) -> Iterator[Connection]:
    """There is a vGPU of that name, of weight 2 and with 1 GiB, on the only Gpu."""
    with Connection(host.state_dir / "control.sock") as connection:
        said = {"weight": 2, "memory_bytes": 1 << 30, "region_bytes": REGION_BYTES}
        os.close(connection.ask("open", name="shared", **said)["fd"])
        yield connection
    wait_until(lambda: not host.status()["vgpus"], "it is gone")


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"weight": 3}, "--weight: .* with another one .weight 2, memory 1 GiB.; .* fairgv-host set shared"),
        ({"memory_bytes": 0}, "--memory: .* fairgv-host set shared"),
        ({"weight": 2, "limit": 50}, "--limit: .* fairgv-host set shared"),
        ({"region_bytes": 2 * REGION_BYTES}, "--region: .* its region has 16 MiB; .* another --vgpu"),
        ({"gpu": "7"}, "no Gpu of this host is called '7'"),
    ],
)
def test_who_joins_a_vgpu_cannot_make_it_another(
    host: Host, shared: Connection, said: dict[str, object], sentence: str
) -> None:
    with Connection(host.state_dir / "control.sock") as joining, pytest.raises(RefusedError, match=sentence):
        joining.ask("open", name="shared", **said)
    [vgpu] = host.status()["vgpus"]
    assert (vgpu["weight"], vgpu["quota_bytes"]) == (2, 1 << 30)


@pytest.mark.parametrize(
    "said", [{}, {"weight": 2}, {"weight": "2", "memory_bytes": "1G"}, {"gpu": "0"}, {"region_bytes": REGION_BYTES}]
)
def test_who_says_what_is_so_joins(host: Host, shared: Connection, said: dict[str, object]) -> None:
    with Connection(host.state_dir / "control.sock") as joining:
        answer = joining.ask("open", name="shared", **said)
        os.close(answer["fd"])
        assert answer["name"] == "shared"


def test_a_name_that_is_nothing_is_none(host: Host) -> None:
    result = host.guest("/bin/true", options=("--vgpu", ""))
    assert result.returncode == 1
    assert result.stderr.startswith("fairgv-run: '' is no name for a vGPU")


def test_a_quota_below_what_is_used(host: Host) -> None:
    child = host.start("spin", "600000", options=("--vgpu", "user"))
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    [used] = [vgpu["memory_bytes"] for vgpu in host.status()["vgpus"]]
    assert used > 1
    refused = host_command(host.state_dir, "set", "user", "--memory", str(used - 1), "--weight", "9")
    assert refused.returncode == 1
    assert "user uses now" in refused.stderr and "at least" in refused.stderr
    [vgpu] = host.status()["vgpus"]
    assert (vgpu["quota_bytes"], vgpu["weight"]) == (0, 1), "nothing of it was done"
    assert host_command(host.state_dir, "set", "user", "--memory", str(used)).returncode == 0
    assert host_command(host.state_dir, "set", "user", "--memory", "0").returncode == 0
    child.terminate()
    child.communicate()
    wait_until(lambda: not host.status()["vgpus"], "it is gone")


@pytest.mark.parametrize("command", [["set", "nobody", "--weight", "2"], ["detach", "nobody"]])
def test_a_name_that_no_vgpu_has_is_not_libvirts_fault(host: Host, command: list[str]) -> None:
    refused = host_command(host.state_dir, *command)
    assert refused.returncode == 1
    assert refused.stderr.startswith("fairgv-host: there is no vGPU called nobody; see: fairgv-host list")


def test_a_vgpu_of_a_command_is_not_detached(host: Host, shared: Connection) -> None:
    refused = host_command(host.state_dir, "detach", "shared")
    assert refused.stderr == "fairgv-host: shared is a vGPU of fairgv-run, and goes with its last program\n"
