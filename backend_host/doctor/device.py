"""What computes here: NVIDIA's driver or softgpu, and whether MPS runs beside us.

A daemon that answers is asked for its Gpus. Only where none does the device library is opened, as `start` would open it: a context beside those
of tenants takes memory and time of theirs.
"""

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backend_host.config import PACKAGE_ROOT, Config
from backend_host.devices import check_walls, choose
from backend_host.doctor.verdict import Verdict, failed, passed, warned
from backend_host.errors import DeviceUnavailableError, FairGVError
from backend_host.ipc import Message
from backend_host.nvml.child import NO_PACKAGE
from backend_host.nvml.watch import try_once
from backend_host.space.setting import OFF, why_not

_DRIVER = Path("/proc/driver/nvidia/version")
_TRIED_DRIVER = 580
_MPS = ("nvidia-cuda-mps",)
"""What begins the names of its processes, of which the kernel keeps 15 characters."""


@dataclass(frozen=True)
class DeviceReading:
    """`asked` is the setting, `kind` what was found: cuda, soft, or nothing, for the reason in `trouble`. `why_soft`: why it is not cuda where
    that was possible. `driver` is the version of NVIDIA's kernel module, empty where none is loaded."""

    asked: str
    kind: str = ""
    names: tuple[str, ...] = ()
    driver: str = ""
    why_soft: str = ""
    trouble: str = ""
    is_served: bool = False
    """By a daemon that runs."""
    uuids: tuple[str, ...] = ()
    """Of the devices."""
    misnamed: tuple[str, ...] = ()
    """Names of the configuration that are no device's."""


def read_device(config: Config, status: Message | None) -> DeviceReading:
    """`status` of a daemon that runs, else the device library is opened in a child."""
    driver = driver_version(_DRIVER.read_text(errors="replace")) if _DRIVER.exists() else ""
    if status is not None:
        names = tuple(str(gpu["name"]) for gpu in status["gpus"])
        kind = next((str(gpu["kind"]) for gpu in status["gpus"]), "")
        uuids = tuple(str(gpu["uuid"]) for gpu in status["gpus"])
        return DeviceReading(config.device, kind, names, driver, is_served=True, uuids=uuids)
    reasons: list[str] = []
    for kind in ("cuda", "soft") if config.device == "auto" else (config.device,):
        try:
            misnamed: list[str] = []
            devices, _ = choose(replace(config, device=kind), misnamed)
        except FairGVError as error:
            reasons.append(str(error))
            continue
        try:
            check_walls(devices, config)
        except DeviceUnavailableError as error:  # no other one is taken for that
            return DeviceReading(config.device, driver=driver, trouble=str(error))
        names = tuple(device.name for device in devices)
        uuids = tuple(device.uuid for device in devices)
        return DeviceReading(
            config.device, kind, names, driver, "; ".join(reasons), uuids=uuids, misnamed=tuple(misnamed)
        )
    return DeviceReading(config.device, driver=driver, trouble="; ".join(reasons))


def driver_version(text: str) -> str:
    """Of the text that the kernel module shows."""
    found = re.search(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", text, re.MULTILINE)
    return found[1] if found else ""


def device(reading: DeviceReading) -> Verdict:
    """The device that the daemon has, or would have."""
    counts = Counter(reading.names)
    named = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items())
    if reading.trouble:
        return failed("device", reading.trouble, _device_remedy(reading))
    if reading.misnamed:
        remedy = "name devices that are there: fairgv-host devices of a daemon that runs, or nvidia-smi -L"
        return warned("device", f"{named}; {'; '.join(reading.misnamed)}", remedy)
    if reading.kind == "soft":
        text = f"{named}: programs compute on the CPU"
        if reading.asked == "soft" or reading.is_served:
            return passed("device", text)
        return warned("device", f"{text}, as no GPU is served: {reading.why_soft}", _device_remedy(reading))
    text = f"{named}, NVIDIA's driver {reading.driver or 'of unknown version'}"
    major = reading.driver.partition(".")[0]
    if major.isdecimal() and int(major) < _TRIED_DRIVER:
        return warned("device", f"{text}: FairGV was tried with {_TRIED_DRIVER}", f"driver {_TRIED_DRIVER} or newer")
    return passed("device", text)


def _device_remedy(reading: DeviceReading) -> str:
    if reading.driver:
        return (
            f"driver {reading.driver} is loaded: see nvidia-smi, dmesg, and whether its libcuda.so.1 is of that version"
        )
    return 'install NVIDIA\'s driver and load it, or say device = "soft" in the configuration'


def read_monitor(reading: DeviceReading) -> str | None:
    """Why NVML is not to be had, empty where it is; None: it has nothing to tell of such a device."""
    return try_once() if reading.kind == "cuda" else None


def monitor(reading: str | None) -> Verdict:
    """What devices say of themselves."""
    if reading is None:
        return passed("monitor", "only NVIDIA's devices tell of power, clocks, temperature, Xids and ECC errors")
    if not reading:
        return passed("monitor", "NVML answers")
    text = f"power, energy, clocks, temperature, Xids and ECC errors of devices are unknown: {reading}"
    remedy = "NVIDIA's driver with its libnvidia-ml.so.1: see nvidia-smi"
    return warned("monitor", text, how_to_get_nvml() if reading == NO_PACKAGE else remedy)


def how_to_get_nvml(root: Path = PACKAGE_ROOT) -> str:
    """A command. `root`: of this installation. A package's environment is no place for pip, and sees what the distribution's Python does."""
    if (root / "Makefile").exists():
        return f"{sys.executable} -m pip install nvidia-ml-py"
    python = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    return f"as root: {python} -m pip install --break-system-packages nvidia-ml-py"


def read_mps(ours: Path, processes: Path = Path("/proc")) -> Sequence[int]:
    """Process ids of MPS, whoever started it, but for those of our spaces, whose folders are below `ours`."""
    found = []
    for comm in processes.glob("[0-9]*/comm"):
        try:
            if comm.read_text(errors="replace").startswith(_MPS) and not _is_below(ours, comm.parent / "environ"):
                found.append(int(comm.parent.name))
        except OSError:  # it has ended
            continue
    return sorted(found)


def _is_below(ours: Path, environment: Path) -> bool:
    """Whether this is the environment of a process that has its folder below ours; one that we may not see is none of ours."""
    try:
        return f"CUDA_MPS_PIPE_DIRECTORY={ours}/".encode() in environment.read_bytes()
    except OSError:
        return False


@dataclass(frozen=True)
class SpaceReading:
    """The setting, and why vGPUs of a space take turns all the same, for each device; "" where they need not."""

    setting: str
    why_not: tuple[str, ...] = ()


def read_space(config: Config, reading: DeviceReading) -> SpaceReading:
    """As the daemon finds it out at its start."""
    if config.space == OFF:
        return SpaceReading(OFF)
    return SpaceReading(config.space, tuple(why_not(reading.kind, uuid) for uuid in reading.uuids))


def space(reading: SpaceReading) -> Verdict:
    """Whether vGPUs can use a GPU at the same time."""
    if reading.setting == OFF:
        return passed("space", "off: each vGPU takes turns with all others")
    for reason in filter(None, reading.why_not):
        return warned("space", f"vGPUs of a space take turns as all do: {reason}", 'space = "off" where that is meant')
    return passed("space", "vGPUs of a space use a GPU at the same time")


def mps(reading: Sequence[int]) -> Verdict:
    """Its programs are no part of any share."""
    if not reading:
        return passed("mps", "does not run")
    text = (
        f"NVIDIA's MPS runs (process {', '.join(map(str, reading))}). Its programs use the GPU beside all shares, and with the GPU in "
        "exclusive mode workers get no context"
    )
    return warned("mps", text, "echo quit | nvidia-cuda-mps-control, and nvidia-smi -c DEFAULT")
