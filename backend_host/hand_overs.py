"""Hand-overs of the GPU for people and programs: what the control page keeps of the last 256, with names, and `fairgv-host grants`."""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from backend_host.arguments import name_argument
from backend_host.ipc import Message
from backend_host.output import say
from backend_host.sizes import format_time

if TYPE_CHECKING:  # the command does without the page
    from backend_host.device.control import ControlPage
    from backend_host.device.readings import HandOver

PERIOD_S = 0.1
"""Between two questions that follow: at slices of a millisecond 100 hand-overs, fewer than are kept."""
MAX_WAITS = 10
MAX_SEQUENCE = (1 << 32) - 1
NOBODY = "-"
HEAD = f"{'time':>14}  {'from':<14}  {'to':<14}  {'why':<8}  {'phase':<8}  {'gap':>8}"
EXAMPLE = "example: fairgv-host grants --follow (Ctrl-C ends it)"


def answer(page: "ControlPage", names: Mapping[int, str], after: int) -> Message:
    """What the daemon tells of one page: hand-overs after a sequence number, oldest first, and the newest number there is."""
    sequence = page.holder().sequence
    return {"sequence": sequence, "hand_overs": [_told(each, names) for each in page.hand_overs(after)]}


def lines(page: "ControlPage", nr: int) -> str:
    """The newest hand-overs for a log."""
    names = {
        vgpu: page.called(vgpu)
        for each in page.hand_overs()
        for vgpu in (each.from_vgpu, each.to_vgpu)
        if vgpu is not None
    }
    return "\n".join(line(_told(each, names)) for each in page.hand_overs()[-nr:])


def _told(each: "HandOver", names: Mapping[int, str]) -> Message:
    def name(vgpu: int | None) -> str | None:
        return None if vgpu is None else names.get(vgpu, "gone")

    return {
        "sequence": each.sequence,
        "at_ns": each.at_ns,
        "from": name(each.from_vgpu),
        "to": name(each.to_vgpu),
        "why": each.why.name.lower(),
        "phase": each.phase,
        "gap_ns": each.gap_ns,
    }


def line(told: Message) -> str:
    """One of an answer, for people, below HEAD."""
    seconds = f"{told['at_ns'] / 1e9:.6f}"
    gap = NOBODY if told["gap_ns"] is None else format_time(told["gap_ns"])
    names = f"{_name(told['from']):<14}  {_name(told['to']):<14}"
    return f"{seconds:>14}  {names}  {told['why']:<8}  {told['phase'] or NOBODY:<8}  {gap:>8}"


def _name(name: str | None) -> str:
    """Names are others' choice: what is no printable character is not sent to a terminal."""
    text = NOBODY if name is None else "".join(letter if letter.isprintable() else "?" for letter in name)
    return text if len(text) <= 14 else text[:13] + "~"


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    """`grants` among the commands of fairgv-host."""
    parser = commands.add_parser(
        "grants",
        help="who had the GPU, who got it, why: the last 256 hand-overs",
        description="The last hand-overs of the GPU, oldest first: when (CLOCK_MONOTONIC, in seconds), from whom, to whom, why, in "
        "which phase the worker was that ended the turn, and how long it took until the new holder came for it.",
        epilog=EXAMPLE,
    )
    parser.add_argument(
        "--gpu",
        type=name_argument,
        metavar="G",
        help="of which Gpu, by its number or UUID; where there is one it is that",
    )
    parser.add_argument("--follow", action="store_true", help="go on with each new one, until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="an object a line, for programs; times in ns")
    return parser


def show(ask: Callable[[int], Message], *, is_followed: bool, is_json: bool) -> None:
    """Prints what `ask` answers: of hand-overs after a sequence number. Followed, it ends with KeyboardInterrupt."""
    first = ask(0)  # what is refused is so before anything is printed
    if not is_json:
        say(HEAD, is_flushed=is_followed)
    for told in _followed(ask, first) if is_followed else first["hand_overs"]:
        say(json.dumps(told) if is_json else line(told), is_flushed=is_followed)


def _followed(ask: Callable[[int], Message], first: Message) -> Iterator[Message]:
    """Beginning with the answer `first`. The newest is told once its holder has come, so that its gap is known; what lacks the one before it
    waits for that a while."""
    after, nr_waits, answer = 0, 0, first
    while True:
        told: list[Message] = answer["hand_overs"]
        if told and told[-1]["to"] is not None and told[-1]["gap_ns"] is None:
            told.pop()
        whole = _without_hole(told, after or (told[0]["sequence"] - 1 if told else 0))
        is_late = len(whole) < len(told)
        nr_waits = nr_waits + 1 if is_late else 0
        if is_late and nr_waits <= MAX_WAITS:
            told = whole
        yield from told
        after = told[-1]["sequence"] if told else after
        time.sleep(PERIOD_S)
        answer = ask(after)


def _without_hole(told: list[Message], after: int) -> list[Message]:
    """Up to the first that is missing: whoever handed over writes afterwards, and may have lost its CPU."""
    for place, each in enumerate(told):
        if each["sequence"] != (after + place + 1) & MAX_SEQUENCE:
            return told[:place]
    return told
