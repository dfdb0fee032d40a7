"""The last hour of each vGPU and Gpu: a point every 5 s. It is what the page draws, and what a report has.

Numbers are kept as 32-bit floats in arrays, NaN where there is none, and are handed out as they lie, in base64: as JSON, an hour of 100 vGPUs
would take the interpreter a fifth of a second.

It is bounded: `NR_POINTS` points of `NR_SERIES` vGPUs, 3 MB. Those that have gone stay until the hour is over, unless others want their place.

Wrong when: more than `NR_SERIES` vGPUs are there at once. The page then tells how many it leaves out; what all use of a Gpu is still whole.
"""

import base64
import math
import sys
import threading
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

PERIOD_S = 5
NR_POINTS = 3600 // PERIOD_S
NR_SERIES = 256
"""vGPUs: as many as a Gpu has at most."""

Values = Mapping[str, float | None]
"""By what they are of; None: there is none."""


@dataclass(frozen=True)
class Sample:
    """One vGPU or Gpu at a moment. `key` tells it from others, `facts` describe it, `values` are kept."""

    key: str
    facts: Mapping[str, Any]
    values: Values


@dataclass
class _Series:
    facts: Mapping[str, Any]
    seen: int
    """The number of the last point that it has."""
    values: dict[str, "array[float]"] = field(default_factory=dict)

    def extend(self, values: Values, nr_points: int) -> None:
        """To so many points; those that are missing before the last one are empty."""
        for name in self.values.keys() | values.keys():
            kept = self.values.setdefault(name, array("f"))
            kept.extend([math.nan] * (nr_points - 1 - len(kept)))
            value = values.get(name)
            kept.append(math.nan if value is None else value)

    def drop_first(self) -> None:
        for kept in self.values.values():
            del kept[0]

    def told(self, key: str) -> dict[str, Any]:
        values = {name: packed(kept) for name, kept in self.values.items()}
        return {"key": key, "facts": self.facts, "seen": self.seen, "values": values}


class History:
    """Points of Gpus and vGPUs, the oldest first. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times_ms = array("d")
        self._number = 0
        self._gpus: dict[str, _Series] = {}
        self._vgpus: dict[str, _Series] = {}
        self._nr_left_out = 0

    @property
    def number(self) -> int:
        """Of the last point; the first has 1, and 0 is none."""
        return self._number

    def note(self, at_ms: float, gpus: Iterable[Sample], vgpus: Iterable[Sample]) -> int:
        """Adds a point, `at_ms` later than the one before, in ms since 1970; its number."""
        with self._lock:
            self._number += 1
            self._times_ms.append(at_ms)
            is_full = len(self._times_ms) > NR_POINTS
            if is_full:
                del self._times_ms[0]
            for series, samples in ((self._gpus, gpus), (self._vgpus, vgpus)):
                self._extend(series, list(samples), is_full)
            return self._number

    def told(self) -> dict[str, Any]:
        """All of it, for JSON; arrays are little-endian and in base64."""
        with self._lock:
            return {
                "number": self._number,
                "period_s": PERIOD_S,
                "times": packed(self._times_ms),
                "gpus": [each.told(key) for key, each in self._gpus.items()],
                "vgpus": [each.told(key) for key, each in self._vgpus.items()],
                "nr_left_out": self._nr_left_out,
            }

    def _extend(self, series: dict[str, _Series], samples: list[Sample], is_full: bool) -> None:
        if is_full:
            for each in series.values():
                each.drop_first()
        new = [sample for sample in samples if sample.key not in series]
        for sample in samples:
            if (kept := series.get(sample.key)) is not None:
                kept.facts, kept.seen = sample.facts, self._number
        nr_taken = self._make_room(series, len(new))
        self._nr_left_out = len(new) - nr_taken
        series.update((sample.key, _Series(sample.facts, self._number)) for sample in new[:nr_taken])
        values = {sample.key: sample.values for sample in samples}
        for key, kept in series.items():
            kept.extend(values.get(key, {}), len(self._times_ms))

    def _make_room(self, series: dict[str, _Series], nr_new: int) -> int:
        """Forgets those that have gone, the longest gone first: all whose hour is over, others for who is new; for how many there is room."""
        gone = sorted((each.seen, key) for key, each in series.items() if each.seen < self._number)
        for seen, key in gone:
            is_over = seen <= self._number - NR_POINTS
            if is_over or len(series) + nr_new > NR_SERIES:
                del series[key]
        return max(0, min(nr_new, NR_SERIES - len(series)))


def packed(numbers: "array[float]") -> str:
    """Little-endian, in base64."""
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return base64.b64encode(numbers).decode()
