"""Which device library serves this host, its devices, and the facts about each that guests are told.

The library is opened only in a child process: a driver that crashes at start, or needs seconds, is then this child's affair and not the
daemon's.
"""

import base64
import binascii
import hashlib
import itertools
import json
import logging
import os
import re
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backend_host.children import run_within
from backend_host.config import PACKAGE_ROOT, Config
from backend_host.device_settings import AS_FOR_ALL, GpuSettings, chosen, settings_of
from backend_host.errors import DeviceUnavailableError, LastingError, NotInstalledError
from backend_host.walls.root import softgpu_state
from backend_host.worker._worker import ffi, lib

PROBE_TIMEOUT_S = 120
NAME_PREFIX = "fairgv/served"
"""Of names of devices, which stand in the kernel's abstract namespace (served.py) and in records."""
_NON_PREEMPTIVE_SLICE_NS = 6_000_000
_NON_PREEMPTIVE_WATCHDOG_S = 10
_PREEMPTIVE_WATCHDOG_S = 300
_PREEMPTIVE_SLICE_NS = 30_000_000
_KERNEL_WALL = "FAIRGV_SOFTGPU_WALL"
_WHY_REACHED = {
    "cuda": "heterogeneous memory management). Load NVIDIA's module without it (options nvidia_uvm uvm_disable_hmm=1 in /etc/modprobe.d)",
    "soft": "they cannot have a process of their own). Let the daemon fork and set filters of system calls (seccomp)",
}

_REMEDIES = {
    100: "NVIDIA's driver finds no GPU; see whether its kernel module is loaded (lsmod) and what nvidia-smi says, or give --device soft",
    802: "NVIDIA's driver is not ready; GPUs with NVSwitch need its fabric manager (systemctl start nvidia-fabricmanager)",
    803: "NVIDIA's library and its kernel module are of different versions, as after an upgrade; load the module anew, or boot",
}
"""By cuInit's errors (CUDA_ERROR_NO_DEVICE, _SYSTEM_NOT_READY, _SYSTEM_DRIVER_MISMATCH)."""

SIGNS_OF_A_DRIVER = (Path("/dev/nvidiactl"), Path("/proc/driver/nvidia"))
"""There as soon as its kernel module is loaded, whatever becomes of its library."""

log = logging.getLogger("fairgv.device")


@dataclass(frozen=True)
class Device:
    """A device of a library that answered, and what the library said of it. `ordinal` is its place there now; `facts`, a `struct fgv_facts`,
    has this device alone."""

    kind: str
    path: str
    ordinal: int
    uuid: str
    """As NVIDIA writes it: GPU-5c7a...."""
    pci_bus_id: str
    name: str
    memory_bytes: int
    capability: str
    driver_version: int
    preempts: bool
    reaches_host: bool
    """Whether a kernel reaches all memory of the process that it runs for, as on Linux with heterogeneous memory management, or where softgpu
    cannot have a process for kernels."""
    facts: bytes
    context_bytes: int = 0
    """What a context takes of it, and a stream, as it was weighed."""
    stream_bytes: int = 0
    settings: GpuSettings = AS_FOR_ALL
    """What the operator said of this device alone."""
    known_as: int | None = None
    """Its number with the daemons before, where the library has given it another one since."""

    @property
    def number(self) -> int:
        """By which people call it."""
        return self.ordinal if self.known_as is None else self.known_as

    @property
    def costs(self) -> dict[str, int]:
        """What workers are told of it."""
        return {"context_bytes": self.context_bytes, "stream_bytes": self.stream_bytes}

    @property
    def watchdog_s(self) -> int:
        """How long work that does not end may keep others waiting when the operator said nothing."""
        return _PREEMPTIVE_WATCHDOG_S if self.preempts else _NON_PREEMPTIVE_WATCHDOG_S

    @property
    def slice_ns(self) -> int:
        """The slice for this device when the operator set none: 6 ms, or 30 ms where the device preempts."""
        return _PREEMPTIVE_SLICE_NS if self.preempts else _NON_PREEMPTIVE_SLICE_NS


def probe(kind: str, path: str) -> list[Device]:
    """Opens `path` in a child and reads its devices, one at least; one that gives no context while others do is left out. Raises
    DeviceUnavailableError with the child's last line."""
    command = [sys.executable, "-m", "backend_host.worker.main", "--probe", "--library", path]
    try:
        child = run_within(
            PROBE_TIMEOUT_S,
            command,
            cwd=PACKAGE_ROOT,
            env=os.environ | {_KERNEL_WALL: "1"},
            start_new_session=True,  # Ctrl-C is for the daemon
        )
    except subprocess.TimeoutExpired:
        raise DeviceUnavailableError(f"{path} did not answer within {PROBE_TIMEOUT_S} s") from None
    except OSError as error:
        raise DeviceUnavailableError(f"{path}: cannot start a process to open it: {error.strerror}") from error
    if child.returncode != 0:
        raise _unavailable(kind, path, _reason(child))
    try:
        answers = json.loads(child.stdout.strip().splitlines()[-1])
        devices = [
            _device(kind, path, ordinal, answer) for ordinal, answer in enumerate(answers) if "failed" not in answer
        ]
        failed = {ordinal: str(answer["failed"]) for ordinal, answer in enumerate(answers) if "failed" in answer}
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error) as error:
        raise DeviceUnavailableError(f"{path}: the probe's answer makes no sense ({error})") from error
    if not devices:
        raise DeviceUnavailableError(f"{path}: the probe's answer names no device")
    for ordinal, reason in failed.items():
        log.error("device %d is not served until the daemon is started anew: %s", ordinal, reason)
    return devices


def _device(kind: str, path: str, ordinal: int, answer: Any) -> Device:
    return Device(
        kind=kind,
        path=path,
        ordinal=ordinal,
        uuid=f"GPU-{uuid.UUID(hex=answer['uuid'])}",
        pci_bus_id=str(answer["pci_bus_id"]),
        name=str(answer["name"]),
        memory_bytes=int(answer["memory_bytes"]),
        capability=str(answer["capability"]),
        driver_version=int(answer["driver_version"]),
        preempts=bool(answer["preempts"]),
        reaches_host=bool(answer["reaches_host"]),
        facts=base64.b64decode(answer["facts"], validate=True),
        context_bytes=int(answer["costs"]["context_bytes"]),
        stream_bytes=int(answer["costs"]["stream_bytes"]),
    )


def _reason(child: subprocess.CompletedProcess[str]) -> str:
    if child.returncode < 0:
        return f"it ended the process that opened it with signal {-child.returncode}"
    lines = child.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit status {child.returncode}"


def _unavailable(kind: str, path: str, reason: str) -> DeviceUnavailableError:
    """What an operator is told, with the remedy where one is known; the rest in the words of loader and library."""
    reason = re.sub(r"^fairgv worker \d+: ", "", reason)
    if kind == "cuda" and reason.endswith(f"{path}: cannot open shared object file: No such file or directory"):
        return NotInstalledError(
            f"NVIDIA's driver is not installed on this host (no {path}): install it, or give --device soft, which computes on the CPU"
        )
    found = re.search(r"cuInit gives CUDA error (\d+)$", reason)
    remedy = _REMEDIES.get(int(found[1])) if found is not None else None
    return DeviceUnavailableError(f"{path}: {remedy or reason}")


def device_name(device: Device) -> str:
    """What this device and no other is called on this host. softgpu's are told apart by their files, as they all have the same UUIDs."""
    if device.kind != "soft":
        return f"{NAME_PREFIX}/{device.uuid}"
    path = Path(f"{softgpu_state(os.environ)}.{device.ordinal}").absolute()
    return f"{NAME_PREFIX}/soft-{hashlib.sha256(bytes(path)).hexdigest()[:32]}"


def _is_of_a_driver(name: str) -> bool:
    return name.startswith(f"{NAME_PREFIX}/GPU-")


def numbered(devices: Sequence[Device], known: Mapping[str, int]) -> list[Device]:
    """With the numbers that they had, `known` by names: a library that has lost a device counts those behind it anew, and people, vGPUs and the
    configuration would mean another card. A new device has its place in the library for a number, unless that was another one's."""
    if not devices:
        return []
    is_of_a_driver = devices[0].kind != "soft"
    known = {name: number for name, number in known.items() if _is_of_a_driver(name) == is_of_a_driver}
    taken = set(known.values())
    free = itertools.count(max([*taken, *(device.ordinal for device in devices)]) + 1)
    found = []
    for device in devices:
        number = known.get(device_name(device))
        if number is None and device.ordinal in taken:
            number = next(free)
        found.append(replace(device, known_as=None if number == device.ordinal else number))
    return sorted(found, key=lambda device: device.number)


def choose(
    config: Config, troubles: list[str] | None = None, known: Mapping[str, int] | None = None
) -> tuple[list[Device], str]:
    """The devices of the library to use under `config.device`, and one line saying which and why. `known`: as `numbered` has it. `troubles`: as
    `as_configured` has it.

    `auto` takes NVIDIA's driver when it loads and reports a device, and softgpu on a host that has none: a driver that does not answer may
    do so later, and programs of its devices end under softgpu. Raises DeviceUnavailableError.
    """
    troubles, known = [] if troubles is None else troubles, known or {}
    if config.device == "cuda":
        devices = as_configured(numbered(probe("cuda", config.cuda_library), known), config, troubles)
        return devices, _sentence(devices, "as asked")
    if config.device == "soft":
        devices = as_configured(numbered(_probe_softgpu(config), known), config, troubles)
        return devices, _sentence(devices, "as asked")
    try:
        found = probe("cuda", config.cuda_library)
    except DeviceUnavailableError as error:
        if why := _why_no_softgpu(error, known):
            raise DeviceUnavailableError(f"{error}. {why}: mend that, or give --device soft") from error
        devices = as_configured(numbered(_probe_softgpu(config), known), config, troubles)
        return devices, f"{_sentence(devices, 'on the CPU')}. No GPU is served: {error}"
    devices = as_configured(numbered(found, known), config, troubles)
    return devices, _sentence(devices, "NVIDIA's driver reports it")


def _why_no_softgpu(error: DeviceUnavailableError, known: Iterable[str]) -> str:
    """Why softgpu does not stand in for a driver that did not answer; "": it does."""
    if any(_is_of_a_driver(name) for name in known):
        return "The daemon before served GPUs, and softgpu would end what is left of their programs"
    if not isinstance(error, NotInstalledError) and any(path.exists() for path in SIGNS_OF_A_DRIVER):
        return "This host has NVIDIA's driver, in whose place softgpu is not taken unasked"
    return ""


def as_configured(devices: Sequence[Device], config: Config, troubles: list[str]) -> list[Device]:
    """Of all devices of a library those that are to be served, each with what was said of it alone. A sentence for each name of the
    configuration that is no one device's comes to `troubles`. Raises DeviceUnavailableError where none is left."""
    settings = settings_of(devices, config.gpu, troubles)
    found = chosen(devices, config.devices, troubles)
    if not found:
        raise DeviceUnavailableError("; ".join(troubles))
    return [_with(device, settings.get(device.number)) for device in found]


def _with(device: Device, settings: GpuSettings | None) -> Device:
    if settings is None:
        return device
    preempts = device.preempts if settings.preempts is None else settings.preempts
    return replace(device, preempts=preempts, settings=settings)


def kernel_wall(device: Device) -> dict[str, str]:
    """What workers' environment says of softgpu's process for kernels (docs/softgpu.md): whatever the daemon's own says, they have it, but
    where it is not to be had and guests are trusted (`check_walls`)."""
    return {_KERNEL_WALL: "0" if device.reaches_host else "1"}


def check_walls(devices: Sequence[Device], config: Config) -> None:
    """Raises LastingError where a guest's kernels would reach all of its worker, and guests may be anybody's."""
    if config.is_private or config.trusted_guests:
        return
    for device in devices:
        if device.reaches_host:
            raise LastingError(
                f"kernels on {device.name} reach all memory of the worker that they run for ({_WHY_REACHED[device.kind]}, or start with "
                "--trusted-guests if all guests are your own"
            )


def _probe_softgpu(config: Config) -> list[Device]:
    if not Path(config.softgpu_library).exists():
        raise DeviceUnavailableError(f"{config.softgpu_library} is not built; run make setup")
    return probe("soft", config.softgpu_library)


def _sentence(devices: list[Device], reason: str) -> str:
    kinds = Counter(f"{device.name} ({device.kind}, compute capability {device.capability}" for device in devices)
    names = [f"{count} x {kind}" if count > 1 else kind for kind, count in kinds.items()]
    return f"device: {'), '.join(names)}; {reason})"


def with_quota(facts: bytes, quota_bytes: int) -> bytes:
    """The facts as a vGPU with this memory quota is told them: the device as large as the quota, if that is less. 0: no quota."""
    if not quota_bytes:
        return facts
    block = ffi.new("uint8_t[]", len(facts))
    ffi.buffer(block)[:] = facts
    if not lib.fgw_facts_limit(block, len(facts), quota_bytes):
        raise DeviceUnavailableError("the device's facts make no sense")
    return bytes(ffi.buffer(block))
