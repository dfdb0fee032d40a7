"""`fairgv-host suspend` and `resume`: they ask, and show how far it is until it is done."""

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

from backend_host import output
from backend_host.arguments import name_argument
from backend_host.contexts import OFF, ON
from backend_host.errors import FairGVError
from backend_host.ipc import Connection, Message
from backend_host.service.commands import Connect
from backend_host.service.events import UNCHANGED
from backend_host.sizes import format_programs, format_size

Command: TypeAlias = Callable[[argparse.Namespace, Connection], int]

LOOK_S = 0.05
STILL_S = 10.0
"""Nothing moved for so long: nothing does, for now."""
CONTEXTS_S = 120.0
"""Contexts are on their way, which is no matter of bytes: the daemon has come to an end by then."""
INTERRUPTED = 130
_WHY = {
    "not": "it goes on leaving",
    "for_work": "its work on the GPU does not end",
    "shared": "it shares memory with other programs",
    "for_capture": "it captures a graph",
    "for_host": "the host has no memory for it now",
}
_STAYS = ("shared", "for_capture", "for_host")


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", connect: Connect) -> None:
    """Among the commands of fairgv-host; `connect` reaches the daemon."""
    for name, run, summary, text in (
        (
            "suspend",
            suspend,
            "bring memory and contexts of an idle vGPU off the device",
            "Brings the memory that an idle vGPU's programs allocated into the host's, and then their contexts, where the driver does that. A "
            "program comes back with its next call, at the same addresses; all come back with: fairgv-host resume NAME (docs/memory.md).",
        ),
        (
            "resume",
            resume,
            "bring memory and contexts of a suspended vGPU back",
            "Brings back what `fairgv-host suspend` brought off the device, ahead of the programs' next calls.",
        ),
    ):
        parser = commands.add_parser(name, help=summary, description=text, epilog=f"Example: fairgv-host {name} web")
        parser.add_argument("name", type=name_argument, metavar="NAME", help="of the vGPU, as fairgv-host list has it")
        parser.add_argument("--json", action="store_true", help="the programs, for programs (docs/json.md)")
        parser.set_defaults(run=partial(_run, run, connect))


def _run(command: Command, connect: Connect, options: argparse.Namespace) -> int:
    with connect(options) as connection:
        return command(options, connection)


def suspend(options: argparse.Namespace, connection: Connection) -> int:
    """Returns the exit status: 1 where memory of a program stays, or all of them called meanwhile."""
    name = options.name
    answer = connection.ask("suspend", name=name)
    try:
        programs = _follow(name, connection, "leaves", _has_left)
    except KeyboardInterrupt:
        return _interrupted(f"{name} is suspended, and its memory goes on leaving; fairgv-host resume {name} undoes it")
    out = [each for each in programs if each["is_suspended"] and not _stays(each)]
    status = int(not out or any(map(_stays, programs)))
    if options.json:
        output.say_json(programs)
        return status
    if out:
        moved = format_size(sum(each["linear_bytes"] - each["resident_bytes"] for each in out))
        asleep = [each for each in out if each["contexts"]["where"] == OFF]
        contexts = f", and the contexts of {format_programs(len(asleep))}" if asleep else ""
        already = " already" if answer.get(UNCHANGED) else ""
        output.say(
            f"{name} is suspended{already}: {moved} of {format_programs(len(out))} left the device{contexts}. "
            f"A program comes back with its next call, and all do with: fairgv-host resume {name}"
        )
    else:
        output.say(f"no memory of {name} left the device")
    for each in programs:
        if not each["is_suspended"]:
            output.say(f"{_called(each)} called meanwhile, and is back")
        elif _stays(each):
            output.say(
                f"{_called(each)} keeps {format_size(each['resident_bytes'])} on the device: {_WHY[each['keeps']]}"
            )
        elif each["contexts"]["where"] == ON:
            output.say(
                f"{_called(each)} keeps its contexts on the device: {each['contexts']['why'] or 'they go on leaving'}"
            )
    return status


def resume(options: argparse.Namespace, connection: Connection) -> int:
    """Returns the exit status: 1 where the device has no room."""
    name = options.name
    answer = connection.ask("resume", name=name)
    try:
        programs = _follow(name, connection, "comes back", _is_back)
    except KeyboardInterrupt:
        return _interrupted(f"{name} is resumed, and its memory goes on coming back")
    if options.json:
        output.say_json(programs)
        return int(not all(map(_is_back, programs)))
    waiting = [each for each in programs if each["contexts"]["where"] == OFF]
    if waiting:
        why = waiting[0]["contexts"]["why"] or "they go on coming back"
        raise FairGVError(
            f"{name} is resumed, but the contexts of {format_programs(len(waiting))} are off the device still: {why}"
        )
    out = sum(each["linear_bytes"] - each["resident_bytes"] for each in programs)
    if out > 0:
        raise FairGVError(
            f"{name} is resumed, but {format_size(out)} are off the device still: it has no room for them now. They come when it has"
        )
    was_suspended = not answer.get(UNCHANGED)
    output.say(f"{name} is on the device with all of its memory" if was_suspended else answer["text"])
    return 0


def _has_left(program: Message) -> bool:
    is_out = program["resident_bytes"] == 0 and not program["contexts"]["is_moving"]
    return not program["is_suspended"] or is_out or program["keeps"] in _STAYS


def _is_back(program: Message) -> bool:
    return bool(program["resident_bytes"] >= program["linear_bytes"] and program["contexts"]["where"] == ON)


def _is_on_its_way(program: Message) -> bool:
    """Its contexts are, and nothing is in their way."""
    return bool(program["contexts"]["is_moving"] and not program["contexts"]["why"])


def _stays(program: Message) -> bool:
    return bool(program["is_suspended"] and program["resident_bytes"] > 0)


def _called(program: Message) -> str:
    return f"{program['program']} (worker {program['worker_pid']})"


def _interrupted(text: str) -> int:
    output.say(text)
    return INTERRUPTED


def _follow(name: str, connection: Connection, what: str, is_done: Callable[[Message], bool]) -> list[Message]:
    """Until all programs are done, or nothing has moved for a while. What they are then."""
    with _bar(f"{name}: memory {what}") as show:
        moved_at, last = time.monotonic(), -1
        while True:
            programs: list[Message] = connection.ask("suspension", name=name)["programs"]
            resident = sum(each["resident_bytes"] for each in programs)
            all_bytes = sum(each["linear_bytes"] for each in programs)
            show(all_bytes - resident if is_done is _has_left else resident, all_bytes)
            if resident != last:
                moved_at, last = time.monotonic(), resident
            still_s = CONTEXTS_S if any(map(_is_on_its_way, programs)) else STILL_S
            if all(map(is_done, programs)) or time.monotonic() - moved_at > still_s:
                return programs
            time.sleep(LOOK_S)


@contextlib.contextmanager
def _bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """Shows how many bytes are done, where there is somebody to look."""
    if not output.is_watched():
        yield lambda done, of: None
        return
    from rich.console import Console  # noqa: PLC0415 - for people alone
    from rich.progress import (  # noqa: PLC0415 - as above
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), DownloadColumn(True), TimeElapsedColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(text, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)
