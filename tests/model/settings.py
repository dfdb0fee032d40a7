"""What is checked: settings in which no fault is, and what each adds to the others; and settings beyond what the protocol promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.model.engine import Setting

THREE, SIBLINGS, TWO = (0, 1, 2), (0, 1, 1), (0, 1)
"""The vGPU of each worker."""

BELLS = Setting(vgpu_of=TWO, is_timed=False, is_giving_checked=True)
"""Only bells wake, nobody dies, nobody gives up: no hand-over may need time, nor go to a vGPU of which nobody waits."""

TIME = Setting(vgpu_of=TWO, may=("nudges",))
"""Who sleeps wakes by itself, and nudges."""

ALL_ELSE = ("nudges", "cancels", "ends", "evictions", "daemon dies", "workers return")

SMALL: Mapping[str, Setting] = {
    "bells, three vGPUs": replace(BELLS, vgpu_of=THREE),
    "bells, two workers of one vGPU": replace(BELLS, vgpu_of=SIBLINGS),
    "bells, and workers that give up, end and come again": replace(
        BELLS, may=("cancels", "ends", "workers return"), is_giving_checked=False
    ),
    "two deaths, the daemon's may be one": replace(TIME, nr_deaths=2, may=("nudges", "daemon dies")),
    "a death, and all else": replace(TIME, nr_deaths=1, may=ALL_ELSE),
    "a death, three vGPUs, without nudges": replace(TIME, vgpu_of=THREE, may=(), nr_deaths=1),
    "a daemon that comes back to the page": replace(TIME, nr_deaths=2, may=("nudges", "daemon dies", "daemon returns")),
}
"""Continuous integration goes through these."""

LARGE: Mapping[str, Setting] = {
    "two deaths, and all else": replace(TIME, nr_deaths=2, may=ALL_ELSE),
    "a death, three vGPUs": replace(TIME, vgpu_of=THREE, nr_deaths=1),
    "a death, two workers of one vGPU": replace(TIME, vgpu_of=SIBLINGS, nr_deaths=1),
    "two deaths, the daemon's may be one, three vGPUs": replace(
        TIME, vgpu_of=THREE, nr_deaths=2, may=("nudges", "daemon dies")
    ),
    "two deaths, the daemon's may be one, two workers of one vGPU": replace(
        TIME, vgpu_of=SIBLINGS, nr_deaths=2, may=("nudges", "daemon dies")
    ),
}
"""They take a minute or two each, and a gigabyte. Three workers with evictions are too many: 110 million states were not all, none of them a
fault."""

BEYOND: Mapping[str, tuple[Setting, str]] = {
    "who gives up may be given the grant meanwhile": (
        replace(BELLS, may=("cancels",)),
        "the grant goes to a vGPU of which nobody waits",
    ),
    "only time mends the death of who handed on to one that died just then": (
        replace(TIME, nr_deaths=2, may=("workers return",)),
        "a worker waits for ever",
    ),
    "a daemon that came back to the page could not give out slots: a worker may still be repairing one": (
        replace(TIME, nr_deaths=2, may=("nudges", "daemon dies", "daemon returns", "workers return")),
        "a living worker's bit is gone",
    ),
}
"""What these find is as designed: a grant to nobody is taken back by whoever gave it, two deaths at once cost the others 2 ms, and a new daemon
has a page of its own."""
