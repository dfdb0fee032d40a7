"""What an operator may say of walls, `[walls]` in the configuration, and what the daemon says of them."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Self

from backend_host.errors import ConfigError
from backend_host.sizes import read_size

WALLS = ("user", "mount", "pid", "ipc", "net", "cgroup", "landlock", "filter")
"""The names of all walls, in the order in which they are told."""

_USERS = re.compile(r"(\d+)-(\d+)")
_MOST_UID = (1 << 32) - 2
_FIRST_UID = 1000
"""Lower ones belong to the system's services."""


def default_cache_dir() -> Path:
    """/var/cache/fairgv for root, else fairgv/tenants in the user's own cache folder. Raises ConfigError for a user without one."""
    if os.geteuid() == 0:
        return Path("/var/cache/fairgv")
    try:
        own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        raise ConfigError(
            "this user has no home: name a folder for compiled code by XDG_CACHE_HOME, or by cache_dir in [walls] of the configuration"
        ) from None
    return own / "fairgv" / "tenants"


@dataclass(frozen=True)
class WallSettings:
    """Checked when read. Sizes in bytes."""

    users: str = "2000000000-2000065535"
    """FIRST-LAST: user ids for tenants, one each, where the daemon is root. Nobody else may have them; the default lies beyond what
    distributions and systemd give out."""
    cache_dir: str = ""
    """Where compiled code is kept, a folder for each tenant; empty: /var/cache/fairgv of root, else fairgv/tenants in
    the user's cache folder."""
    cache_bytes: int = 1 << 30
    """Most of a tenant's compiled code: what it used longest ago goes."""
    memory_bytes: int = 4 << 30
    """What the workers of a vGPU may have together, beside what the region, its window and softgpu's device memory take."""
    processes: int = 1024
    """Processes and threads of a vGPU's workers, together."""
    allow_missing: tuple[str, ...] = ()
    """Walls without which the daemon starts all the same, where this host has them not: of user, mount, pid, ipc, net, cgroup, landlock,
    filter."""
    cache_sum_bytes: int = 16 << 30
    """Most of all tenants' compiled code together: what was used longest ago goes, but nobody falls below its even share by that."""
    cache_free_bytes: int = 1 << 30
    """So much room compiled code leaves on its file system, or a tenth of that where it is less."""

    @property
    def first_uid(self) -> int:
        """Of the range."""
        return int(self.users.partition("-")[0])

    @property
    def last_uid(self) -> int:
        """Of the range, included."""
        return int(self.users.partition("-")[2])

    @property
    def cache_path(self) -> Path:
        """Where compiled code is kept."""
        return Path(self.cache_dir).absolute() if self.cache_dir else default_cache_dir()

    @classmethod
    def from_table(cls, table: Mapping[str, object]) -> Self:
        """From `[walls]` of a file, whose keys are some of KEYS. Raises ConfigError."""
        values = dict(table)
        for key in SIZES.keys() & values.keys():
            values[SIZES[key]] = read_size(key, values.pop(key))
        if isinstance(values.get("allow_missing"), list):
            values["allow_missing"] = tuple(map(str, values["allow_missing"]))  # type: ignore[call-overload]
        return cls(**values).checked()  # type: ignore[arg-type]

    def checked(self) -> Self:
        """Itself. Raises ConfigError when a value makes no sense."""
        match = _USERS.fullmatch(str(self.users))
        if match is None or not _FIRST_UID <= int(match[1]) <= int(match[2]) <= _MOST_UID:
            raise ConfigError(f"users must be FIRST-LAST, two user ids from {_FIRST_UID}, not {self.users!r}")
        if not isinstance(self.cache_dir, str):
            raise ConfigError(f"cache_dir must be a path, not {self.cache_dir!r}")
        for name, field in SIZES.items():
            if not 0 < (nbytes := getattr(self, field)) < 1 << 50:
                raise ConfigError(f"{name} must be from 1 byte to 1024T, not {nbytes} bytes")
        if not isinstance(self.processes, int) or isinstance(self.processes, bool) or not 0 < self.processes < 1 << 22:
            raise ConfigError(f"processes must be from 1 to 4194303, not {self.processes!r}")
        if not isinstance(self.allow_missing, tuple):
            raise ConfigError(f"allow_missing must be a list, not {self.allow_missing!r}")
        for name in self.allow_missing:
            if name not in WALLS:
                raise ConfigError(f"allow_missing: there is no wall {name!r}; there are: {', '.join(WALLS)}")
        return self

    def without(self, names: tuple[str, ...]) -> Self:
        """These settings with more walls excused."""
        return replace(self, allow_missing=(*self.allow_missing, *names)).checked()


SIZES = {
    "memory": "memory_bytes",
    "cache": "cache_bytes",
    "cache_sum": "cache_sum_bytes",
    "cache_free": "cache_free_bytes",
}
"""Fields whose key in a file is another, in which a size may be a text."""

KEYS = frozenset({field.name for field in fields(WallSettings)} - set(SIZES.values()) | set(SIZES))

PLAIN = WallSettings()
"""What counts where nothing is said."""


@dataclass(frozen=True)
class Finding:
    """One wall; `reason` says why this host cannot have it, empty when it can."""

    wall: str
    reason: str = ""
    remedy: str = ""
