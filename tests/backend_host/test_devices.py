"""Which device library serves: what a probe says, and one clear sentence for every library that cannot serve."""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend_host import devices as devices_module
from backend_host.config import PACKAGE_ROOT, Config
from backend_host.devices import Device, check_walls, choose, kernel_wall, probe, with_quota
from backend_host.errors import DeviceUnavailableError, FairGVError, LastingError
from tests.end_to_end.host import own_device, start_host, stop_host, wait_until

SOFTGPU = Config().softgpu_library
MISSING = "/nowhere/libcuda.so.1"
ANSWER = {
    "name": "device",
    "uuid": 16 * "ab",
    "pci_bus_id": "0000:00:00.0",
    "memory_bytes": 1,
    "capability": "8.0",
    "driver_version": 13000,
    "preempts": True,
    "reaches_host": False,
    "facts": "AAAA",
}


@pytest.fixture(scope="module")
def softgpu() -> Device:
    [device] = probe("soft", SOFTGPU)
    return device


def test_softgpu_answers(softgpu: Device) -> None:
    assert softgpu.kind == "soft"
    assert softgpu.memory_bytes > 0
    assert not softgpu.preempts
    assert softgpu.slice_ns == 6_000_000
    assert len(softgpu.facts) > 0


def test_a_device_that_preempts_has_longer_slices(softgpu: Device) -> None:
    assert dataclasses.replace(softgpu, preempts=True).slice_ns == 30_000_000


@pytest.mark.parametrize("path", [MISSING, "libm.so.6", __file__])
def test_libraries_that_are_no_driver(path: str) -> None:
    with pytest.raises(DeviceUnavailableError) as caught:
        probe("cuda", path)
    assert path in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "fairgv worker 5: libcuda.so.1: cuInit gives CUDA error 100",
            "finds no GPU; see whether its kernel module is loaded",
        ),
        ("fairgv worker 5: libcuda.so.1: cuInit gives CUDA error 803", "different versions"),
        ("fairgv worker 5: libcuda.so.1: cuInit gives CUDA error 802", "nvidia-fabricmanager"),
        ("fairgv worker 5: libcuda.so.1: cuInit gives CUDA error 999", "cuInit gives CUDA error 999"),
        (
            "fairgv worker 5: cannot open the device library: libother.so: cannot open shared object file: No such file or directory",
            "cannot open the device library: libother.so",
        ),
    ],
)
def test_what_keeps_a_driver_from_serving_is_said_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, said: str, told: str
) -> None:
    def run(limit_s: float, command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 3, "", f"Traceback\n{said}\n")

    monkeypatch.setattr(devices_module, "run_within", run)
    with pytest.raises(DeviceUnavailableError, match=told) as caught:
        probe("cuda", "libcuda.so.1")
    assert "fairgv worker" not in str(caught.value)


def test_a_library_that_crashes_is_its_own_affair(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    source = "#include <stdlib.h>\n__attribute__((constructor)) static void begin(void) { abort(); }\n"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)
    with pytest.raises(DeviceUnavailableError, match="signal 6"):
        probe("cuda", str(library))


def test_a_device_that_gives_no_context_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And keeps nobody from the others, which keep their numbers."""
    answer = {**ANSWER, "costs": {"context_bytes": 1, "stream_bytes": 1}}
    output = json.dumps([{"failed": "libcuda.so.1: CUDA error 46 while asking for device 0"}, answer]) + "\n"

    def run(limit_s: float, command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, output, "")

    monkeypatch.setattr(devices_module, "run_within", run)
    [device] = probe("cuda", "libcuda.so.1")
    assert device.ordinal == 1
    assert "device 0 is not served until the daemon is started anew: libcuda.so.1: CUDA error 46" in caplog.text


@pytest.mark.parametrize(
    ("output", "status"),
    [
        ("", 0),
        ("[]\n", 0),
        ("no json\n", 0),
        (json.dumps([{**ANSWER, "facts": "?"}]) + "\n", 0),
        (json.dumps([{**ANSWER, "memory_bytes": "much"}]) + "\n", 0),
        (json.dumps([{**ANSWER, "uuid": "none"}]) + "\n", 0),
        (json.dumps([ANSWER, {"name": "device"}]) + "\n", 0),
        (json.dumps(ANSWER) + "\n", 0),
        ("", 9),
    ],
)
def test_answers_that_make_no_sense(monkeypatch: pytest.MonkeyPatch, output: str, status: int) -> None:
    def run(limit_s: float, command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, status, output, "")

    monkeypatch.setattr(devices_module, "run_within", run)
    with pytest.raises(DeviceUnavailableError, match="library"):
        probe("cuda", "library")


@pytest.mark.parametrize("error", [subprocess.TimeoutExpired("probe", 1), OSError(11, "no processes")])
def test_a_probe_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def run(limit_s: float, command: list[str], **options: object) -> None:
        raise error

    monkeypatch.setattr(devices_module, "run_within", run)
    with pytest.raises(DeviceUnavailableError, match="library"):
        probe("cuda", "library")


def test_each_device_of_a_library_is_asked_for_alone(monkeypatch: pytest.MonkeyPatch, softgpu: Device) -> None:
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
    (first, second), sentence = choose(Config(device="soft"))
    assert first == softgpu, "as it is where it is the only one"
    assert (first.ordinal, second.ordinal) == (0, 1)
    assert first.uuid[:6] != second.uuid[:6], "people name one by the beginning of its UUID"
    assert first.uuid.startswith("GPU-") and len(first.uuid) == 40
    assert first.pci_bus_id != second.pci_bus_id
    assert first.facts != second.facts
    nr_devices = [int.from_bytes(device.facts[4:8], "little") for device in (first, second)]  # cuda_api/facts.h
    assert nr_devices == [1, 1]
    assert sentence == "device: 2 x FairGV softgpu (soft, compute capability 8.0; as asked)"


def test_auto_takes_the_embedded_device_where_there_is_no_other() -> None:
    [library], sentence = choose(Config(device="auto", cuda_library=MISSING))
    assert library.kind == "soft"
    assert sentence == (
        "device: FairGV softgpu (soft, compute capability 8.0; on the CPU). No GPU is served: NVIDIA's driver is not installed on this host "
        f"(no {MISSING}): install it, or give --device soft, which computes on the CPU"
    )


@pytest.mark.parametrize("library", [__file__, "libm.so.6"])
def test_auto_leaves_a_driver_that_does_not_answer_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: str
) -> None:
    """One that is not up yet, or hangs, does so later: a manager starts the daemon again."""
    monkeypatch.setattr(devices_module, "SIGNS_OF_A_DRIVER", (tmp_path / "none", tmp_path))
    with pytest.raises(DeviceUnavailableError, match="This host has NVIDIA's driver, in whose place") as caught:
        choose(Config(device="auto", cuda_library=library))
    assert not isinstance(caught.value, LastingError)


def test_auto_takes_no_other_device_where_programs_of_gpus_are_left() -> None:
    for library in (MISSING, __file__):
        with pytest.raises(DeviceUnavailableError, match=f"{library}.* The daemon before served GPUs"):
            choose(Config(device="auto", cuda_library=library), known={"fairgv/served/GPU-5c7a": 0})
    [soft], _ = choose(Config(device="soft", cuda_library=MISSING), known={"fairgv/served/GPU-5c7a": 0})
    assert soft.kind == "soft", "as asked"


def test_auto_takes_the_driver_that_answers() -> None:
    [library], sentence = choose(Config(device="auto", cuda_library=SOFTGPU))
    assert library.kind == "cuda"
    assert "NVIDIA's driver reports it" in sentence


def test_what_was_asked_for_is_not_replaced() -> None:
    with pytest.raises(DeviceUnavailableError, match=MISSING):
        choose(Config(device="cuda", cuda_library=MISSING))


def test_an_embedded_device_that_is_not_built() -> None:
    with pytest.raises(DeviceUnavailableError, match="make setup"):
        choose(Config(device="soft", softgpu_library=MISSING))


def test_facts_under_a_quota(softgpu: Device) -> None:
    assert with_quota(softgpu.facts, 0) == softgpu.facts
    assert with_quota(softgpu.facts, 1 << 49) == softgpu.facts
    limited = with_quota(softgpu.facts, 64 << 20)
    assert limited != softgpu.facts
    assert len(limited) == len(softgpu.facts)
    assert (64 << 20).to_bytes(8, "little") in limited


@pytest.mark.parametrize("facts", [b"", b"\0" * 7, b"\xff" * 4096])
def test_facts_that_make_no_sense(facts: bytes) -> None:
    with pytest.raises(DeviceUnavailableError):
        with_quota(facts, 64 << 20)


@pytest.fixture
def reaching(tmp_path: Path) -> Path:
    """softgpu that says that its kernels reach all memory of their process."""
    library = tmp_path / "libreaching.so"
    source = """
        #include <dlfcn.h>
        enum { PAGEABLE_MEMORY_ACCESS = 88, USES_HOST_PAGE_TABLES = 100 };
        int cuDeviceGetAttribute(int *value, int attribute, int device)
        {
            int (*ask)(int *, int, int) = dlsym(RTLD_NEXT, "cuDeviceGetAttribute");
            int result = ask(value, attribute, device);
            if (attribute == PAGEABLE_MEMORY_ACCESS || attribute == USES_HOST_PAGE_TABLES) {
                *value = 1;
            }
            return result;
        }
    """
    command = ["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-o", str(library)]
    subprocess.run(
        [*command, "-Wl,--no-as-needed", SOFTGPU, f"-Wl,-rpath={Path(SOFTGPU).parent}"],
        input=source,
        text=True,
        check=True,
    )
    return library


def test_a_device_that_reaches_the_host_is_told_of_and_no_guest_learns_of_it(reaching: Path, softgpu: Device) -> None:
    """A guest that took it at its word would hand its kernels pointers that mean nothing, or the worker's."""
    [device] = probe("soft", str(reaching))
    assert device.reaches_host
    assert not softgpu.reaches_host
    assert device.facts == softgpu.facts


def test_a_device_that_reaches_the_host_is_for_guests_of_ones_own(reaching: Path, tmp_path: Path) -> None:
    with pytest.raises(FairGVError, match="uvm_disable_hmm=1") as caught:
        start_host(tmp_path / "strangers", "cuda", cuda_library=str(reaching), nr_warm_workers=0)
    assert "--trusted-guests" in str(caught.value)
    host = start_host(tmp_path / "own", "cuda", cuda_library=str(reaching), nr_warm_workers=0, trusted_guests=True)
    assert host.status()["gpus"][0]["kind"] == "cuda"
    stop_host(host)
    check_walls(probe("soft", str(reaching)), Config(is_private=True))


ATTRIBUTE = """
import ctypes, sys
softgpu = ctypes.CDLL(sys.argv[1])
value = ctypes.c_int(-1)
assert softgpu.cuInit(0) == 0 and softgpu.cuDeviceGetAttribute(ctypes.byref(value), 88, 0) == 0
print(value.value)
"""


@pytest.mark.parametrize(
    ("wall", "denied", "expected"), [("1", "", "0"), ("1", "fork", "1"), ("1", "seccomp", "1"), ("0", "fork", "0")]
)
def test_softgpu_says_when_kernels_cannot_be_walled(tmp_path: Path, wall: str, denied: str, expected: str) -> None:
    """By the attribute that tells of memory that kernels reach (88); a program that asked for no wall is told nothing new."""
    command = [sys.executable, "-c", ATTRIBUTE, SOFTGPU]
    if denied:
        command = [sys.executable, "-m", "tests.denied", denied, *command]
    environment = os.environ | own_device(tmp_path) | {"FAIRGV_SOFTGPU_WALL": wall}
    done = subprocess.run(command, cwd=PACKAGE_ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [expected]


def test_a_daemon_whose_softgpu_cannot_wall_kernels_is_for_guests_of_ones_own(tmp_path: Path) -> None:
    """What its environment says of the wall does not matter."""
    start = [sys.executable, "-m", "tests.denied", "seccomp", sys.executable, "-m", "backend_host.cli"]
    start += ["--state-dir", str(tmp_path / "state"), "start", "--foreground", "--device", "soft"]
    for said in ("0", "1"):
        environment = os.environ | own_device(tmp_path) | {"FAIRGV_SOFTGPU_WALL": said}
        done = subprocess.run(start, cwd=PACKAGE_ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert "seccomp" in done.stderr
        assert "--trusted-guests" in done.stderr
    device = dataclasses.replace(probe("soft", SOFTGPU)[0], reaches_host=True)
    check_walls([device], Config(trusted_guests=True))
    assert kernel_wall(device) == {"FAIRGV_SOFTGPU_WALL": "0"}


def test_workers_have_the_wall_whatever_the_daemons_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRGV_SOFTGPU_WALL", "0")
    host = start_host(tmp_path)
    wait_until(lambda: bool(workers_of(host.status()["pid"])), "a warm worker")
    for worker in workers_of(host.status()["pid"]):
        variables = Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")
        assert b"FAIRGV_SOFTGPU_WALL=1" in variables
        assert b"FAIRGV_SOFTGPU_WALL=0" not in variables
    stop_host(host)


def workers_of(pid: int) -> list[int]:
    """Those below this process. Threads and processes may end while they are looked at."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in map(int, (task / "children").read_text().split()):
                is_worker = b"backend_host.worker.main\0--socket" in Path(f"/proc/{child}/cmdline").read_bytes()
                found += [child] if is_worker else workers_of(child)
    return found
