"""Who may use a daemon that root runs, and how much of it: a table `[users]` in the configuration.

Members of `group` may look and run programs on vGPUs of their own, within the limits here; members of `admin_group` may change what others
have, without them. Where neither group exists nothing of this counts: the socket is for root.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from backend_host.entitlement import MAX_WEIGHT, PARAMETERS, Entitlement, EntitlementError
from backend_host.errors import ConfigError

_GROUP = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_KEYS = {"memory_bytes": "quota_bytes", "request": "request"}
"""Read as the fields of an entitlement are."""
MAX_VGPUS = 64


@dataclass(frozen=True)
class UserSettings:
    """Of each user, all of whose vGPUs count together. Raises ConfigError."""

    group: str = "fairgv"
    """Its members may look, and run programs on vGPUs of their own."""
    admin_group: str = "fairgv-admin"
    """Its members may change what others have, without these limits."""
    vgpus: int = 4
    """How many a user may have at once."""
    weight: int = 0
    """Sum of the weights of a user's vGPUs; 0: that of [vgpu] for each that a user may have."""
    memory_bytes: int = 0
    """Sum of their memory quotas. One for which nothing is said gets what is left; 0: no limit."""
    request: float = 0.0
    """Sum of their requests, in percent of a GPU."""

    def __post_init__(self) -> None:
        for name in ("group", "admin_group"):
            value = getattr(self, name)
            if not isinstance(value, str) or _GROUP.fullmatch(value) is None:
                raise ConfigError(f"{name} must be the name of a group, not {value!r}")
        for name, most in (("vgpus", MAX_VGPUS), ("weight", MAX_VGPUS * MAX_WEIGHT)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
                raise ConfigError(f"{name} must be a whole number from 0 to {most}, not {value!r}")

    @classmethod
    def from_table(cls, table: Mapping[str, object]) -> Self:
        """From `[users]` of a file, in which a size may be a text. Raises ConfigError."""
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := table.keys() - known:
            raise ConfigError(f"unknown key {min(unknown)!r}; known are: {', '.join(sorted(known))}")
        values = dict(table)
        for key in _KEYS.keys() & values.keys():
            try:
                values[key] = PARAMETERS[_KEYS[key]].parse(values[key])
            except EntitlementError as error:
                raise EntitlementError(f"{key}: {error}") from None
        return cls(**values)  # type: ignore[arg-type]

    def most_weight(self, unsaid: Entitlement) -> int:
        """`unsaid`: what a vGPU has of which nothing is said."""
        return self.weight or self.vgpus * unsaid.weight


KEYS = frozenset(field.name for field in dataclasses.fields(UserSettings))
"""Of the table."""
ORDINARY = UserSettings()
"""What counts where nothing is said."""
