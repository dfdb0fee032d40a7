"""What a device says of itself, as data."""

from dataclasses import dataclass, fields, replace
from typing import Any

_MOST = (1 << 63) - 1


@dataclass(frozen=True)
class Figures:
    """Of one device; None: it does not say, or nobody can ask it."""

    power_mw: int | None = None
    energy_mj: int | None = None
    """Since its driver was loaded."""
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    nr_ecc_errors: int | None = None
    """Uncorrectable ones since its driver was loaded."""
    nr_xids: int = 0
    """Since the daemon started."""
    last_xid: int | None = None

    def after(self, said: object) -> "Figures":
        """With what the device says now in place of what it said. What makes no sense is not known."""
        known = said if isinstance(said, dict) else {}
        measured: dict[str, Any] = {name: _number(known.get(name)) for name in MEASURED}
        return replace(self, **measured)

    def with_xid(self, xid: int) -> "Figures":
        """One more."""
        return replace(self, nr_xids=self.nr_xids + 1, last_xid=xid)


UNKNOWN = Figures()
MEASURED = tuple(field.name for field in fields(Figures) if field.name not in ("nr_xids", "last_xid"))


def _number(value: Any) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= _MOST else None
