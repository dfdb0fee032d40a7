"""Which lane of a warp has which elements of the matrices of mma, as the figures of the PTX manual give it for each shape."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Place = tuple[int, int]
_Layout = Callable[[int, int, int], Place]
"""From group (lane / 4), member (lane % 4) and number of the element to row and column."""


def _pairs_16(g: int, t: int, i: int) -> Place:
    return (g if i in (0, 1, 4, 5) else g + 8), t * 2 + (i & 1) + (8 if i >= 4 else 0)


def _singles_16(g: int, t: int, i: int) -> Place:
    return (g if i % 2 == 0 else g + 8), t + i // 2 * 4


A: dict[tuple[int, str], _Layout] = {
    (16, "m16n8k8"): lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    (16, "m16n8k16"): _pairs_16,
    (32, "m16n8k4"): lambda g, t, i: (g if i == 0 else g + 8, t),
    (32, "m16n8k8"): lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
    (64, "m8n8k4"): lambda g, t, i: (g, t),
    (64, "m16n8k4"): lambda g, t, i: (g if i == 0 else g + 8, t),
    (64, "m16n8k8"): lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
    (64, "m16n8k16"): _singles_16,
    (8, "m8n8k16"): lambda g, t, i: (g, t * 4 + i),
    (8, "m16n8k16"): lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)),
    (8, "m16n8k32"): lambda g, t, i: (g if i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (16 if i >= 8 else 0)),
    (4, "m8n8k32"): lambda g, t, i: (g, t * 8 + i),
    (4, "m16n8k32"): lambda g, t, i: (g if i < 8 else g + 8, t * 8 + (i & 7)),
    (4, "m16n8k64"): lambda g, t, i: (g if i < 8 or 16 <= i < 24 else g + 8, t * 8 + (i & 7) + (32 if i >= 16 else 0)),
    (1, "m8n8k128"): lambda g, t, i: (g, t * 32 + i),
    (1, "m16n8k128"): lambda g, t, i: (g if i < 32 else g + 8, t * 32 + (i & 31)),
    (1, "m16n8k256"): lambda g, t, i: (
        g if i < 32 or 64 <= i < 96 else g + 8,
        t * 32 + (i & 31) + (128 if i >= 64 else 0),
    ),
}
B: dict[tuple[int, str], _Layout] = {
    (16, "m16n8k8"): lambda g, t, i: (t * 2 + i, g),
    (16, "m16n8k16"): lambda g, t, i: (t * 2 + (i & 1) + (8 if i >= 2 else 0), g),
    (32, "m16n8k4"): lambda g, t, i: (t, g),
    (32, "m16n8k8"): lambda g, t, i: (t if i == 0 else t + 4, g),
    (64, "m8n8k4"): lambda g, t, i: (t, g),
    (64, "m16n8k4"): lambda g, t, i: (t, g),
    (64, "m16n8k8"): lambda g, t, i: (t + i * 4, g),
    (64, "m16n8k16"): lambda g, t, i: (t + i * 4, g),
    (8, "m8n8k16"): lambda g, t, i: (t * 4 + i, g),
    (8, "m16n8k16"): lambda g, t, i: (t * 4 + i, g),
    (8, "m16n8k32"): lambda g, t, i: (t * 4 + (i & 3) + (16 if i >= 4 else 0), g),
    (4, "m8n8k32"): lambda g, t, i: (t * 8 + i, g),
    (4, "m16n8k32"): lambda g, t, i: (t * 8 + i, g),
    (4, "m16n8k64"): lambda g, t, i: (t * 8 + (i & 7) + (32 if i >= 8 else 0), g),
    (1, "m8n8k128"): lambda g, t, i: (t * 32 + i, g),
    (1, "m16n8k128"): lambda g, t, i: (t * 32 + i, g),
    (1, "m16n8k256"): lambda g, t, i: (t * 32 + (i & 31) + (128 if i >= 32 else 0), g),
}


def _result(g: int, t: int, i: int) -> Place:
    return (g if i < 2 else g + 8), t * 2 + (i & 1)


def places(role: str, bits: int, shape: str, nr_elements: int) -> np.ndarray:
    """Row and column of each element of each lane: an array of 32 by nr_elements by 2."""
    layout = {"a": A, "b": B}[role][bits, shape] if role in ("a", "b") else _result
    return np.array([[layout(lane // 4, lane % 4, i) for i in range(nr_elements)] for lane in range(32)])
