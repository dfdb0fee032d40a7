"""The phases of a worker and their transitions, as backend_host/worker/turn/phase.h has them: a table and a picture for docs/grants.md.

Wrong when: a text in phase.h contains a quote or a parenthesis that its X-macro does not read as C does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PHASE_H = Path(__file__).parent / "worker/turn/phase.h"
PAGE = Path(__file__).parents[1] / "docs/grants.md"
BEGIN, END = "<!-- phases: made by python -m backend_host.generate -->", "<!-- phases: end -->"

_PHASE = re.compile(r'X\((\w+), "([^"]+)", FGW_(\w+), FGW_WORK_(\w+), "([^"]+)"\)')
_TRANSITION = re.compile(r'X\((\w+), (\w+), "([^"]+)"\)')
_STANDS = {"STANDS_OUT": "none", "WAITS": "`waiting`", "USES": "`users`"}
_WORKS = {
    "NONE": "none",
    "ON": "on the device, charged as it goes",
    "PAID": "on the device, paid for",
    "OFF": "off the device",
}


class PhasesError(Exception):
    """phase.h, or the page that its table goes into, does not look as expected."""


@dataclass(frozen=True)
class Phase:
    name: str
    word: str
    stand: str
    work: str
    meaning: str


@dataclass(frozen=True)
class Transition:
    """By the names of phases."""

    source: str
    target: str
    reason: str


@dataclass(frozen=True)
class Machine:
    phases: tuple[Phase, ...]
    transitions: tuple[Transition, ...]

    def word(self, name: str) -> str:
        return next(phase.word for phase in self.phases if phase.name == name)


def read(text: str) -> Machine:
    """From the text of phase.h."""
    text = text.replace("\\\n", "\n")
    phases = tuple(Phase(*found) for found in _PHASE.findall(text))
    transitions = tuple(Transition(*found) for found in _TRANSITION.findall(text))
    names = {phase.name for phase in phases}
    strange = {name for arrow in transitions for name in (arrow.source, arrow.target)} - names
    if not phases or not transitions or strange:
        raise PhasesError(f"{len(phases)} phases, {len(transitions)} transitions; of no phase: {sorted(strange)}")
    return Machine(phases, transitions)


def table(machine: Machine) -> Iterator[str]:
    """Lines of Markdown."""
    dark = '<source media="(prefers-color-scheme: dark)" srcset="pictures/phases-dark.svg">'
    alt = "The phases of a worker in a grid, by its bit in the page and where its work is, and an arrow for each transition"
    yield from (BEGIN, "", f'<picture>{dark}<img alt="{alt}" src="pictures/phases-light.svg"></picture>', "")
    yield from ("| phase | bit | its work | the worker |", "|---|---|---|---|")
    for phase in machine.phases:
        yield f"| **{phase.word}** | {_STANDS[phase.stand]} | {_WORKS[phase.work]} | {phase.meaning} |"
    yield from ("", "| from | to | when |", "|---|---|---|")
    for arrow in machine.transitions:
        yield f"| {machine.word(arrow.source)} | {machine.word(arrow.target)} | {arrow.reason} |"
    yield from ("", END)


def page(text: str, machine: Machine) -> str:
    """The page's text with the table in its place."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise PhasesError(f"{PAGE.name} has no place for the table")
    return before + "\n".join(table(machine)) + after


@dataclass(frozen=True)
class Theme:
    """Colours of the page, of texts, of frames, and of arrows that begin in a phase of each stand."""

    page: str
    ink: str
    faint: str
    arrows: Mapping[str, str]


THEMES = {
    "light": Theme("#ffffff", "#1f2328", "#8c959f", {"STANDS_OUT": "#0969da", "WAITS": "#bc4c00", "USES": "#1a7f37"}),
    "dark": Theme("#0d1117", "#e6edf3", "#6e7681", {"STANDS_OUT": "#58a6ff", "WAITS": "#f0883e", "USES": "#3fb950"}),
}
_PLACES = {
    "OUT": (110, 110), "WAITING": (350, 110), "READY": (620, 110), "IDLE": (890, 110),
    "BESIDE": (110, 330), "BESIDE_WAITING": (350, 330),
    "RUNNING": (620, 230), "DRAINING": (620, 390), "STOPPING": (890, 310),
    "TAIL": (110, 480), "TAIL_WAITING": (350, 480),
    "OFF_OUT": (110, 610), "OFF_WAITING": (350, 610), "OFF_USER": (890, 610),
}  # fmt: skip
"""Middles of the boxes: columns are stands, rows are where the work is."""
_HEADS = {
    (110, 24): "neither waits nor has its turn",
    (350, 24): "waits for its turn",
    (755, 24): "has its turn, or is leaving it",
}
_WIDTH, _HEIGHT = 1010, 680
_BOX = (134, 38)
_BULGE, _BULGE_MOST = 0.22, 85.0
"""How far an arrow is drawn to its side, by its length, and at most: so those there and back are two."""


def _border(middle: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Where a line from the middle of a box leaves it."""
    dx, dy = towards[0] - middle[0], towards[1] - middle[1]
    least = min((half / abs(way) for half, way in ((_BOX[0] / 2 + 3, dx), (_BOX[1] / 2 + 3, dy)) if way), default=0.0)
    return middle[0] + dx * least, middle[1] + dy * least


def _arrow(arrow: Transition, stand: str, theme: Theme) -> str:
    source, target = _PLACES[arrow.source], _PLACES[arrow.target]
    dx, dy = target[0] - source[0], target[1] - source[1]
    bulge = min(_BULGE, _BULGE_MOST / math.hypot(dx, dy))
    side = ((source[0] + target[0]) / 2 - dy * bulge, (source[1] + target[1]) / 2 + dx * bulge)
    (x1, y1), (x2, y2) = _border(source, side), _border(target, side)
    path = f"M{x1:.0f} {y1:.0f}Q{side[0]:.0f} {side[1]:.0f} {x2:.0f} {y2:.0f}"
    colour = theme.arrows[stand]
    length = math.hypot(x2 - side[0], y2 - side[1]) or 1.0
    ux, uy = (x2 - side[0]) / length, (y2 - side[1]) / length
    head = f"M{x2:.1f} {y2:.1f}l{-8 * ux - 4 * uy:.1f} {-8 * uy + 4 * ux:.1f}l{8 * uy:.1f} {-8 * ux:.1f}z"
    return (
        f'<g><title>{arrow.reason}</title><path d="{path}" fill="none" stroke="{colour}" stroke-width="1.3"/>'
        f'<path d="{head}" fill="{colour}"/></g>'
    )


def picture(machine: Machine, theme: Theme) -> str:
    """As SVG. Pointing at an arrow shows its reason."""
    stands = {phase.name: phase.stand for phase in machine.phases}
    missing = stands.keys() ^ _PLACES.keys()
    if missing:
        raise PhasesError(f"the picture has no place for, or one too many: {sorted(missing)}")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="14">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="{theme.page}"/>',
    ]
    for x in (230, 480):
        lines.append(f'<path d="M{x} 15V{_HEIGHT - 15}" stroke="{theme.faint}" stroke-dasharray="2 6"/>')
    for (x, y), text in _HEADS.items():
        lines.append(f'<text x="{x}" y="{y}" text-anchor="middle" font-style="italic" fill="{theme.ink}">{text}</text>')
    lines += (_arrow(arrow, stands[arrow.source], theme) for arrow in machine.transitions)
    for phase in machine.phases:
        x, y = _PLACES[phase.name]
        lines.append(
            f'<g><title>{phase.meaning}</title><rect x="{x - _BOX[0] / 2:.0f}" y="{y - _BOX[1] / 2:.0f}" width="{_BOX[0]}" '
            f'height="{_BOX[1]}" rx="8" fill="{theme.page}" stroke="{theme.faint}"/>'
            f'<text x="{x}" y="{y + 5}" text-anchor="middle" fill="{theme.ink}">{phase.word}</text></g>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


def texts() -> dict[str, str]:
    """Path from the root of the source tree -> text."""
    machine = read(PHASE_H.read_text())
    made = {f"docs/pictures/phases-{name}.svg": picture(machine, theme) for name, theme in THEMES.items()}
    return {**made, "docs/grants.md": page(PAGE.read_text(), machine)}
