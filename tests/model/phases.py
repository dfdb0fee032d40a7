"""A worker's phases: which the tables know, and which the model sees.

`WORKER` is the first table of docs/grants.md, "A worker towards the grant", as data. A finer one, the worker's own say, is compared in the same
way once its phases are told by these four (`told_by`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

Change = tuple[str, str]

WORKER: frozenset[Change] = frozenset(
    {
        ("out", "waiting"),
        ("out", "in"),
        ("waiting", "in"),
        ("waiting", "out"),
        ("in", "leaving"),
        ("in", "out"),
        ("leaving", "waiting"),
        ("leaving", "out"),
    }
)

AFTER_EVICTION: frozenset[Change] = frozenset({("leaving", "in"), ("in", "waiting")})
"""An evicted worker has not left yet when its vGPU is given the grant again: it is in, or waits although it need not."""


@dataclass(frozen=True)
class Differences:
    """`unknown` were seen and are not in the table, `unseen` are in the table alone."""

    unknown: frozenset[Change]
    unseen: frozenset[Change]


def differences(table: Collection[Change], seen: Collection[Change]) -> Differences:
    return Differences(frozenset(seen) - frozenset(table), frozenset(table) - frozenset(seen))


def told_by(table: Iterable[Change], phase_of: Mapping[str, str]) -> frozenset[Change]:
    """A table of finer phases, told by coarser ones: what stays within one of those is no change."""
    changes = ((phase_of[before], phase_of[after]) for before, after in table)
    return frozenset((before, after) for before, after in changes if before != after)
