"""Compares what two devices read from the same textures: two outputs of `textures --values`.

For each kind of read: how many values there are, how many differ in any bit, and the largest difference. Exits 1 when a difference is larger
than the bound, or when the outputs are not of the same reads.
"""

import argparse
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VALUE = re.compile(r"^(?P<kind>.+?) (?P<place>\S+ \S+ \S+ -?\d+): (?P<value>\S+)$")


@dataclass
class Kind:
    """One kind of read, over all its places."""

    nr_values: int = 0
    nr_different: int = 0
    largest: float = 0.0


def values(text: str) -> Iterator[tuple[str, str, float]]:
    """(kind, place, value) of each line that is a value."""
    for line in text.splitlines():
        found = VALUE.match(line)
        if found:
            yield found["kind"], found["place"], float.fromhex(found["value"])


def compare(one: str, other: str) -> dict[str, Kind]:
    """By kind. ValueError when the outputs are not of the same reads."""
    kinds: dict[str, Kind] = {}
    for (kind, place, value), (other_kind, other_place, other_value) in zip(values(one), values(other), strict=True):
        if (kind, place) != (other_kind, other_place):
            raise ValueError(f"{kind} {place} stands beside {other_kind} {other_place}")
        found = kinds.setdefault(kind, Kind())
        found.nr_values += 1
        if value != other_value and not (math.isnan(value) and math.isnan(other_value)):
            found.nr_different += 1
            found.largest = max(found.largest, abs(value - other_value))
    return kinds


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("one", type=Path)
    parser.add_argument("other", type=Path)
    parser.add_argument("--bound", type=float, default=2e-5, help="the largest difference that is taken")
    arguments = parser.parse_args()
    kinds = compare(arguments.one.read_text(), arguments.other.read_text())
    for name, kind in kinds.items():
        print(f"{name:<36} {kind.nr_different:4} of {kind.nr_values:4} differ, by at most {kind.largest:.3g}")
    return 0 if kinds and all(kind.largest <= arguments.bound for kind in kinds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
