"""Screens of `top` as text, in the folder screens: `python -m tests.backend_host.top.snapshots` makes them anew. Look at the difference
before you commit it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from rich.color_triplet import ColorTriplet
from textual.pilot import Pilot

from backend_host.errors import DaemonNotRunningError, RefusedError
from tests.backend_host.top.looking import MadeUp, after, lines_of, press, view_of

SCREENS = Path(__file__).with_name("screens")
SIZES = ((80, 24), (120, 40))
NR_LOOKS = 41
HAND_OVERS = [
    {
        "sequence": nr,
        "at_ns": nr * 6_000_000,
        "from": f"vm{nr % 3}",
        "to": f"vm{(nr + 1) % 3}",
        "why": "slice",
        "phase": "in",
        "gap_ns": 7_000 * nr,
    }
    for nr in range(1, 40)
]


async def _vgpus(pilot: Pilot[None], daemon: MadeUp) -> None:
    await press(pilot, "space", "down")


async def _remarks(pilot: Pilot[None], daemon: MadeUp) -> None:
    daemon.remarks = {"late_ns": 250_000_000, "nr_expelled": 1, "expelled_for": "a record longer than the ring"}
    await press(pilot, "space")


async def _question(pilot: Pilot[None], daemon: MadeUp) -> None:
    await press(pilot, "down", "plus", "plus")


async def _refusal(pilot: Pilot[None], daemon: MadeUp) -> None:
    daemon.refusal = RefusedError("the vGPU vm2 belongs to another user; ask root to change it")
    await press(pilot, "plus", "y")


async def _no_daemon(pilot: Pilot[None], daemon: MadeUp) -> None:
    daemon.fault = DaemonNotRunningError(
        "no daemon listens on /run/fairgv/control.sock; start one with: fairgv-host start"
    )
    await press(pilot, "space")


async def _programs(pilot: Pilot[None], daemon: MadeUp) -> None:
    await press(pilot, "enter")


async def _hand_overs(pilot: Pilot[None], daemon: MadeUp) -> None:
    daemon.hand_overs = HAND_OVERS
    await press(pilot, "h")


async def _help(pilot: Pilot[None], daemon: MadeUp) -> None:
    await press(pilot, "question_mark")


async def _nothing(pilot: Pilot[None], daemon: MadeUp) -> None:
    daemon.names = ()
    await press(pilot, "space")


async def _waiting(pilot: Pilot[None], daemon: MadeUp) -> None:
    daemon.names = ()
    daemon.changes = {
        "waits_for": "3 programs are served by an earlier release of FairGV, which this one cannot take over: they go on, and new ones are "
        "served when those have ended"
    }
    await press(pilot, "space")


async def _many(pilot: Pilot[None], daemon: MadeUp) -> None:
    daemon.names = tuple(f"a-machine-of-{nr}" for nr in range(60))
    await press(pilot, "space", "space", "s", "end")


SCENES: Mapping[str, Callable[[Pilot[None], MadeUp], Awaitable[None]]] = {
    "vgpus": _vgpus,
    "remarks": _remarks,
    "question": _question,
    "refusal": _refusal,
    "no-daemon": _no_daemon,
    "programs": _programs,
    "hand-overs": _hand_overs,
    "help": _help,
    "nothing": _nothing,
    "waiting": _waiting,
    "many": _many,
}


def screen(scene: str, size: tuple[int, int]) -> tuple[Sequence[str], set[ColorTriplet]]:
    """Its lines, and the colours in it."""

    async def run() -> tuple[Sequence[str], set[ColorTriplet]]:
        daemon = MadeUp(NR_LOOKS - 1)
        app = view_of(daemon, *after(NR_LOOKS))
        async with app.run_test(size=size) as pilot:
            await press(pilot)
            await SCENES[scene](pilot, daemon)
            strips = app.screen._compositor.render_strips()
            styles = [segment.style for strip in strips for segment in strip if segment.style]
            colors = [color for style in styles for color in (style.color, style.bgcolor) if color]
            return lines_of(app), {color.get_truecolor() for color in colors if not color.is_default}

    return asyncio.run(run())


def path_of(scene: str, size: tuple[int, int]) -> Path:
    return SCREENS / f"{scene}-{size[0]}x{size[1]}.txt"


def main() -> None:
    """Writes all."""
    SCREENS.mkdir(exist_ok=True)
    for size in SIZES:
        for scene in SCENES:
            path_of(scene, size).write_text("\n".join(screen(scene, size)[0]) + "\n")


if __name__ == "__main__":
    main()
