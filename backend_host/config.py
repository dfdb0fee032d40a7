"""What an operator may set: a TOML file, the command line over it, defaults under both.

Every key is checked; an unknown one stops the start and is named, because a misspelt key that is silently ignored costs an afternoon.
"""

import dataclasses
import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from backend_host.entitlement import KEYS, PLAIN, Entitlement, EntitlementError, read_changes
from backend_host.errors import ConfigError
from backend_host.limits import ORDINARY, Limits, read_limits
from backend_host.metrics.address import read_metrics_address
from backend_host.sizes import parse_size
from backend_host.state_dir import DEVICE_KINDS, default_state_dir
from backend_host.walls.settings import PLAIN as WALLS_BY_DEFAULT
from backend_host.walls.settings import WallSettings
from backend_host.web.address import read_web_address
from scheduler.quota import DEFAULT_MOST_NS, QUOTAS
from scheduler.registry import DEFAULT_POLICY, POLICIES, SIMULATED, where_simulated

PACKAGE_ROOT = Path(__file__).resolve().parent.parent
ADOPTIONS = ("all", "attached")
COSCHEDULING = ("best", "off", "real-time", "short-slice", "nice")


BY_DEVICE = -1


@dataclass(frozen=True)
class Config:
    """The settings of one daemon. Sizes in bytes, times in nanoseconds."""

    state_dir: Path = dataclasses.field(default_factory=default_state_dir)
    device: str = "auto"
    policy: str = DEFAULT_POLICY
    slice_ns: int = 0
    """Length of a slice; 0: 30 ms on a device that preempts, 6 ms on one that does not (paper, section 3.3.2)."""
    quota: str = "slice"
    """How long a turn lasts: slice (a slice), bursts (what the programs' bursts of work take, one at least; scheduler/quota.py)."""
    quota_max_ms: int = DEFAULT_MOST_NS // 1_000_000
    """A turn by bursts lasts no longer; a program with longer ones keeps the slice."""
    vgpu: Entitlement = PLAIN
    """What a vGPU has of which a command or a domain's definition says nothing; in a file a table, `[vgpu]`."""
    limits: Limits = ORDINARY
    """How many programs, contexts, streams and modules a vGPU may have; in a file a table, `[limits]`."""
    region_bytes: int = 256 << 20
    """Size of a virtual machine's region when none is given; a power of two."""
    run_region_bytes: int = 0
    """That of a command's, whose memory is only taken as it is written to; 0: the largest that half of the machine's memory holds."""
    pinned_bytes: int = 4 << 30
    """How much memory a virtual machine whose QEMU has the device `fairgv-memory` may get behind its region (qemu_patches/README.md)."""
    nr_warm_workers: int = 1
    """Workers of each Gpu that wait with a context ready, so that a program need not wait for one (90-190 ms on an H200)."""
    slicing: str = "boxes"
    """How large launches go, so that the GPU can be handed over within one: boxes (parts of their grid), persistent (blocks that can be told to
    stop), off (whole); docs/slicing.md."""
    slicing_threshold_blocks: int = 360_000
    """Launches of more blocks are large (paper, section 5.5.2: 600 x 600)."""
    slicing_least_blocks: int = 1500
    """Of a part."""
    slicing_part_us: int = 200
    """How long a part keeps the GPU, if it may have so many blocks; 0: parts have as few as may be."""
    preemption: str = "withdraw"
    """What becomes of a kernel that outlives its turn, where the GPU preempts: withdraw (it is taken off the GPU until its turn comes again,
    where the driver lets its owner do that), driver (it shares the GPU with the next one, by the driver's time slices); docs/slicing.md."""
    watchdog_s: int = BY_DEVICE
    """Work of a vGPU that keeps others waiting for so long, none of it ending, costs its program its worker; 0: never. BY_DEVICE: 10 s on a
    device that cannot preempt, where others get nothing meanwhile, 300 s on one that can."""
    cuda_library: str = "libcuda.so.1"
    softgpu_library: str = str(PACKAGE_ROOT / "build/softgpu/libcuda.so.1")
    guest_library: str = str(PACKAGE_ROOT / "build/guest/libcuda.so.1")
    walls: WallSettings = WALLS_BY_DEFAULT
    """What is around workers; in a file a table, `[walls]` (docs/walls.md)."""
    server_user: str = "nobody"
    """Whom the ivshmem servers of doorbells run as when the daemon is root."""
    coscheduling: str = "best"
    """How who waits for the GPU is boosted when its vGPU gets it: `best`, `off`, or one of the ways in boost_ways.py by its name."""
    trusted_guests: bool = False
    """Whether to serve on a device whose kernels reach all memory of their worker (docs/security.md): only where all guests are one's own."""
    libvirt_uri: str = "qemu:///system"
    adopt: str = "all"
    """Which domains are served: `all` whose definition has the device, or those `attached` by command only."""
    metrics: str = ""
    """Where metrics are served over HTTP: a loopback address with a port, 127.0.0.1:9400 say, or the path of a UNIX socket; empty: nowhere."""
    metrics_file: str = ""
    """A file of node_exporter's textfile collector, ending in .prom, that has the metrics every 15 s; empty: none (docs/metrics.md)."""
    web: str = ""
    """Where operators find the page with shares, waits and memory: as `metrics`, or where others reach it, if it asks for a token; empty:
    nowhere (docs/web.md)."""
    web_token_file: str = ""
    """A file with the token that who looks at the page must know; empty: none is asked for."""
    is_private: bool = False
    """Ends with the command that started it, and removes its state directory: what `fairgv-run` starts when no daemon runs."""
    goes_around: bool = False
    """A private daemon's: it serves a device that another daemon serves, too, whose shares do not hold for it."""

    def to_json(self) -> str:
        """For the daemon's own process."""
        return json.dumps({**dataclasses.asdict(self), "state_dir": str(self.state_dir)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The counterpart."""
        values = json.loads(text)
        walls = {**values["walls"], "allow_missing": tuple(values["walls"]["allow_missing"])}
        read = {
            "state_dir": Path(values["state_dir"]),
            "vgpu": Entitlement(**values["vgpu"]),
            "limits": Limits(**values["limits"]),
            "walls": WallSettings(**walls),
        }
        return cls(**{**values, **read})

    @property
    def socket_path(self) -> Path:
        """Where the daemon listens."""
        return self.state_dir / "control.sock"

    @property
    def log_path(self) -> Path:
        """What the daemon and its workers say, when started in the background."""
        return self.state_dir / "daemon.log"


SLICING_MODES = ("off", "boxes", "persistent")
PREEMPTIONS = ("withdraw", "driver")
MAX_WARM_WORKERS = 64
MIN_REGION_BYTES = 16 << 20
MAX_REGION_BYTES = 64 << 30
MAX_PINNED_BYTES = 1 << 40
_SIZES = {"region_bytes", "run_region_bytes", "pinned_bytes"}
_MILLISECONDS = {"slice_ms": "slice_ns"}
_NOT_IN_FILES = {"slice_ns", "is_private", "goes_around"}
_ENTITLEMENT = "vgpu"
_LIMITS = "limits"
_WALLS = "walls"
_LIBRARIES = ("cuda_library", "softgpu_library", "guest_library")


def load_config(path: Path | None, **overrides: object) -> Config:
    """The defaults, the file over them, then each override that is not None. Raises ConfigError naming file and key."""
    values: dict[str, object] = {}
    if path is not None:
        values.update(_read_file(path))
    values.update({key: value for key, value in overrides.items() if value is not None})
    config = Config(**values)  # type: ignore[arg-type]
    return _checked(_absolute(config))


def milliseconds(value: object) -> int:
    """In nanoseconds. Raises ConfigError."""
    try:
        return int(float(str(value)) * 1e6)
    except (ValueError, OverflowError):
        raise ConfigError(f"slice_ms must be a number of milliseconds, not {value!r}") from None


def _absolute(config: Config) -> Config:
    """The daemon's processes run elsewhere. A library without a slash is the loader's to find."""
    libraries = {name: getattr(config, name) for name in _LIBRARIES}
    paths = {name: str(Path(path).absolute()) for name, path in libraries.items() if "/" in path}
    for name in ("metrics_file", "web_token_file"):
        if getattr(config, name):
            paths[name] = str(Path(getattr(config, name)).absolute())
    return dataclasses.replace(config, state_dir=config.state_dir.absolute(), **paths)  # type: ignore[arg-type]


def _read_file(path: Path) -> dict[str, object]:
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:  # of TOML, or of UTF-8
        raise ConfigError(f"{path}: {error}") from error
    types = {field.name: field.type for field in dataclasses.fields(Config)}
    values: dict[str, object] = {}
    for key, value in document.items():
        if key in _MILLISECONDS:
            values[_MILLISECONDS[key]] = milliseconds(value)
        elif key in _SIZES:
            values[key] = parse_size(str(value))
        elif key == _ENTITLEMENT and isinstance(value, dict):
            values[key] = _read_entitlement(path, value)
        elif key == _LIMITS and isinstance(value, dict):
            values[key] = _read_limits(path, value)
        elif key == _WALLS and isinstance(value, dict):
            try:
                values[key] = WallSettings.from_table(value)
            except ConfigError as error:
                raise ConfigError(f"{path}: {error}") from error
        elif key in types and key not in _NOT_IN_FILES:
            values[key] = Path(str(value)) if types[key] is Path else value
        else:
            known = sorted({*types, *_MILLISECONDS} - _NOT_IN_FILES)
            raise ConfigError(f"{path}: unknown key {key!r}; known are: {', '.join(known)}")
        expected = types[_MILLISECONDS.get(key, key)]
        found = values[_MILLISECONDS.get(key, key)]
        if isinstance(expected, type) and (
            not isinstance(found, expected) or isinstance(found, bool) != (expected is bool)
        ):  # a bool is an int, too
            name = "a table" if expected in (Entitlement, Limits, WallSettings) else expected.__name__
            raise ConfigError(f"{path}: {key} must be {name}, not {value!r}")
    return values


def _read_entitlement(path: Path, table: dict[str, object]) -> Entitlement:
    if unknown := table.keys() - KEYS:
        raise ConfigError(
            f"{path}: unknown key {min(unknown)!r} in [{_ENTITLEMENT}]; known are: {', '.join(sorted(KEYS))}"
        )
    try:
        return PLAIN.changed(read_changes(table))
    except EntitlementError as error:
        raise ConfigError(f"{path}, [{_ENTITLEMENT}]: {error}") from error


def _read_limits(path: Path, table: dict[str, object]) -> Limits:
    try:
        return read_limits(table)
    except ConfigError as error:
        raise ConfigError(f"{path}, [{_LIMITS}]: {error}") from error


def _checked(config: Config) -> Config:
    if config.device not in DEVICE_KINDS:
        raise ConfigError(f"device must be one of {', '.join(DEVICE_KINDS)}, not {config.device!r}")
    if config.policy in SIMULATED:
        raise ConfigError(where_simulated(config.policy))
    if config.policy not in POLICIES:
        raise ConfigError(f"policy must be one of {', '.join(sorted(POLICIES))}, not {config.policy!r}")
    if config.coscheduling not in COSCHEDULING:
        raise ConfigError(f"coscheduling must be one of {', '.join(COSCHEDULING)}, not {config.coscheduling!r}")
    if config.adopt not in ADOPTIONS:
        raise ConfigError(f"adopt must be one of {', '.join(ADOPTIONS)}, not {config.adopt!r}")
    check_region_bytes(config.region_bytes)
    if config.run_region_bytes:
        check_region_bytes(config.run_region_bytes)
    if not 0 <= config.pinned_bytes <= MAX_PINNED_BYTES:
        raise ConfigError(f"pinned_bytes must be from 0 to 1024G, not {config.pinned_bytes}")
    if not 0 <= config.nr_warm_workers <= MAX_WARM_WORKERS:
        raise ConfigError(f"nr_warm_workers must be from 0 to {MAX_WARM_WORKERS}, not {config.nr_warm_workers}")
    if config.slicing not in SLICING_MODES:
        raise ConfigError(f"slicing must be one of {', '.join(SLICING_MODES)}, not {config.slicing!r}")
    if config.quota not in QUOTAS:
        raise ConfigError(f"quota must be one of {', '.join(QUOTAS)}, not {config.quota!r}")
    if not 1 <= config.quota_max_ms <= 1000:
        raise ConfigError(f"quota_max_ms must be from 1 to 1000, not {config.quota_max_ms}")
    if config.preemption not in PREEMPTIONS:
        raise ConfigError(f"preemption must be one of {', '.join(PREEMPTIONS)}, not {config.preemption!r}")
    for name in ("slicing_threshold_blocks", "slicing_least_blocks", "slicing_part_us"):
        if not 0 <= getattr(config, name) < 1 << 32:
            raise ConfigError(f"{name} must be from 0 to 4294967295, not {getattr(config, name)}")
    if config.watchdog_s != BY_DEVICE and not 0 <= config.watchdog_s < 1 << 32:
        raise ConfigError(f"watchdog_s must be from 0 to 4294967295, not {config.watchdog_s}")
    if config.metrics:
        read_metrics_address(config.metrics)
    if config.metrics_file and not config.metrics_file.endswith(".prom"):
        raise ConfigError(
            f"metrics_file must end in .prom, as node_exporter's textfile collector reads no other files, not {config.metrics_file!r}"
        )
    if config.web:
        read_web_address(config.web, has_token=bool(config.web_token_file))
    if config.slice_ns and config.slice_ns < 1_000_000:
        raise ConfigError(
            "slice_ms must be at least 1: shorter slices cost more in switches than they give (docs/grants.md)"
        )
    return config


def check_region_bytes(region_bytes: int) -> None:
    """A region is a PCI BAR: a power of two; its page table takes memory in proportion. Raises ConfigError."""
    if not MIN_REGION_BYTES <= region_bytes <= MAX_REGION_BYTES or region_bytes & (region_bytes - 1):
        raise ConfigError(f"a region's size must be a power of two from 16M to 64G, not {region_bytes} bytes")


def region_bytes_of_commands(config: Config) -> int:
    """What a command's region has when none is given."""
    half_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    largest_bytes = 1 << (half_bytes.bit_length() - 1)
    return config.run_region_bytes or min(max(largest_bytes, MIN_REGION_BYTES), MAX_REGION_BYTES)
