"""Which events of a device mean that it has failed, and which that it may have."""

from collections.abc import Mapping
from typing import Any

from backend_host.device.failure import UNAVAILABLE, Failure, Ward

ECC_UNCORRECTABLE = 214
FATAL_XIDS: Mapping[int, tuple[str, int]] = {
    46: ("the GPU stopped processing", UNAVAILABLE),
    48: ("uncorrectable ECC error", ECC_UNCORRECTABLE),
    62: ("its microcontroller halted", UNAVAILABLE),
    64: ("a row of its memory could not be remapped", ECC_UNCORRECTABLE),
    79: ("it has fallen off the bus", UNAVAILABLE),
    95: ("uncontained ECC error", ECC_UNCORRECTABLE),
    119: ("its system processor does not answer", UNAVAILABLE),
    120: ("error of its system processor", UNAVAILABLE),
    140: ("unrecovered ECC error", ECC_UNCORRECTABLE),
}
"""After which nothing runs on the device until it was reset, by NVIDIA's list (docs.nvidia.com/deploy/xid-errors). Others are the program's
own, as 13, 31 and 43, or were contained to it, as 94. An ECC error that NVML tells of by itself may be one that was contained, too: what comes
of it an Xid says, or a trial."""


def failure_of(event: Mapping[str, Any]) -> Failure | None:
    """What an event means for its device; None: that goes on."""
    if event.get("lost"):
        return Failure("NVML has lost it")
    if (fatal := FATAL_XIDS.get(event.get("xid", 0))) is not None:
        what, code = fatal
        return Failure(f"Xid {event['xid']}, {what}", code)
    return None


def suspicion_of(event: Mapping[str, Any]) -> str:
    """Why the device may have failed by an event, which a trial is to show; "": it has not by this one."""
    if event.get("ecc"):
        return "NVML tells of an uncorrectable ECC error"
    return "NVML knows it no more" if event.get("missing") else ""


def heed(event: Mapping[str, Any], ward: Ward) -> None:
    """Of the ward's device."""
    if (failure := failure_of(event)) is not None:
        ward.fail(failure)
    elif why := suspicion_of(event):
        ward.suspect(why)
