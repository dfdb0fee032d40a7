"""Coming and going: no region, a wrong one, nobody there, no room, refusal, death, fork, the end."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from ivshmem.region import ClientState, HostState, Region
from tests.frontend_guest.conftest import TABLE_HASH, RunScene, facts

LAYOUT_VERSION_OFFSET, CLIENTS_OFFSET, OWNERS_OFFSET, NR_PAGES_OFFSET = 8, 40, 48, 64  # in the header, see region.h
CLIENT_BYTES = 320


def header_word(region: Region, offset: int) -> int:
    return ctypes.c_uint64.from_address(region.base + offset).value


def raw_client_states(region: Region, state: ClientState, count: int) -> None:
    """Makes `count` entries look taken, as other programs would."""
    first = region.base + header_word(region, CLIENTS_OFFSET)
    for index in range(count):
        ctypes.c_uint32.from_address(first + index * CLIENT_BYTES).value = int(state)


def test_no_region(run_alone: RunScene) -> None:
    scene = run_alone("init", None)
    assert scene.said == ["count before: CUDA_ERROR_NOT_INITIALIZED", "cuInit: CUDA_ERROR_NO_DEVICE"]
    (line,) = scene.errors
    assert line.startswith("fairgv: no GPU: ")
    assert "fairgv-host attach" in line


def test_no_such_file(run_alone: RunScene) -> None:
    scene = run_alone("init", "/nowhere/at/all")
    assert scene.said[1] == "cuInit: CUDA_ERROR_NO_DEVICE"
    assert scene.errors == [
        "fairgv: no GPU: cannot open the region /nowhere/at/all of FAIRGV_REGION: No such file or directory"
    ]


def test_silence(run_alone: RunScene) -> None:
    scene = run_alone("init", "/nowhere/at/all", FAIRGV_LOG="off")
    assert scene.errors == []


def test_file_that_is_no_region(run_alone: RunScene, tmp_path: Path) -> None:
    (tmp_path / "region").write_bytes(bytes(16 << 20))
    scene = run_alone("init", str(tmp_path / "region"))
    assert scene.said[1] == "cuInit: CUDA_ERROR_NO_DEVICE"
    assert "not initialised" in scene.errors[0]


def test_empty_file(run_alone: RunScene, tmp_path: Path) -> None:
    (tmp_path / "region").touch()
    assert run_alone("init", str(tmp_path / "region")).said[1] == "cuInit: CUDA_ERROR_NO_DEVICE"


def test_other_layout_version(run_alone: RunScene, region: Region) -> None:
    ctypes.c_uint32.from_address(region.base + LAYOUT_VERSION_OFFSET).value += 1
    scene = run_alone("init", region)
    assert scene.said[1] == "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
    assert len(scene.errors) == 1
    assert "layout version" in scene.errors[0]


def test_other_table(run_alone: RunScene, region: Region) -> None:
    region.format(table_hash=TABLE_HASH ^ 1, facts=facts("one"))
    scene = run_alone("init", region)
    assert scene.said[1] == "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
    assert len(scene.errors) == 1
    assert "another table" in scene.errors[0]


def test_facts_of_another_kind(run_alone: RunScene, region: Region) -> None:
    region.format(table_hash=TABLE_HASH, facts=b"\xff" * 100)
    region.set_host_state(HostState.UP)
    assert run_alone("init", region).said[1] == "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"


def test_host_down(run_alone: RunScene, region: Region) -> None:
    region.set_host_state(HostState.DOWN)
    scene = run_alone("init", region)
    assert scene.said[1] == "cuInit: CUDA_ERROR_SYSTEM_NOT_READY"
    assert len(scene.errors) == 1
    assert "fairgv-host start" in scene.errors[0]


def test_daemon_that_does_not_beat(run_alone: RunScene, region: Region) -> None:
    scene = run_alone("use", region)
    assert scene.said == ["use: CUDA_ERROR_SYSTEM_NOT_READY", "use again: CUDA_ERROR_SYSTEM_NOT_READY"]
    assert len(scene.errors) == 1
    assert "does not answer" in scene.errors[0]


def test_all_entries_taken(run_alone: RunScene, region: Region) -> None:
    raw_client_states(region, ClientState.CLAIMED, 64)
    scene = run_alone("init", region)
    assert scene.said[1] == "cuInit: CUDA_ERROR_OUT_OF_MEMORY"
    assert len(scene.errors) == 1
    assert "64 programs use it" in scene.errors[0]


def test_no_memory_left(run_alone: RunScene, region: Region) -> None:
    owners = region.base + header_word(region, OWNERS_OFFSET)
    ctypes.memset(owners, 0xFF, 2 * header_word(region, NR_PAGES_OFFSET))
    scene = run_alone("init", region)
    assert scene.said[1] == "cuInit: CUDA_ERROR_OUT_OF_MEMORY"
    assert len(scene.errors) == 1
    assert "no memory is left" in scene.errors[0]
    assert [client.state for client in region.clients()] == [ClientState.CLOSING]


def test_refused(run_answered: RunScene) -> None:
    scene = run_answered("use", "refuse", "2")
    assert scene.said == ["use: CUDA_ERROR_OUT_OF_MEMORY", "use again: CUDA_ERROR_OUT_OF_MEMORY"]
    assert len(scene.errors) == 1
    assert "refused" in scene.errors[0]


def test_facts_cost_nobody_anything(run_alone: RunScene, region: Region) -> None:
    scene = run_alone("facts", region)
    assert scene.said == [
        "one, 8.9, 1073741824 bytes",
        "attribute: CUDA_ERROR_INVALID_VALUE",
        "device: CUDA_ERROR_INVALID_DEVICE",
        "no context: CUDA_ERROR_INVALID_CONTEXT",
    ]
    assert scene.errors == []


@pytest.mark.parametrize(
    ("visible", "count"),
    [("0", 1), ("1,0", 2), ("0,7,1", 1), ("GPU-none,0", None), ("GPU-,0", None), ("", None), ("-1", None)],
)
def test_visible_devices(run_alone: RunScene, region: Region, visible: str, count: int | None) -> None:
    region.format(table_hash=TABLE_HASH, facts=facts("one", "two"))
    region.set_host_state(HostState.UP)
    scene = run_alone("init", region, CUDA_VISIBLE_DEVICES=visible)
    if count is None:
        assert scene.said[1:] == ["cuInit: CUDA_ERROR_NO_DEVICE"]
    else:
        assert scene.said[1:] == ["cuInit: CUDA_SUCCESS", f"{count} devices"]


def test_a_visible_device_named_twice(run_alone: RunScene, region: Region) -> None:
    region.format(table_hash=TABLE_HASH, facts=facts("one", "two"))
    region.set_host_state(HostState.UP)
    assert run_alone("init", region, CUDA_VISIBLE_DEVICES="1,1").said[1:] == ["cuInit: CUDA_ERROR_INVALID_DEVICE"]


def test_order_of_visible_devices(run_alone: RunScene, region: Region) -> None:
    region.format(table_hash=TABLE_HASH, facts=facts("one", "two"))
    region.set_host_state(HostState.UP)
    assert run_alone("facts", region, CUDA_VISIBLE_DEVICES="1").said[0].startswith("two, ")


def test_entry_closes_when_the_program_ends(run_alone: RunScene, region: Region) -> None:
    run_alone("init", region)
    (client,) = region.clients()
    assert client.state == ClientState.CLOSING
    assert client.program == "guest"
    assert len(set(client.boot_id)) > 1


def test_entries_of_an_earlier_boot_are_closed(run_alone: RunScene, region: Region) -> None:
    raw_client_states(region, ClientState.READY, 3)
    run_alone("init", region)
    assert [client.state for client in region.clients()] == [ClientState.CLOSING] * 4


def test_worker_dies(run_answered: RunScene) -> None:
    scene = run_answered("death")
    assert scene.said == [
        "waiting: CUDA_ERROR_DEVICE_UNAVAILABLE",
        "later: CUDA_ERROR_DEVICE_UNAVAILABLE",
        "local: CUDA_SUCCESS",
    ]
    assert len(scene.errors) == 1
    assert "has ended" in scene.errors[0]


def test_worker_serves_on_without_its_daemon(run_answered: RunScene) -> None:
    scene = run_answered("silent-daemon")
    assert scene.said == ["waiting: CUDA_SUCCESS", "later: CUDA_SUCCESS"]
    assert scene.errors == []
    assert "call 100" in scene.answered  # the question that shows whether the worker lives


def test_daemon_and_worker_stop(run_answered: RunScene) -> None:
    scene = run_answered("silent-host")
    assert scene.said == ["waiting: CUDA_ERROR_DEVICE_UNAVAILABLE", "later: CUDA_ERROR_DEVICE_UNAVAILABLE"]
    assert len(scene.errors) == 1
    assert "have stopped answering" in scene.errors[0]


def test_forked_child_cannot_use_it(run_answered: RunScene) -> None:
    scene = run_answered("fork")
    assert scene.said == [
        "child synchronize: CUDA_ERROR_NOT_INITIALIZED",
        "child init: CUDA_ERROR_NOT_INITIALIZED",
        "parent: CUDA_SUCCESS",
    ]
    assert scene.answered[-1] == "client state 6"


def test_child_that_begins_by_itself(run_answered: RunScene) -> None:
    assert run_answered("fork-first").said == ["child: CUDA_SUCCESS"]


def test_nvcc_program_without_a_region(library: Path) -> None:
    program = Path(__file__).parents[2] / "build" / "programs" / "device_query"
    done = subprocess.run(
        [program], env={"LD_LIBRARY_PATH": str(library.parent)}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "cudaErrorNoDevice" in done.stdout
    assert done.stderr.startswith("fairgv: no GPU: ")
