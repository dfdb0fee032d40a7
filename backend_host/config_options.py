"""Options of commands that say other than the configuration file, and the configuration that comes of both."""

import argparse
from pathlib import Path

from backend_host.arguments import path_argument
from backend_host.config import (
    PREEMPTIONS,
    SLICING_MODES,
    SPACES,
    SYSTEM_FILE,
    Config,
    load_as_said,
    milliseconds,
    system_file,
)
from backend_host.device_settings import check_name
from backend_host.errors import ConfigError
from backend_host.state_dir import DEVICE_KINDS
from backend_host.walls.settings import WALLS
from scheduler.quota import QUOTAS
from scheduler.registry import POLICIES, SIMULATED, where_simulated


def add_settings(start: argparse.ArgumentParser) -> None:
    """Options that say other than the configuration file."""
    start.add_argument(
        "--config",
        type=path_argument,
        metavar="FILE",
        help=f"settings in TOML (default {SYSTEM_FILE}, if it is there); the options here win over it",
    )
    start.add_argument(
        "--device",
        choices=DEVICE_KINDS,
        help="cuda: NVIDIA's driver; soft: the CPU; auto: cuda, or soft where that is not there",
    )
    start.add_argument(
        "--devices",
        type=_devices_argument,
        metavar="NAMES",
        help="which of its devices are served: numbers, or beginnings of UUIDs, with commas between: 0,GPU-5c7a (default all)",
    )
    start.add_argument("--policy", type=_policy_argument, choices=sorted(POLICIES), help="who gets the GPU next")
    start.add_argument(
        "--slice-ms", type=float, metavar="MS", help="how long a vGPU may hold the GPU while others wait"
    )
    start.add_argument(
        "--slicing",
        choices=SLICING_MODES,
        help="how large launches go: boxes (parts of the grid, the default), persistent (blocks that can be stopped), off (whole)",
    )
    start.add_argument(
        "--quota",
        choices=QUOTAS,
        help="how long a turn lasts: a slice (the default), or by the bursts of work of the vGPU's programs",
    )
    start.add_argument(
        "--preemption",
        choices=PREEMPTIONS,
        help="kernels that outlive their turn: withdraw (off the GPU until the next one, the default), driver (time slices beside others)",
    )
    start.add_argument(
        "--space",
        choices=SPACES,
        help="whether vGPUs of one space use a GPU at the same time: off (the default), mps (by NVIDIA's Multi-Process Service; docs/space.md)",
    )
    start.add_argument(
        "--oversubscribe",
        type=float,
        metavar="FACTOR",
        help="how much programs may allocate, as a multiple of the device's memory: 1.5, say; what has no room waits in the host's (default 1)",
    )
    start.add_argument(
        "--web",
        metavar="ADDRESS",
        help="serve a page with shares, waits and memory there: 127.0.0.1:9401, or the path of a UNIX socket (docs/web.md)",
    )
    start.add_argument(
        "--trusted-guests",
        action="store_true",
        default=None,
        help="serve also where kernels reach all memory of their worker (docs/security.md)",
    )
    start.add_argument(
        "--allow-missing-wall",
        action="append",
        choices=WALLS,
        metavar="NAME",
        help="start even if this host cannot put that wall around workers, see: fairgv-host doctor; may be repeated",
    )


def given_settings(options: argparse.Namespace) -> dict[str, object]:
    """What options say of the configuration, by field; None for those that were not given."""
    slice_ms = getattr(options, "slice_ms", None)
    names = (
        "state_dir",
        "device",
        "devices",
        "policy",
        "slicing",
        "quota",
        "preemption",
        "space",
        "oversubscribe",
        "trusted_guests",
        "web",
    )
    given = {name: getattr(options, name, None) for name in names}
    return {**given, "slice_ns": milliseconds(slice_ms) if slice_ms is not None else None}


def file_of(options: argparse.Namespace) -> Path | None:
    """The configuration file that was named, or the system's."""
    return getattr(options, "config", None) or system_file(options.state_dir)


def config_of(options: argparse.Namespace) -> Config:
    """Of file and options. ConfigError when it will not do."""
    return load_as_said(file_of(options), getattr(options, "allow_missing_wall", None) or (), **given_settings(options))


def _devices_argument(text: str) -> tuple[str, ...]:
    """Names of devices on a command line."""
    try:
        return tuple(check_name("--devices", name.strip()) for name in text.split(","))
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("--devices: ")) from None


def _policy_argument(text: str) -> str:
    """A policy on a command line; who names one of the simulator is told so."""
    if text in SIMULATED:
        raise argparse.ArgumentTypeError(where_simulated(text))
    return text
