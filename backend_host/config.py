"""What an operator may set: a TOML file, the command line over it, defaults under both.

Every key is checked; an unknown one stops the start and is named, because a misspelt key that is silently ignored costs an afternoon.

What a field means stands below it, and what it may be in RULES: `config check` and the manual page are made from that (config_keys.py).
"""

import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from backend_host.device_settings import (
    MIN_DEVICE_BYTES,
    MIN_SLICE_NS,
    MOST_DEVICE_BYTES,
    MOST_SLICE_NS,
    GpuSettings,
    read_devices,
    read_gpus,
)
from backend_host.entitlement import KEYS, PLAIN, Entitlement, read_changes
from backend_host.errors import ConfigError
from backend_host.limits import ORDINARY, Limits, read_limits
from backend_host.metrics.address import read_metrics_address
from backend_host.service.user_settings import KEYS as USER_KEYS
from backend_host.service.user_settings import ORDINARY as ORDINARY_USERS
from backend_host.service.user_settings import UserSettings
from backend_host.sizes import read_size
from backend_host.state_dir import DEVICE_KINDS, default_state_dir
from backend_host.toml_file import read_toml
from backend_host.walls.settings import KEYS as WALL_KEYS
from backend_host.walls.settings import PLAIN as WALLS_BY_DEFAULT
from backend_host.walls.settings import WallSettings
from backend_host.web.address import read_web_address
from scheduler.balance import MODES as BALANCING
from scheduler.quota import DEFAULT_MOST_NS, QUOTAS
from scheduler.registry import DEFAULT_POLICY, POLICIES, SIMULATED, where_simulated

PACKAGE_ROOT = Path(__file__).resolve().parent.parent
SYSTEM_FILE = Path("/etc/fairgv/config.toml")
"""What the system's daemon reads where the command names no file. It need not be there."""
ADOPTIONS = ("all", "attached")
COSCHEDULING = ("best", "off", "real-time", "short-slice", "nice")


BY_DEVICE = -1


@dataclass(frozen=True)
class Config:
    """The settings of one daemon. Sizes in bytes, times in nanoseconds."""

    state_dir: Path = dataclasses.field(default_factory=default_state_dir)
    """Where the daemon keeps its socket, its log and what it knows of domains; nobody else may write there."""
    device: str = "auto"
    """What computes: cuda (NVIDIA's driver), soft (the software device), auto (cuda, and soft on a host without that driver)."""
    devices: tuple[str, ...] = ()
    """Which devices of it are served: their numbers, or the beginnings of their UUIDs; empty: all."""
    policy: str = DEFAULT_POLICY
    """Who gets the GPU next; docs/scheduling.md."""
    slice_ns: int = 0
    """Length of a slice; 0: 30 ms on a device that preempts, 6 ms on one that does not (paper, section 3.3.2)."""
    quota: str = "slice"
    """How long a turn lasts: slice (a slice), bursts (what the programs' bursts of work take, one at least; scheduler/quota.py)."""
    quota_max_ms: int = DEFAULT_MOST_NS // 1_000_000
    """A turn by bursts lasts no longer; a program with longer ones keeps the slice."""
    vgpu: Entitlement = PLAIN
    """What a vGPU has of which a command or a domain's definition says nothing; in a file a table, `[vgpu]`."""
    gpu: tuple[GpuSettings, ...] = ()
    """What one device has otherwise than the others; in a file a table for each, `[gpu.0]` or `[gpu.GPU-5c7a]` (docs/devices.md)."""
    limits: Limits = ORDINARY
    """How many programs, contexts, streams and modules a vGPU may have, and bytes of images; 0: no limit. In a file a table, `[limits]`."""
    users: UserSettings = ORDINARY_USERS
    """Who may use a daemon of root, and how much of it; in a file a table, `[users]` (docs/service.md)."""
    region_bytes: int = 256 << 20
    """Size of a virtual machine's region when none is given; a power of two."""
    run_region_bytes: int = 0
    """Size of the region of a program under fairgv-run, whose memory is only taken as it is written to; 0: the largest that half of the
    machine's memory holds."""
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
    """A part of a large launch has at least so many."""
    slicing_part_us: int = 200
    """How long a part keeps the GPU, if it may have so many blocks; 0: parts have as few as may be."""
    preemption: str = "withdraw"
    """What becomes of a kernel that outlives its turn, where the GPU preempts: withdraw (it is taken off the GPU until its turn comes again,
    where the driver lets its owner do that), driver (it shares the GPU with the next one, by the driver's time slices); docs/slicing.md."""
    memory: str = "span"
    """Where linear memory of programs lies on the device: span (at addresses that the program proposes), driver (where the driver puts it);
    docs/memory.md."""
    device_memory_bytes: int = 0
    """How much of each device's memory programs get, all together: a smaller one makes a small card of a large one; 0: all there is."""
    oversubscribe: float = 1.0
    """How much programs may allocate, all together, as a multiple of the device's memory: what has no room there waits in the host's memory
    while others have their turns (docs/memory.md)."""
    swap_bytes: int = 0
    """How much of the host's memory is for that, of all devices together; 0: a quarter of it. Only what is used is taken."""
    paging_cost: float = 5.0
    """How much of the time moving memory may take, in percent: the less, the longer turns are while programs wait for their memory, up to
    5 s."""
    balance: str = "off"
    """Whether vGPUs move between Gpus by what they want: off, balance (they leave those of which more is wanted than there is), compact (the
    same, and those that are used little are emptied); docs/devices.md."""
    space: str = "off"
    """Whether vGPUs of one space use a GPU at the same time: off (each takes turns with all others), mps (by NVIDIA's Multi-Process Service, of
    which each space gets a control daemon; docs/space.md)."""
    fast_moves: bool = False
    """Whether programs are ready to move in milliseconds: workers see all Gpus that are served, and keep images of modules in the host's
    memory (docs/migration.md; docs/walls.md has what that costs)."""
    watchdog_s: int = BY_DEVICE
    """Work of a vGPU that keeps others waiting for so long, none of it ending, costs its program its worker; 0: never; -1: 10 s on a
    device that cannot preempt, where others get nothing meanwhile, 300 s on one that can."""
    cuda_library: str = "libcuda.so.1"
    """NVIDIA's driver library; without a slash it is the loader's to find."""
    softgpu_library: str = str(PACKAGE_ROOT / "build/softgpu/libcuda.so.1")
    """The software device's library."""
    guest_library: str = str(PACKAGE_ROOT / "build/guest/libcuda.so.1")
    """What programs under fairgv-run load."""
    walls: WallSettings = WALLS_BY_DEFAULT
    """What is around workers; in a file a table, `[walls]` (docs/walls.md)."""
    server_user: str = "nobody"
    """Whom the ivshmem servers of doorbells run as when the daemon is root."""
    coscheduling: str = "best"
    """How who waits for the GPU is boosted when its vGPU gets it: `best`, `off`, or one of the ways in boost_ways.py by its name."""
    trusted_guests: bool = False
    """Whether to serve on a device whose kernels reach all memory of their worker (docs/security.md): only where all guests are one's own."""
    libvirt_uri: str = "qemu:///system"
    """Which libvirt has the domains; on this machine."""
    shm_files: str = ""
    """Files of shared memory whose virtual machines are served as they come, without libvirt: a path whose last part may have wildcards, as
    /dev/shm/pve-shm-* of Proxmox; only files of the daemon's own user; empty: none (docs/hosts.md)."""
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

    file: str = ""
    """Where this was read from, and is read again; vGPUs that the daemon keeps stand in files of a folder beside it."""
    given: str = "{}"
    """What the command said, which wins over the file whenever that is read: the arguments of `load_config`, as JSON."""

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
            "devices": tuple(values["devices"]),
            "gpu": tuple(map(GpuSettings.from_json, values["gpu"])),
            "vgpu": Entitlement(**values["vgpu"]),
            "limits": Limits(**values["limits"]),
            "users": UserSettings(**values["users"]),
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
MEMORIES = ("span", "driver")
SPACES = ("off", "mps")
MAX_WARM_WORKERS = 64
MIN_REGION_BYTES = 16 << 20
MAX_REGION_BYTES = 64 << 30
MAX_PINNED_BYTES = 1 << 40
SIZES = {"region_bytes", "run_region_bytes", "pinned_bytes", "device_memory_bytes", "swap_bytes"}
_MILLISECONDS = {"slice_ms": "slice_ns"}
_NOT_IN_FILES = {"is_private", "goes_around", "file", "given"}
_LIBRARIES = ("cuda_library", "softgpu_library", "guest_library")
_KINDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}


@dataclass(frozen=True)
class Rule:
    """What a setting may be: words that go on after "must be", and whether a value is so."""

    text: str
    allows: Callable[[Any], bool]


def _one_of(names: Sequence[str]) -> Rule:
    return Rule(f"one of {', '.join(names)}", lambda value: value in names)


def _from_to(least: int, most: int, said: str = "") -> Rule:
    return Rule(said or f"from {least} to {most}", lambda value: least <= value <= most)


def _is_region(nr_bytes: int) -> bool:
    return MIN_REGION_BYTES <= nr_bytes <= MAX_REGION_BYTES and not nr_bytes & (nr_bytes - 1)


def _is_pattern(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return path.startswith("/") and name not in ("", "**") and not set("*?[") & set(folder)


_MOST = (1 << 32) - 1
_REGION = "a power of two from 16M to 64G"
RULES: Mapping[str, Rule] = {
    "device": _one_of(DEVICE_KINDS),
    "space": _one_of(SPACES),
    "policy": _one_of(sorted(POLICIES)),
    "slice_ns": Rule(
        "0, for the device's own, or from 1 to 60000: shorter slices cost more in switches than they give (docs/grants.md)",
        lambda slice_ns: slice_ns == 0 or MIN_SLICE_NS <= slice_ns <= MOST_SLICE_NS,
    ),
    "quota": _one_of(QUOTAS),
    "quota_max_ms": _from_to(1, 1000),
    "region_bytes": Rule(_REGION, _is_region),
    "run_region_bytes": Rule(f"0, or {_REGION}", lambda nr_bytes: nr_bytes == 0 or _is_region(nr_bytes)),
    "pinned_bytes": _from_to(0, MAX_PINNED_BYTES, "from 0 to 1024G"),
    "nr_warm_workers": _from_to(0, MAX_WARM_WORKERS),
    "slicing": _one_of(SLICING_MODES),
    "slicing_threshold_blocks": _from_to(0, _MOST),
    "slicing_least_blocks": _from_to(0, _MOST),
    "slicing_part_us": _from_to(0, _MOST),
    "preemption": _one_of(PREEMPTIONS),
    "memory": _one_of(MEMORIES),
    "device_memory_bytes": Rule(
        "0, for all there is, or from 64M to 1024T",
        lambda nr_bytes: nr_bytes == 0 or MIN_DEVICE_BYTES <= nr_bytes <= MOST_DEVICE_BYTES,
    ),
    "oversubscribe": _from_to(1, 64),
    "swap_bytes": _from_to(0, MOST_DEVICE_BYTES, "from 0, for a quarter of the host's, to 1024T"),
    "paging_cost": _from_to(1, 50),
    "balance": _one_of(BALANCING),
    "watchdog_s": _from_to(BY_DEVICE, _MOST, f"from 0, for never, to {_MOST}, or {BY_DEVICE} for the device's own"),
    "coscheduling": _one_of(COSCHEDULING),
    "shm_files": Rule(
        "a path from the root without wildcards in its folders", lambda path: not path or _is_pattern(path)
    ),
    "adopt": _one_of(ADOPTIONS),
    "metrics_file": Rule(
        "a path that ends in .prom, as node_exporter's textfile collector reads no other files",
        lambda path: not path or path.endswith(".prom"),
    ),
}
"""By field. One without a rule may be whatever is of its type; tables and `metrics` have rules of their own."""


def system_file(state_dir: Path | None) -> Path | None:
    """That of the system's daemon, if it is root's and has no other place; it need not be there."""
    return SYSTEM_FILE if os.geteuid() == 0 and state_dir is None else None


def load_config(path: Path | None, **overrides: object) -> Config:
    """The defaults, the file over them, then each override that is not None. Raises ConfigError naming file and key."""
    values: dict[str, object] = {}
    if path is not None and (path.exists() or path != SYSTEM_FILE):
        read = read_file(path)
        if read.wrong:
            raise ConfigError(f"{path}: {read.wrong[0]}")
        values.update(read.values)
    values.update({key: value for key, value in overrides.items() if value is not None})
    values["file"] = str(path.absolute()) if path is not None else ""
    config = Config(**values)  # type: ignore[arg-type]
    for wrong in _not_allowed(config):
        raise ConfigError(wrong)
    return _absolute(config)


def problems(path: Path) -> list[str]:
    """A sentence for each key of a file that is unknown or wrong. Raises ConfigError for what is no file of TOML."""
    read = read_file(path)
    return [*read.wrong, *_not_allowed(Config(**read.values))]  # type: ignore[arg-type]


def load_as_said(path: Path | None, excused_walls: Sequence[str] = (), **overrides: Any) -> Config:
    """As `load_config`, and what the command said is kept: `read_again` has it, too. `excused_walls`: those that may be missing."""
    said = {key: value for key, value in overrides.items() if value is not None}
    config = load_config(path, **said)
    given = {**said, "state_dir": str(config.state_dir), "excused_walls": list(excused_walls)}
    return dataclasses.replace(config, walls=config.walls.without(tuple(excused_walls)), given=json.dumps(given))


def read_again(config: Config) -> Config:
    """The same with what its file says now. Raises ConfigError."""
    if not config.file:
        raise ConfigError("this daemon was started without a file of settings: start it with --config FILE")
    given = json.loads(config.given)
    if "devices" in given:
        given["devices"] = tuple(given["devices"])
    again = load_as_said(Path(config.file), **{**given, "state_dir": config.state_dir})
    return dataclasses.replace(again, is_private=config.is_private, goes_around=config.goes_around)


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


@dataclass(frozen=True)
class FileRead:
    """A file: values by field, the keys that set them (`device`, `vgpu.weight`), and a sentence for each key that sets nothing."""

    values: Mapping[str, object]
    keys: frozenset[str]
    wrong: Sequence[str]


def read_file(path: Path) -> FileRead:
    """What a file says. Whether a value is allowed is left to RULES. Raises ConfigError for what is no file of TOML."""
    document = read_toml(path)
    values: dict[str, object] = {}
    keys: set[str] = set()
    wrong: list[str] = []
    for key, value in document.items():
        try:
            if key in _TABLES and isinstance(value, dict):
                values[key] = _TABLES[key].read_all(value, wrong)
                keys |= {f"{key}.{below}" for below in value}
            elif key == "gpu" and isinstance(value, dict):
                values[key] = gpus = read_gpus(value, wrong)
                keys |= {f"{key}.{table.name}.{below}" for table in gpus for below in table.written()}
            else:
                values[_MILLISECONDS.get(key, key)] = _read_key(key, value)
                keys.add(key)
        except ConfigError as error:
            wrong.append(str(error))
    return FileRead(values, frozenset(keys), wrong)


def keys_of_file() -> Sequence[str]:
    """Those outside tables, and the tables."""
    names = [field.name for field in dataclasses.fields(Config) if field.name not in _NOT_IN_FILES]
    in_file = {name: key for key, name in _MILLISECONDS.items()}
    return [in_file.get(name, name) for name in names]


def _read_key(key: str, value: object) -> object:
    if key not in (known := keys_of_file()):
        raise ConfigError(f"unknown key {key!r}; known are: {', '.join(sorted(known))}")
    if key in _TABLES or key == "gpu":
        raise ConfigError(f"{key} must be a table, not {value!r}")
    if key == "devices":
        return read_devices(value)
    if key in _MILLISECONDS:
        return milliseconds(value)
    if key in SIZES:
        return read_size(key, value)
    expected = next(field.type for field in dataclasses.fields(Config) if field.name == key)
    written = str if expected is Path else expected
    assert isinstance(written, type)
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, written) or isinstance(value, bool) != (expected is bool):  # a bool is an int, too
        allowed = RULES[key].text if key in RULES else _KINDS[expected]  # type: ignore[index]
        raise ConfigError(f"{key} must be {allowed}, not {value!r}")
    return Path(str(value)) if expected is Path else value


@dataclass(frozen=True)
class _Table:
    """One table of a file. `read` takes all of it, or one key alone, and raises ConfigError."""

    name: str
    unsaid: object
    known: frozenset[str]
    read: Callable[[dict[str, object]], object]
    read_one: Callable[[dict[str, object]], object] | None = None
    """One key alone, where what is allowed goes by others; None: `read`."""

    def read_all(self, table: dict[str, object], wrong: list[str]) -> object:
        """What it says, as far as it is right; a sentence for each key that is not comes to `wrong`."""
        right = {key: value for key, value in table.items() if self._is_right(key, value, wrong)}
        return self._read(right, wrong) or self.unsaid

    def _is_right(self, key: str, value: object, wrong: list[str]) -> bool:
        if key not in self.known:
            wrong.append(f"unknown key {key!r} in [{self.name}]; known are: {', '.join(sorted(self.known))}")
            return False
        return self._read({key: value}, wrong, self.read_one) is not None

    def _read(
        self,
        table: dict[str, object],
        wrong: list[str],
        read: Callable[[dict[str, object]], object] | None = None,
    ) -> object:
        try:
            return (read or self.read)(table)
        except ConfigError as error:
            wrong.append(f"[{self.name}] {error}")
            return None


_TABLES = {
    table.name: table
    for table in (
        _Table("vgpu", PLAIN, KEYS, lambda table: PLAIN.changed(read_changes(table)), read_changes),
        _Table("limits", ORDINARY, frozenset(field.name for field in dataclasses.fields(Limits)), read_limits),
        _Table("users", ORDINARY_USERS, USER_KEYS, UserSettings.from_table),
        _Table("walls", WALLS_BY_DEFAULT, WALL_KEYS, WallSettings.from_table),
    )
}


def _not_allowed(config: Config) -> Iterator[str]:
    """A sentence for each setting that is not as RULES say."""
    for name, rule in RULES.items():
        value = getattr(config, name)
        if rule.allows(value):
            continue
        key = next((key for key, field in _MILLISECONDS.items() if field == name), name)
        shown = value / 1e6 if key in _MILLISECONDS else value
        is_simulated = name == "policy" and value in SIMULATED
        yield where_simulated(value) if is_simulated else f"{key} must be {rule.text}, not {shown!r}"
    try:
        if config.metrics:
            read_metrics_address(config.metrics)
    except ConfigError as error:
        yield str(error)
    try:
        if config.web:
            read_web_address(config.web, has_token=bool(config.web_token_file))
    except ConfigError as error:
        yield str(error)


def check_region_bytes(region_bytes: int) -> None:
    """A region is a PCI BAR: a power of two; its page table takes memory in proportion. Raises ConfigError."""
    if not _is_region(region_bytes):
        raise ConfigError(f"a region's size must be {_REGION}, not {region_bytes} bytes")


def region_bytes_of_commands(config: Config) -> int:
    """What a command's region has when none is given."""
    half_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    largest_bytes = 1 << (half_bytes.bit_length() - 1)
    return config.run_region_bytes or min(max(largest_bytes, MIN_REGION_BYTES), MAX_REGION_BYTES)
