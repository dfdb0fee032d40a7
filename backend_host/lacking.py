"""Why no device takes a vGPU, device by device, in a sentence with numbers."""

from collections.abc import Mapping

from backend_host.sizes import format_size
from scheduler.placement import Lack, Refusal, What


def refusal_text(refusals: Mapping[int, Refusal], nr_places: int) -> str:
    """Of devices by their numbers; `nr_places`: vGPUs that each may have."""
    return "; ".join(f"GPU {number} {_told(refusal, nr_places)}" for number, refusal in sorted(refusals.items()))


def _told(refusal: Refusal, nr_places: int) -> str:
    if refusal.out:
        return f"is {refusal.out}"
    return "has " + " and ".join(_lack(lack, nr_places) for lack in refusal.lacks)


def _lack(lack: Lack, nr_places: int) -> str:
    match lack.what:
        case What.MEMORY:
            left, wanted = format_size(int(lack.left)), format_size(int(lack.wanted))
            return f"{left} left for memory quotas, where {wanted} are asked for (--memory)"
        case What.REQUEST:
            return f"{lack.left:g} % left for requests, where {lack.wanted:g} % are asked for (--request)"
        case What.PLACE:
            return f"no place left: all {nr_places} vGPUs of the Gpu are taken"
