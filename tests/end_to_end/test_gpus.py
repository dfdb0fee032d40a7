"""A host with two GPUs: each vGPU has one of them, sees no other, and has nothing to do with what happens on the other."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend_host.cli import host_command
from backend_host.device_settings import GpuSettings
from tests.end_to_end.host import Host, comparable, start_host, stop_host, wait_until
from tests.end_to_end.test_nvml import guest

NUMBERS = (0, 1)
FOR_EVER_MS = "100000000"
WATCHED_NS = 10**9


@pytest.fixture(scope="module")
def host(two_devices: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    running = start_host(tmp_path_factory.mktemp("two"))
    yield running
    stop_host(running)


@pytest.fixture
def strict_host(two_devices: None, tmp_path: Path) -> Iterator[Host]:
    """Its watchdog waits for a second only."""
    running = start_host(tmp_path, watchdog_s=1)
    yield running
    stop_host(running)


def vgpus(host: Host) -> dict[str, dict[str, Any]]:
    return {vgpu["name"]: vgpu for vgpu in host.status()["vgpus"]}


def used_ns(host: Host, name: str) -> int:
    return int(vgpus(host)[name]["used_ns"])


def on(number: int, name: str) -> tuple[str, ...]:
    return "--gpu", str(number), "--vgpu", name


def spinning(host: Host, milliseconds: str, options: tuple[str, ...]) -> subprocess.Popen[str]:
    """A program whose kernel has begun."""
    child = host.start("spin", milliseconds, options=options)
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    return child


@pytest.mark.parametrize("number", NUMBERS)
def test_a_guest_sees_one_device_its_own(host: Host, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = host.guest("device_query", options=("--gpu", str(number)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", str(number))
    assert comparable(seen) == comparable(host.native("device_query"))
    assert seen.stdout.startswith("1 device(s)")


@pytest.mark.parametrize("number", NUMBERS)
def test_nvml_sees_the_same_one(host: Host, number: int) -> None:
    uuid = host.status()["gpus"][number]["uuid"]
    with guest(host, "--gpu", uuid) as program:
        assert program.identity["uuid"] == uuid
        assert uuid.removeprefix("GPU-").replace("-", "") == program.identity["cuda_uuid"]


@pytest.mark.parametrize("program", ["vector_add", "pool_memory", "virtual_memory"])
def test_programs_compute_on_either(host: Host, program: str) -> None:
    native = comparable(host.native(program))
    for number in NUMBERS:
        assert comparable(host.guest(program, options=("--gpu", str(number)))) == native


def test_each_of_two_has_a_whole_gpu(host: Host) -> None:
    """On one GPU the two could not be charged for more time than passed."""
    names = ("left", "right")
    keepers = [host.start("/bin/sleep", "600", options=("--vgpu", name)) for name in names[:1]]
    wait_until(lambda: len(vgpus(host)) == 1, "the first is there, so that the second goes elsewhere")
    keepers += [host.start("/bin/sleep", "600", options=("--vgpu", name)) for name in names[1:]]
    wait_until(lambda: len(vgpus(host)) == 2, "both are there")
    before = host.status()["gpus"]
    children = [spinning(host, FOR_EVER_MS, ("--vgpu", name)) for name in names]
    began, began_ns = vgpus(host), time.monotonic_ns()
    wait_until(lambda: all(used_ns(host, name) > began[name]["used_ns"] + WATCHED_NS for name in names), "they work")
    passed_ns, found = time.monotonic_ns() - began_ns, vgpus(host)
    assert [found[name]["gpu_number"] for name in names] == list(NUMBERS)
    used = [found[name]["used_ns"] - began[name]["used_ns"] for name in names]
    assert sum(used) > 1.5 * passed_ns
    assert all(found[name]["held_ns"] < 0.1 * found[name]["used_ns"] for name in names)
    for child in children:
        child.terminate()
        child.communicate()
    wait_until(lambda: not any(vgpu["clients"] for vgpu in vgpus(host).values()), "their workers have ended")
    after, found = host.status()["gpus"], vgpus(host)
    spent = [now["used_ns"] - then["used_ns"] for now, then in zip(after, before, strict=True)]
    assert spent == [found[name]["used_ns"] for name in names], "all of each Gpu"
    listed = json.loads(host_command(host.state_dir, "devices", "--json").stdout)
    assert [(gpu["number"], gpu["vgpus"]) for gpu in listed] == [(0, ["left"]), (1, ["right"])]
    assert [found[name]["gpu_uuid"] for name in names] == [gpu["uuid"] for gpu in listed]
    assert "right" in host_command(host.state_dir, "devices").stdout
    for keeper in keepers:
        keeper.terminate()
        keeper.communicate()


def test_what_programs_want_is_told(host: Host) -> None:
    """Of each program, vGPU and Gpu: one that never pauses wants nearly all, and one that has none wants nothing."""
    child = spinning(host, FOR_EVER_MS, on(0, "busy"))
    wait_until(lambda: (vgpus(host)["busy"]["demand"] or 0) > 0.5, "it wants more than half")
    status, listed = host.status(), json.loads(host_command(host.state_dir, "list", "--json").stdout)
    [vgpu] = status["vgpus"]
    assert 0 < vgpu["clients"][0]["demand"] <= 1
    assert status["gpus"][0]["demand"] > 0.5
    assert status["gpus"][1]["demand"] == 0
    assert [each["demand"] > 0.5 for each in listed] == [True]
    child.terminate()
    child.communicate()
    wait_until(lambda: not vgpus(host), "it has ended")
    wait_until(lambda: host.status()["gpus"][0]["demand"] == 0, "nobody wants the Gpu, as the next look finds")


def test_a_gpu_that_is_not_there(host: Host) -> None:
    refused = host.guest("vector_add", options=("--gpu", "2"))
    assert refused.returncode == 1
    assert "no Gpu of this host is called '2'; see: fairgv-host devices" in refused.stderr


def test_a_program_goes_where_its_memory_fits(host: Host) -> None:
    """The first one stands on GPU 0, which then has less weight than GPU 1 and no room; nowhere is room for two of them more."""
    memory = f"{host.status()['gpus'][0]['memory_bytes'] * 3 // 4}"
    options = [(*on(0, "first"), "--memory", memory), (*on(1, "other"), "--weight", "2")]
    keepers = [host.start("/bin/sleep", "600", options=each) for each in options]
    wait_until(lambda: len(vgpus(host)) == 2, "both are there")
    second = host.start("/bin/sleep", "600", options=("--vgpu", "second", "--memory", memory))
    wait_until(lambda: "second" in vgpus(host), "the third is there")
    assert vgpus(host)["second"]["gpu_number"] == 1
    refused = host.guest("vector_add", options=("--memory", memory))
    assert refused.returncode == 1
    lack = r"GPU {} has 1 GiB left for memory quotas, where 3 GiB are asked for \(--memory\)"
    assert re.search(f"{lack.format(0)}; {lack.format(1)}", refused.stderr), refused.stderr
    for keeper in (*keepers, second):
        keeper.terminate()
        keeper.communicate()
    wait_until(lambda: not vgpus(host), "they are gone")


def test_a_device_that_is_named_alone_keeps_its_number(two_devices: None, tmp_path: Path) -> None:
    """And what was said of it holds."""
    settings = (GpuSettings("1", slice_ms=7.0, device_memory_bytes=64 << 20),)
    host = start_host(tmp_path, devices=("1",), gpu=settings)
    try:
        [gpu] = host.status()["gpus"]
        assert (gpu["number"], gpu["slice_ns"], gpu["capacity_bytes"]) == (1, 7_000_000, 64 << 20)
        assert host.guest("vector_add").returncode == 0
        assert "no Gpu of this host is called '0'" in host.guest("vector_add", options=("--gpu", "0")).stderr
        assert host_command(host.state_dir, "grants").returncode == 0
    finally:
        stop_host(host)


def test_the_watchdog_of_one_gpu_leaves_the_other_alone(strict_host: Host) -> None:
    """On both a kernel that never ends; on one somebody else wants the GPU."""
    host = strict_host
    guilty, alone = (spinning(host, FOR_EVER_MS, on(number, f"on-{number}")) for number in NUMBERS)
    innocent = host.guest("vector_add", options=on(0, "innocent"))
    assert innocent.returncode == 0, innocent.stdout + innocent.stderr
    output, _ = guilty.communicate(timeout=60)
    assert output.startswith("synchronize: cudaErrorLaunchTimeout\n")
    assert alone.poll() is None
    assert vgpus(host)["on-1"]["nr_timed_out"] == 0
    assert host.log().count("its worker") == 2, "a warning, and the end, of one"
    alone.terminate()
    alone.communicate()
