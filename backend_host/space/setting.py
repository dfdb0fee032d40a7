"""Whether vGPUs of a device can use it at the same time, as far as that is known before the first comes."""

import logging
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backend_host.children import run_within
from backend_host.config import Config
from backend_host.devices import Device
from backend_host.errors import FairGVError
from backend_host.space.mps import Mps, MpsError, find_control
from backend_host.space.together import ByMps, ByName, Together

OFF = "off"
SPACES = "spaces"
"""The folder of all of them in a state directory."""
_QUERY = ("nvidia-smi", "--query-gpu=compute_mode,mig.mode.current", "--format=csv,noheader", "--id")
_LIMIT_S = 20.0
_SHARED_MODE = "default"

log = logging.getLogger("fairgv.space")


@dataclass(frozen=True)
class SpaceSettings:
    """Of one Gpu. `setting`: as configured; `why_not`: why its vGPUs take turns whatever their space; `make`: has processes of a space
    together, by its name and user; `quit_left`: ends what daemons before left of spaces but those with these names."""

    setting: str
    why_not: str
    make: Callable[[str, int], Together]
    nr_warm: int
    quit_left: Callable[[frozenset[str]], None] = lambda _: None


def why_not(kind: str, uuid: str) -> str:
    """Why vGPUs of this device take turns whatever their space; empty: they need not. MPS is found out about without a context."""
    if kind != "cuda":
        return ""
    if uuid.startswith("MIG"):
        return "it is a MIG instance, which MPS shares with nobody outside: switch MIG off (nvidia-smi --mig 0), or share by instances"
    try:
        find_control()
    except MpsError as error:
        return str(error)
    return _why_not_by_mode(uuid)


def _why_not_by_mode(uuid: str) -> str:
    """What NVIDIA's tool says; where there is none, the first client will tell."""
    try:
        asked = run_within(_LIMIT_S, [*_QUERY, uuid])
        asked.check_returncode()
    except (OSError, subprocess.SubprocessError):
        return ""
    mode, _, mig = (word.strip().lower() for word in asked.stdout.partition(","))
    if mig == "enabled":
        return "MIG is enabled on it: switch it off (nvidia-smi --mig 0), or share by instances"
    if mode != _SHARED_MODE:
        return f"it is in the compute mode {mode}, for somebody else: nvidia-smi --compute-mode DEFAULT"
    return ""


def space_settings(device: Device, gpu: int, config: Config) -> SpaceSettings:
    """Of this Gpu, by its number. What is in the way is said in the log."""
    reason = why_not(device.kind, device.uuid) if config.space != OFF else ""
    if reason:
        log.warning("GPU %d: vGPUs of a space take turns as all do: %s", gpu, reason)
    state_dir = config.state_dir
    return SpaceSettings(
        *(config.space, reason, maker(device, gpu, state_dir), config.nr_warm_workers),
        quit_left=lambda kept: quit_left(state_dir, gpu, kept),
    )


def maker(device: Device, gpu: int, state_dir: Path) -> Callable[[str, int], Together]:
    """What makes the way in which processes of a space of this Gpu, by its name and user, are together."""

    def make(name: str, uid: int) -> Together:
        if device.kind != "cuda":
            return ByName(name, state_dir)
        return ByMps(Mps(folder_of(state_dir, gpu, name), uid, device.uuid))

    return make


def folder_of(state_dir: Path, gpu: int, name: str) -> Path:
    """Of MPS, for a space."""
    return state_dir / SPACES / f"{gpu}-{name}"


def quit_left(state_dir: Path, gpu: int, kept: frozenset[str]) -> None:
    """Ends what a daemon that was killed left of spaces with other names than these."""
    for folder in (state_dir / SPACES).glob(f"{gpu}-*"):
        if folder.name.partition("-")[2] in kept:
            continue
        try:
            owner = (folder / "pipe").stat().st_uid
            Mps(folder, owner if os.geteuid() == 0 else 0).quit()
        except (FairGVError, OSError):
            continue
