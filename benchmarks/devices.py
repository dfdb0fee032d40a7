"""The device that a benchmark measures: which one, what it is called, and what a native program of it is run with."""

import ctypes
import os
import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backend_host.config import PACKAGE_ROOT
from backend_host.vm.region_file import SHARED_MEMORY_FOLDER
from benchmarks.errors import NotMeasurableError

SOFTGPU = PACKAGE_ROOT / "build/softgpu"
_CAPABILITY = (75, 76)
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""
_STATE, _TIERS = "FAIRGV_SOFTGPU_STATE", "FAIRGV_SOFTGPU_TIERS"


def choose_device(kind: str) -> str:
    """'soft' or 'cuda'; auto is cuda where NVIDIA's driver reports a device. NotMeasurableError when that was asked for and is not there."""
    if kind == "soft":
        return kind
    reason = _reason_against_cuda()
    if reason is None:
        return "cuda"
    if kind == "cuda":
        raise NotMeasurableError(f"--device cuda: {reason}")
    return "soft"


def _reason_against_cuda() -> str | None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "NVIDIA's libcuda.so.1 is not on this machine"
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
        return "NVIDIA's driver reports no device"
    return None


def device_name(device: str) -> str:
    """What the results call it. NotMeasurableError when the driver does not say."""
    if device == "soft":
        return "softgpu"
    driver, name = ctypes.CDLL("libcuda.so.1"), ctypes.create_string_buffer(256)
    if driver.cuInit(0) or driver.cuDeviceGetName(name, len(name), 0):
        raise NotMeasurableError("NVIDIA's driver does not say what its device is called")
    return name.value.decode()


def compute_capability() -> int:
    """Of NVIDIA's device, 90 for 9.0. NotMeasurableError when the driver does not say."""
    driver, found = ctypes.CDLL("libcuda.so.1"), []
    for attribute in _CAPABILITY:
        number = ctypes.c_int(0)
        if driver.cuInit(0) or driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, 0):
            raise NotMeasurableError("NVIDIA's driver does not say its device's compute capability")
        found.append(number.value)
    major, minor = found
    return 10 * major + minor


def device_uuids() -> list[str]:
    """Of NVIDIA's devices, in the order of their numbers, as NVML writes them. NotMeasurableError when the driver does not say."""
    driver, count, raw = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0), ctypes.create_string_buffer(16)
    found = []
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        raise NotMeasurableError("NVIDIA's driver does not say which devices there are")
    for number in range(count.value):
        if driver.cuDeviceGetUuid_v2(raw, number):
            raise NotMeasurableError(f"NVIDIA's driver does not say the UUID of device {number}")
        found.append(f"GPU-{uuid.UUID(bytes=raw.raw)}")
    return found


def native_environment(device: str, **more: str) -> dict[str, str]:
    """For a program that runs on the device library itself. NotMeasurableError when softgpu is not built."""
    if device != "soft":
        return {**os.environ, **more}
    if not (SOFTGPU / "libcuda.so.1").exists():
        raise NotMeasurableError(f"{SOFTGPU / 'libcuda.so.1'} is not built; run make build")
    search = [str(SOFTGPU), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(search), **more}


@contextmanager
def private_device(device: str) -> Iterator[None]:
    """
    For the block, softgpu's device is one that no other program of the machine uses, and runs optimised code from the first launch on, unless
    the environment says otherwise.
    """
    state = Path(SHARED_MEMORY_FOLDER) / f"fairgv-bench-{secrets.token_hex(4)}"
    wanted = {_STATE: str(state), _TIERS: "1"} if device == "soft" else {}
    mine = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            del os.environ[name]
        for left in state.parent.glob(f"{state.name}.*"):
            left.unlink(missing_ok=True)
