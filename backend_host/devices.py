"""Which device library serves this host, and the facts about its devices that guests are told.

The library is opened only in a child process: a driver that crashes at start, or needs seconds, is then this child's affair and not the
daemon's.
"""

import base64
import binascii
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from backend_host.config import PACKAGE_ROOT, Config
from backend_host.errors import DeviceUnavailableError
from backend_host.worker._worker import ffi, lib

PROBE_TIMEOUT_S = 120
_NON_PREEMPTIVE_SLICE_NS = 6_000_000
_PREEMPTIVE_SLICE_NS = 30_000_000


@dataclass(frozen=True)
class DeviceLibrary:
    """A device library that answered, and what it said of its first device. `facts` is a `struct fgv_facts`."""

    kind: str
    path: str
    name: str
    memory_bytes: int
    capability: str
    driver_version: int
    preempts: bool
    facts: bytes

    @property
    def slice_ns(self) -> int:
        """The slice for this device when the operator set none: 6 ms, or 30 ms where the device preempts."""
        return _PREEMPTIVE_SLICE_NS if self.preempts else _NON_PREEMPTIVE_SLICE_NS


def probe(kind: str, path: str) -> DeviceLibrary:
    """Opens `path` in a child and reads its devices. Raises DeviceUnavailableError with the child's last line."""
    command = [sys.executable, "-m", "backend_host.worker.main", "--probe", "--library", path]
    try:
        child = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            cwd=PACKAGE_ROOT,
            encoding="utf-8",
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=False,
            start_new_session=True,  # Ctrl-C is for the daemon
        )
    except subprocess.TimeoutExpired:
        raise DeviceUnavailableError(f"{path} did not answer within {PROBE_TIMEOUT_S} s") from None
    except OSError as error:
        raise DeviceUnavailableError(f"{path}: cannot start a process to open it: {error.strerror}") from error
    if child.returncode != 0:
        raise DeviceUnavailableError(f"{path}: {_reason(child)}")
    try:
        answer = json.loads(child.stdout.strip().splitlines()[-1])
        return DeviceLibrary(
            kind=kind,
            path=path,
            name=str(answer["name"]),
            memory_bytes=int(answer["memory_bytes"]),
            capability=str(answer["capability"]),
            driver_version=int(answer["driver_version"]),
            preempts=bool(answer["preempts"]),
            facts=base64.b64decode(answer["facts"], validate=True),
        )
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error) as error:
        raise DeviceUnavailableError(f"{path}: the probe's answer makes no sense ({error})") from error


def _reason(child: subprocess.CompletedProcess[str]) -> str:
    if child.returncode < 0:
        return f"it ended the process that opened it with signal {-child.returncode}"
    lines = child.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit status {child.returncode}"


def choose(config: Config) -> tuple[DeviceLibrary, str]:
    """The library to use under `config.device`, and one line saying which and why.

    `auto` takes NVIDIA's driver when it loads and reports a device, else softgpu.
    """
    if config.device == "cuda":
        library = probe("cuda", config.cuda_library)
        return library, _sentence(library, "as asked")
    if config.device == "soft":
        library = _probe_softgpu(config)
        return library, _sentence(library, "as asked")
    try:
        library = probe("cuda", config.cuda_library)
    except DeviceUnavailableError as error:
        library = _probe_softgpu(config)
        return library, _sentence(library, f"no NVIDIA device here: {error}")
    return library, _sentence(library, "NVIDIA's driver reports it")


def _probe_softgpu(config: Config) -> DeviceLibrary:
    if not Path(config.softgpu_library).exists():
        raise DeviceUnavailableError(f"{config.softgpu_library} is not built; run make setup")
    return probe("soft", config.softgpu_library)


def _sentence(library: DeviceLibrary, reason: str) -> str:
    return f"device: {library.name} ({library.kind}, compute capability {library.capability}; {reason})"


def with_quota(facts: bytes, quota_bytes: int) -> bytes:
    """The facts as a vGPU with this memory quota is told them: each device as large as the quota, if that is less. 0: no quota."""
    if not quota_bytes:
        return facts
    block = ffi.new("uint8_t[]", len(facts))
    ffi.buffer(block)[:] = facts
    if not lib.fgw_facts_limit(block, len(facts), quota_bytes):
        raise DeviceUnavailableError("the device's facts make no sense")
    return bytes(ffi.buffer(block))
