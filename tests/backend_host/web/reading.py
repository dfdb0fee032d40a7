"""Reads what the page is told as the page does, by other means."""

import base64
import math
import struct
from typing import Any


def numbers(text: str, kind: str = "f") -> list[float | None]:
    """Of an array in base64; None where there is none."""
    data = base64.b64decode(text)
    values = struct.unpack(f"<{len(data) // struct.calcsize(kind)}{kind}", data)
    return [None if math.isnan(value) else value for value in values]


def times(told: dict[str, Any]) -> list[float | None]:
    return numbers(told["times"], "d")


def series(told: dict[str, Any], key: str, name: str, kind: str = "vgpus") -> list[float | None]:
    """What the history has of one vGPU or Gpu."""
    [found] = [each for each in told[kind] if each["key"] == key]
    return numbers(found["values"][name])
