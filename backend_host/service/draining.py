"""`fairgv-host drain` and `undrain`: a Gpu that vGPUs leave, one after the other, and to which none comes."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from backend_host import output
from backend_host.arguments import name_argument
from backend_host.errors import RefusedError
from backend_host.ipc import Connection, Message
from backend_host.service.commands import Connect
from backend_host.service.migrating import INTERRUPTED, done_text, follow, interrupts, not_done_text


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", connect: Connect) -> None:
    """Among the commands of fairgv-host; `connect` reaches the daemon."""
    drain = commands.add_parser(
        "drain",
        help="move all vGPUs away from a Gpu, and have none come",
        description="Has no vGPU come to a Gpu, for this daemon and those that follow, until fairgv-host undrain; and moves those away that "
        "are there, the one of the least pause first. Says what stays, and why. After Ctrl-C the Gpu stays drained (docs/migration.md).",
        epilog="Exit status: 0 nothing is left there, 1 something stays, 130 interrupted. Example: fairgv-host drain 0",
    )
    undrain = commands.add_parser(
        "undrain",
        help="have vGPUs come to a drained Gpu again",
        description="Has vGPUs come to a Gpu again that was drained, also those that found no place meanwhile: of a Gpu that failed, or of "
        "vgpus.d. Those that left stay where they are.",
        epilog="Example: fairgv-host undrain 0",
    )
    for parser in (drain, undrain):
        parser.add_argument(
            "gpu",
            type=name_argument,
            metavar="GPU",
            help="its number, or the beginning of its UUID: fairgv-host devices",
        )
    drain.add_argument("--json", action="store_true", help="what moved and what stays, for programs (docs/json.md)")
    drain.set_defaults(run=partial(_drain, connect))
    undrain.set_defaults(run=partial(_undrain, connect))


def _drain(connect: Connect, options: argparse.Namespace) -> int:
    with connect(options) as connection, interrupts() as is_interrupted:
        draining = Draining(connection, options.gpu, is_interrupted, is_quiet=options.json)
        while not is_interrupted() and draining.move_one():
            pass
    if options.json:
        output.say_json(draining.told())
    if is_interrupted():
        text = f"interrupted: GPU {draining.number} stays drained, and fairgv-host drain {draining.number} goes on"
        print(f"fairgv-host: {text}", file=sys.stderr)
        return INTERRUPTED
    return int(bool(draining.stay))


class Draining:
    """Of one Gpu, by its name."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        is_interrupted: Callable[[], bool] = lambda: False,
        *,
        is_quiet: bool = False,
    ) -> None:
        """`is_quiet`: says nothing."""
        self._connection = connection
        self._is_interrupted = is_interrupted
        self._is_told = False
        self._is_quiet = is_quiet
        self._failed: dict[str, str] = {}
        self._moved: list[Message] = []
        self.stay: dict[str, str] = {}
        """Why, by name: of those that are there still."""
        answer = connection.ask("drain", gpu=name)
        self.number: int = answer["number"]
        self._say(answer["text"])

    def move_one(self) -> bool:
        """Moves the one that is next, to the end, or waits for one that comes still, or says what stays. Whether there may be more."""
        found = self._connection.ask("leaving", gpu=str(self.number))
        there = {each["name"] for each in [*found["plans"], *found["stay"]]}
        self.stay = {each["name"]: each["why"] for each in found["stay"]}
        self.stay |= {name: why for name, why in self._failed.items() if name in there}
        plan = next((plan for plan in found["plans"] if plan["name"] not in self._failed), None)
        if plan is None and (coming := found.get("coming")):  # a daemon of an earlier release tells nothing of that
            follow(coming[0], self._connection, self._look)
            return True
        if plan is None:
            for name, why in sorted(self.stay.items()):
                self._say(f"{name} stays: {why}")
            return False
        name = plan["name"]
        try:
            self._connection.ask("migrate", name=name, to=str(plan["to"]))
        except RefusedError as error:
            self._failed[name] = str(error)
            return True
        migration = follow(name, self._connection, self._look)
        if migration["stage"] == "done":
            self._moved.append(migration)
            self._say(done_text(migration))
        else:
            self._failed[name] = migration["reason"]
            if migration["stage"] == "failed":
                self._say(not_done_text(migration))
        return True

    def _look(self) -> None:
        if self._is_interrupted() and not self._is_told:
            self._is_told = True
            print("fairgv-host: waits for the end of the move that is under way", file=sys.stderr)

    def told(self) -> dict[str, Any]:
        """For programs."""
        return {
            "gpu": self.number,
            "moved": self._moved,
            "stay": [{"name": name, "why": why} for name, why in sorted(self.stay.items())],
        }

    def _say(self, text: str) -> None:
        if not self._is_quiet:
            output.say(text, is_flushed=True)


def _undrain(connect: Connect, options: argparse.Namespace) -> int:
    with connect(options) as connection:
        output.say(connection.ask("undrain", gpu=options.gpu)["text"])
    return 0
