"""What a critical vGPU is to be served by: how much slower a round of it may get, or how long it may take."""

import re
from dataclasses import dataclass
from typing import Self

QOS = "a slowdown above 1 and at most 100, as 1.2, or a time from 10us to 100s, as 3ms or 500us"
_SLOWDOWN = re.compile(r"[0-9]{1,3}(\.[0-9]{1,4})?")
_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(us|ms|s)")
_UNITS = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_LEAST_NS, _MOST_NS = 10_000, 100_000_000_000
_MOST_SLOWDOWN = 100.0


@dataclass(frozen=True)
class Target:
    """One of both."""

    slowdown: float | None = None
    """Over what a round takes with all of the GPU."""
    time_ns: int | None = None
    """Of a round."""

    @classmethod
    def of(cls, qos: str) -> Self:
        """What an entitlement says. Raises ValueError."""
        if (time := _TIME.fullmatch(qos)) is not None:
            time_ns = round(float(time[1]) * _UNITS[time[2]])
            if _LEAST_NS <= time_ns <= _MOST_NS:
                return cls(time_ns=time_ns)
        elif _SLOWDOWN.fullmatch(qos) is not None and 1 < float(qos) <= _MOST_SLOWDOWN:
            return cls(slowdown=float(qos))
        raise ValueError(qos)


def read_qos(written: object) -> str:
    """As an entitlement has it: `1.2`, `3ms`; nothing for none. Raises ValueError."""
    qos = str(written).strip()
    if not qos:
        return ""
    target = Target.of(qos)
    return f"{target.slowdown:g}" if target.slowdown is not None else qos
