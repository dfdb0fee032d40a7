"""`fairgv-host migrate`: it asks, shows how far the vGPU is until it is done, and aborts at Ctrl-C while that can be."""

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from backend_host import output
from backend_host.arguments import name_argument
from backend_host.errors import FairGVError, RefusedError
from backend_host.ipc import Connection, Message
from backend_host.move.words import AUTO, MOVERS, UNDER_WAY
from backend_host.service.commands import Connect
from backend_host.sizes import format_programs, format_size, format_time

LOOK_S = 0.05
INTERRUPTED = 130
_STAGES = {
    "preparing": "makes ready",
    "leaving": "leaves GPU {from}",
    "changing": "changes its Gpu",
    "returning": "comes onto GPU {to}",
}


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", connect: Connect) -> None:
    """Among the commands of fairgv-host; `connect` reaches the daemon."""
    migrate = commands.add_parser(
        "migrate",
        help="move a vGPU to another Gpu while its programs run",
        description="Moves a vGPU with all of its programs to another Gpu of this host. They stand still for a moment, and go on there with "
        "their memory at the same addresses. Ctrl-C brings them back until the moment of change (docs/migration.md).",
        epilog="Exit status: 0 it is there, 1 it stays where it was, 130 interrupted. Example: fairgv-host migrate web --to 1",
    )
    migrate.add_argument("name", type=name_argument, metavar="NAME", help="of the vGPU, as fairgv-host list has it")
    migrate.add_argument(
        "--to",
        type=name_argument,
        required=True,
        metavar="GPU",
        help="its number, or the beginning of its UUID: fairgv-host devices",
    )
    migrate.add_argument("--mover", choices=MOVERS, default=AUTO, help="how (default auto: the best that there is)")
    migrate.add_argument("--dry-run", action="store_true", help="say what it would take, and move nothing")
    migrate.add_argument(
        "--json", action="store_true", help="the plan, or what came of it, for programs (docs/json.md)"
    )
    migrate.set_defaults(run=partial(_run, connect))


def _run(connect: Connect, options: argparse.Namespace) -> int:
    with connect(options) as connection:
        return migrate(options, connection)


def migrate(options: argparse.Namespace, connection: Connection) -> int:
    """Returns the exit status."""
    said = {"name": options.name, "to": options.to, "mover": options.mover}
    if options.dry_run:
        plan = connection.ask("plan", **said)["plan"]
        if options.json:
            output.say_json(plan)
        else:
            output.say(f"{plan['name']} would move {plan_text(plan)}")
        return 0
    with interrupts() as is_interrupted:
        plan = connection.ask("migrate", **said)["plan"]
        if not options.json:
            output.say(f"{plan['name']} moves {plan_text(plan)}", is_flushed=True)
        aborting = Aborting(options.name, connection)

        def look() -> None:
            if is_interrupted():
                aborting()

        migration = follow(options.name, connection, look)
    if options.json:
        output.say_json(migration)
    else:
        if migration["plan"]["mover"] != plan["mover"]:
            output.say(f"{plan['name']} went on by {plan_text(migration['plan']).partition(' by ')[2]}")
        if migration["stage"] == "done":
            output.say(done_text(migration))
    if migration["stage"] == "done":
        return 0
    if aborting.is_done and migration["stage"] == "aborted":
        print(f"fairgv-host: {plan['name']} stays on GPU {plan['from']}, as it was: interrupted", file=sys.stderr)
        return INTERRUPTED
    if not options.json:
        raise FairGVError(not_done_text(migration))
    return 1


class Aborting:
    """Aborts a move, once; says so where it is too late."""

    def __init__(self, name: str, connection: Connection) -> None:
        self._name, self._connection = name, connection
        self._is_asked = False
        self.is_done = False
        """The daemon has it come back."""

    def __call__(self) -> None:
        if self._is_asked:
            return
        self._is_asked = True
        try:
            self._connection.ask("abort", name=self._name)
            self.is_done = True
        except RefusedError as error:
            print(f"fairgv-host: too late to abort, it goes on to its end: {error}", file=sys.stderr)


def follow(name: str, connection: Connection, look: Callable[[], object] = lambda: None) -> Message:
    """Until the move is over; what came of it. `look` is called now and then."""
    with _bar() as show:
        while True:
            migration: Message = connection.ask("migration", name=name)["migration"]
            if migration["stage"] not in UNDER_WAY:
                return migration
            show(migration)
            look()
            time.sleep(LOOK_S)


def plan_text(plan: Message) -> str:
    """Behind "moves" or "would move"."""
    way = f"from GPU {plan['from']} to GPU {plan['to']}"
    if not plan["nr_programs"]:
        return f"{way}: it has no program"
    times = f"{format_time(plan['duration_ns'])}, of which {format_time(plan['pause_ns'])} of pause"
    return "\n".join([f"{way} by {plan['mover']}: {_programs(plan)}", f"planned: {times}", *_no_replay(plan)])


def _no_replay(plan: Message) -> list[str]:
    """A daemon of an earlier release tells nothing of that."""
    return [f"not by replay: {why}" for why in plan.get("no_replay", ())]


def done_text(migration: Message) -> str:
    """Of one that is done."""
    plan = migration["plan"]
    there = f"{plan['name']} is on GPU {plan['to']}"
    if not plan["nr_programs"] or migration["pause_ns"] is None:
        return there
    return f"{there}: its programs stood still for {format_time(migration['pause_ns'])}"


def not_done_text(migration: Message) -> str:
    """Of one that is not."""
    plan = migration["plan"]
    if migration["stage"] == "failed":
        return f"the move of {plan['name']} to GPU {plan['to']} failed: {migration['reason']}"
    return f"{plan['name']} stays on GPU {plan['from']}: {migration['reason']}"


def _programs(plan: Message) -> str:
    return f"{format_programs(plan['nr_programs'])} with {format_size(plan['memory_bytes'])}"


@contextlib.contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Until the end of the block the first Ctrl-C is told by what this gives, and ends nothing; the next one ends the command."""
    nr = 0

    def hear(number: int, frame: object) -> None:
        nonlocal nr
        nr += 1
        if nr > 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield lambda: nr > 0
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[Message], None]]:
    """Shows how far a move is, where there is somebody to look."""
    if not output.is_watched():
        yield lambda migration: None
        return
    from rich.console import Console  # noqa: PLC0415 - for people alone
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - as above

    columns = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[nr_bytes]}"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None, nr_bytes="")

        def show(migration: Message) -> None:
            plan, moved = migration["plan"], migration["moved_bytes"]
            memory = plan["memory_bytes"]
            progress.update(
                task,
                description=f"{plan['name']} {_STAGES[migration['stage']].format(**plan)}",
                completed=moved,
                total=memory or None,
                nr_bytes=f"{format_size(moved)} of {format_size(memory)}" if memory else "",
            )

        yield show
