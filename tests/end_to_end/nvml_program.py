"""Run as a guest by test_nvml.py: asks libnvidia-ml.so.1 and libcuda.so.1 the same things and prints the answers as JSON.

With an argument, waits for a line on standard input after each answer; `work` and `alloc` before a line do that first.
"""

import ctypes
import json
import os
import sys
from typing import Any

nvml = ctypes.CDLL("libnvidia-ml.so.1")
cuda = ctypes.CDLL("libcuda.so.1")
nvml.nvmlErrorString.restype = ctypes.c_char_p


class Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Memory2(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint),
        *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")),
    )


class Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Pci(ctypes.Structure):
    _fields_ = (
        ("legacy", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "device_id", "subsystem_id")),
        ("id", ctypes.c_char * 32),
    )


class Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def ok(result: int) -> None:
    assert result == 0, nvml.nvmlErrorString(result)


def text(call: Any, *before: Any) -> str:
    buffer = ctypes.create_string_buffer(96)
    ok(call(*before, buffer, 96))
    return buffer.value.decode()


def number(call: Any, *before: Any) -> int:
    value = ctypes.c_uint()
    ok(call(*before, ctypes.byref(value)))
    return value.value


def identity(device: ctypes.c_void_p) -> dict[str, Any]:
    """What does not change, from both libraries."""
    major, minor, uuid, pci = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(16), Pci()
    by_uuid, by_pci, current, pending = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint(9), ctypes.c_uint(9)
    ok(nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor)))
    ok(nvml.nvmlDeviceGetPciInfo_v3(device, ctypes.byref(pci)))
    ok(nvml.nvmlDeviceGetHandleByUUID(text(nvml.nvmlDeviceGetUUID, device).encode(), ctypes.byref(by_uuid)))
    ok(nvml.nvmlDeviceGetHandleByPciBusId_v2(pci.id, ctypes.byref(by_pci)))
    ok(nvml.nvmlDeviceGetMigMode(device, ctypes.byref(current), ctypes.byref(pending)))
    ok(cuda.cuDeviceGetUuid_v2(uuid, 0))
    small = ctypes.create_string_buffer(3)
    return {
        "name": text(nvml.nvmlDeviceGetName, device),
        "cuda_name": text(lambda to, room: cuda.cuDeviceGetName(to, room, 0)),
        "uuid": text(nvml.nvmlDeviceGetUUID, device),
        "cuda_uuid": uuid.raw.hex(),
        "pci": pci.id.decode(),
        "cuda_pci": text(lambda to, room: cuda.cuDeviceGetPCIBusId(to, room, 0)),
        "capability": [major.value, minor.value],
        "cuda_capability": [attribute(75), attribute(76)],
        "cuda_version": [number(nvml.nvmlSystemGetCudaDriverVersion_v2), number(cuda.cuDriverGetVersion)],
        "versions": [text(nvml.nvmlSystemGetDriverVersion), text(nvml.nvmlSystemGetNVMLVersion)],
        "same_handles": by_uuid.value == by_pci.value == device.value,
        "mig": [current.value, pending.value],
        "peer": [
            (nvml.nvmlDeviceGetP2PStatus(device, device, index, ctypes.byref(current)), current.value)
            for index in (0, 4, 5)
        ],
        "no_status": nvml.nvmlDeviceGetP2PStatus(device, device, 0, None),
        "small": nvml.nvmlDeviceGetName(device, small, 3),
        "temperature": nvml.nvmlDeviceGetTemperature(device, 0, ctypes.byref(current)),
        "no_device": nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(by_uuid)),
        "bad_handle": nvml.nvmlDeviceGetName(ctypes.c_void_p(8), small, 3),
    }


def attribute(which: int) -> int:
    value = ctypes.c_int()
    assert cuda.cuDeviceGetAttribute(ctypes.byref(value), which, 0) == 0
    return value.value


def use(device: ctypes.c_void_p) -> dict[str, Any]:
    """What changes."""
    memory, memory2, free, total = (
        Memory(),
        Memory2(version=ctypes.sizeof(Memory2) | 2 << 24),
        ctypes.c_size_t(),
        ctypes.c_size_t(),
    )
    wrong, count, processes, rates = Memory2(version=1), ctypes.c_uint(8), (Process * 8)(), Utilization()
    ok(nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)))
    ok(nvml.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(memory2)))
    ok(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    ok(nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), processes))
    ok(nvml.nvmlDeviceGetUtilizationRates(device, ctypes.byref(rates)))
    return {
        "memory": [memory.total, memory.free, memory.used],
        "memory2": [memory2.total, memory2.free, memory2.used],
        "cuda_memory": [total.value, free.value, total.value - free.value],
        "wrong_version": nvml.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(wrong)),
        "processes": {process.pid: process.memory for process in processes[: count.value]},
        "utilization": rates.gpu,
        "pid": os.getpid(),
    }


def main() -> None:
    device, context = ctypes.c_void_p(), ctypes.c_void_p()
    before = nvml.nvmlDeviceGetCount_v2(ctypes.byref(ctypes.c_uint()))
    ok(nvml.nvmlInit_v2())
    ok(nvml.nvmlInit())
    assert number(nvml.nvmlDeviceGetCount) == number(nvml.nvmlDeviceGetCount_v2) == 1
    ok(nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)))
    ok(cuda.cuInit(0))
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    ok(cuda.cuCtxSetCurrent(context))
    print(json.dumps({"before": before, **identity(device)}), flush=True)
    pointer = ctypes.c_uint64()
    for line in sys.stdin:
        if line.startswith("alloc"):
            ok(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(line.split()[1]))))
        if line.startswith("work"):
            for _ in range(20):
                ok(cuda.cuMemsetD8_v2(pointer, ctypes.c_ubyte(1), ctypes.c_size_t(1 << 20)))
            ok(cuda.cuCtxSynchronize())
        print(json.dumps(use(device)), flush=True)
    ok(nvml.nvmlShutdown())
    ok(nvml.nvmlShutdown())
    assert nvml.nvmlShutdown() == 1


main()
