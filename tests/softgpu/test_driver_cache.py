"""The cache of compiled kernels: shared by processes, trusted only where nobody else could have written."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.softgpu.driver_harness import TIMEOUT_S, Device, build

COUNTING_COMPILER = """#!{python}
import os, sys
with open({log!r}, "a") as log:
    log.write("compiled\\n")
os.execv({python!r}, [{python!r}, "-m", "softgpu.compiler", *sys.argv[1:]])
"""


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    build()


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    """With a compiler that writes down each time it is called."""
    compiler = tmp_path / "compiler"
    compiler.write_text(COUNTING_COMPILER.format(python=sys.executable, log=str(tmp_path / "log")))
    compiler.chmod(0o700)
    device = Device(tmp_path, {"FAIRGV_SOFTGPU_COMPILER": str(compiler), "FAIRGV_SOFTGPU_TIERS": "1"})
    yield device
    device.close()


def _nr_compiled(device: Device) -> int:
    log = device.folder / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def _cached(device: Device) -> list[Path]:
    return sorted(device.cache.iterdir())


def test_compiled_once(device: Device) -> None:
    for _ in range(3):
        assert device.run_case("works").returncode == 0
    assert _nr_compiled(device) == 1
    assert [path.suffix for path in _cached(device)] == [".so"]
    assert device.cache.stat().st_mode & 0o777 == 0o700


LOADS = """
import ctypes, sys
cuda, context, module = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
print(*[cuda.cuModuleLoad(ctypes.byref(module), path.encode()) for path in sys.argv[1:]])
"""
TEXT = b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry kernel() { ret; }\n"
PTX, ELF = 1, 2


def _entry(kind: int, sm: int, content: bytes) -> bytes:
    content += bytes(-len(content) % 8)
    return struct.pack("<HHIQIIIIIIQQQ", kind, 0x101, 64, len(content), 0, 0, 0, sm, 0, 0, 0x11, 0, 0) + content


def test_machine_code_makes_no_other_image(device: Device) -> None:
    text, other = _entry(PTX, 75, TEXT), _entry(PTX, 75, TEXT.replace(b"kernel", b"other"))
    machine, newer = _entry(ELF, 80, b"machine"), _entry(PTX, 90, TEXT)
    images = [(text,), (machine, text), (text, newer, machine), (other, machine), (newer,), (machine, newer)]
    for number, entries in enumerate(images):
        head = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, sum(map(len, entries)))
        (device.folder / str(number)).write_bytes(head + b"".join(entries))
    result = device.run(sys.executable, "-c", LOADS, *(device.folder / str(nr) for nr in range(len(images))))
    assert result.stdout.split() == ["0"] * 6, result.stderr
    assert len(_cached(device)) == 4  # of the last two, which have PTX for newer devices alone, all is looked at


def test_two_processes_at_once(device: Device) -> None:
    processes = [device.start_case("works") for _ in range(4)]
    for process in processes:
        assert process.communicate(timeout=TIMEOUT_S)[0] == "PASS\n"
    assert [path.suffix for path in _cached(device)] == [".so"]


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_is_not_loaded(device: Device, mode: int) -> None:
    assert device.run_case("works").returncode == 0
    (cached,) = _cached(device)
    cached.chmod(mode)
    assert device.run_case("works").returncode == 0
    assert _nr_compiled(device) == 2
    assert cached.stat().st_mode & 0o777 == 0o600


def test_a_link_is_not_followed(device: Device) -> None:
    assert device.run_case("works").returncode == 0
    (cached,) = _cached(device)
    moved = cached.rename(device.folder / "elsewhere.so")
    cached.symlink_to(moved)
    assert device.run_case("works").returncode == 0
    assert _nr_compiled(device) == 2
    assert not cached.is_symlink()


def test_a_directory_that_others_may_write_is_not_used(device: Device) -> None:
    device.cache.mkdir()
    device.cache.chmod(0o777)
    result = device.run_case("works")
    assert result.returncode == 1
    assert result.stdout.endswith("gave CUDA_ERROR_OPERATING_SYSTEM\n")
    assert _cached(device) == []


def test_it_is_bounded(device: Device) -> None:
    device.cache.mkdir(mode=0o700)
    for number in range(3):
        (device.cache / f"{number:032x}.so").write_bytes(bytes(1000))
    bounded = device.with_settings(FAIRGV_SOFTGPU_CACHE_BYTES="1")
    assert bounded.run_case("works").returncode == 0
    (left,) = _cached(device)
    assert left.stat().st_size > 1000


def test_what_killed_compilers_left_is_swept_up(device: Device) -> None:
    device.cache.mkdir(mode=0o700)
    fresh, abandoned, folder = (device.cache / name for name in ("tmp.fresh", "tmp.abandoned", ".softgpu-abandoned"))
    folder.mkdir()
    for path in (fresh, abandoned, folder / "object.o"):
        path.write_text("half an object")
    for path in (abandoned, folder):
        os.utime(path, (0, 0))
    assert device.run_case("works").returncode == 0
    assert fresh.exists()
    assert not abandoned.exists()
    assert not folder.exists()


def test_a_compiler_that_is_not_there(device: Device) -> None:
    without = device.with_settings(FAIRGV_SOFTGPU_COMPILER=str(device.folder / "nowhere"), FAIRGV_LOG="compile")
    result = without.run_case("works")
    assert result.returncode == 1
    assert "CUDA_ERROR_JIT_COMPILER_NOT_FOUND" in result.stdout
    assert f"cannot run the compiler {device.folder / 'nowhere'}" in result.stderr
    assert _cached(device) == []


def test_compiled_code_that_is_gone(device: Device) -> None:
    """It is not said that the compiler does not run."""
    result = device.with_settings(FAIRGV_SOFTGPU_COMPILER="true", FAIRGV_LOG="compile").run_case("works")
    assert result.returncode == 1
    assert "CUDA_ERROR_OPERATING_SYSTEM" in result.stdout
    assert f"{device.cache}/" in result.stderr
    assert "compiled code is gone" in result.stderr
    assert "cannot run" not in result.stderr


def test_the_users_cache_folder_is_the_default(device: Device) -> None:
    elsewhere = device.with_settings(FAIRGV_SOFTGPU_CACHE="", XDG_CACHE_HOME=str(device.folder / "xdg"))
    assert elsewhere.run_case("works").returncode == 0
    assert len(list((device.folder / "xdg" / "fairgv" / "softgpu").iterdir())) == 1


def test_the_child_inherits_nothing(device: Device) -> None:
    spy = device.folder / "spy"
    report = device.folder / "report"
    spy.write_text(
        f"#!{sys.executable}\n"
        "import os, signal, sys\n"
        f"with open({str(report)!r}, 'w') as report:\n"
        "    own = report.fileno()\n"
        "    fds = sorted(int(fd) for fd in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + fd))\n"
        "    masked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))\n"
        "    names = [name for name in os.environ if name.startswith('LD_')]\n"
        "    print([fd for fd in fds if fd != own], masked, names, file=report)\n"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, '-m', 'softgpu.compiler', *sys.argv[1:]])\n"
    )
    spy.chmod(0o700)
    assert device.with_settings(FAIRGV_SOFTGPU_COMPILER=str(spy)).run_case("works").returncode == 0
    assert report.read_text() == "[0, 1, 2] [] []\n"
