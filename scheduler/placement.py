"""On which device a new vGPU goes: where it fits, to the one that is used least.

It fits where its memory quota, its request and a place are left. Quotas are compared with quotas: who has none may come wherever the rest fits,
and keeps nobody out. Of the devices where it fits it takes the one of least demand. While the demand of one of them is not known, weights
decide instead, as a weight and a demand do not compare.

Good when: programs go on as they began. Bad when: a program is not what it was, or many end on one device. Then vGPUs move (balance.py).
Wrong when: a quota is taken for what is used. A vGPU that may use 40 GiB and uses one keeps out others all the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

PARTS_OF_PERCENT = 10
"""Requests have one decimal, and floats cannot hold it: they are compared in tenths."""


class Known(NamedTuple):
    """What somebody who watches a device knows of it, besides what is granted on it."""

    demand: float | None = None
    """As in `Candidate`."""
    out: str = ""


class What(Enum):
    """What a device may lack."""

    MEMORY = "memory"
    """Bytes."""
    REQUEST = "request"
    """Percent of the device."""
    PLACE = "place"


@dataclass(frozen=True)
class Candidate:
    """One device as it is now, without the new vGPU."""

    number: int
    demand: float | None
    """GPU time that its vGPUs want in a second: burst over burst and pauses, a mean of the last minute, all together; above 1 they want more
    than there is. None: not known yet."""
    weight: int
    """Of its vGPUs, together."""
    memory_left: int | None = None
    """Bytes that no quota of its vGPUs covers; None: quotas are not counted there."""
    request_left: float = 100.0
    """Percent."""
    places_left: int = 1
    out: str = ""
    """Why it takes nobody, drained or failed for example."""


@dataclass(frozen=True)
class Wish:
    """What a new vGPU is to have. Who insists on a device offers that one alone."""

    quota: int = 0
    """Bytes; 0: none."""
    request: float = 0.0
    """Percent; 0: none."""


@dataclass(frozen=True)
class Lack:
    """There is less than is wanted: bytes, percent or places."""

    what: What
    left: float
    wanted: float


@dataclass(frozen=True)
class Refusal:
    """Why a device does not take a vGPU: it is out, or lacks something."""

    out: str = ""
    lacks: tuple[Lack, ...] = ()


class NoDeviceFitsError(Exception):
    """No device takes the vGPU. `refusals`: why, by number."""

    def __init__(self, refusals: Mapping[int, Refusal]) -> None:
        super().__init__("no device takes the vGPU")
        self.refusals = refusals


def fits(candidate: Candidate, wish: Wish) -> Refusal | None:
    """None, or all that keeps the vGPU from this device."""
    if candidate.out:
        return Refusal(out=candidate.out)
    lacks = []
    if candidate.memory_left is not None and wish.quota > max(0, candidate.memory_left):
        lacks.append(Lack(What.MEMORY, max(0, candidate.memory_left), wish.quota))
    if wish.request and _parts(wish.request) > _parts(candidate.request_left):
        lacks.append(Lack(What.REQUEST, max(0.0, candidate.request_left), wish.request))
    if candidate.places_left < 1:
        lacks.append(Lack(What.PLACE, 0, 1))
    return Refusal(lacks=tuple(lacks)) if lacks else None


def choose(candidates: Sequence[Candidate], wish: Wish) -> int:
    """The number of the vGPU's device; of equals the one of less weight, then of least number. NoDeviceFitsError says what each lacks."""
    refusals = {each.number: refusal for each in candidates if (refusal := fits(each, wish)) is not None}
    able = [each for each in candidates if each.number not in refusals]
    if not able:
        raise NoDeviceFitsError(refusals)
    if any(each.demand is None for each in able):
        return min(able, key=lambda each: (each.weight, each.number)).number
    return min(able, key=lambda each: (each.demand, each.weight, each.number)).number


def _parts(percent: float) -> int:
    return round(percent * PARTS_OF_PERCENT)


def demands(of: Mapping[int, Sequence[float | None]]) -> dict[int, float | None]:
    """Of each device, from those of the vGPUs on it: one of which nothing is known yet counts as much as the others of the host do in the mean.
    None for a device that has such vGPUs while nothing is known of any."""
    known = [demand for each in of.values() for demand in each if demand is not None]
    mean = sum(known) / len(known) if known else None
    return {number: _sum([mean if demand is None else demand for demand in each]) for number, each in of.items()}


def _sum(all_demands: Sequence[float | None]) -> float | None:
    found = [demand for demand in all_demands if demand is not None]
    return sum(found) if len(found) == len(all_demands) else None
