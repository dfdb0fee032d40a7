"""`fairgv-host space`: who uses which Gpu at the same time as whom, and what comes of it."""

import argparse
from collections.abc import Callable

from backend_host import output
from backend_host.ipc import Connection, Message


def add_commands(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    connect: Callable[[argparse.Namespace], Connection],
) -> None:
    """Adds it."""
    parser = commands.add_parser(
        "space",
        help="vGPUs that use a Gpu at the same time: who is critical, what is split how, and why",
        description="For each space: who is critical and who best effort, the split, how much slower rounds of the critical one are beside its "
        "target, and what the search for the split does (docs/space.md).",
    )
    parser.add_argument("--json", action="store_true", help="for programs; docs/json.md has the keys")

    def run(options: argparse.Namespace) -> int:
        with connect(options) as connection:
            spaces: list[Message] = connection.ask("status").get("spaces", [])
        if options.json:
            output.say_json(spaces)
        else:
            from backend_host.space.drawing import shown  # noqa: PLC0415 - with a library that only people need

            output.show(shown(spaces))
        return 0

    parser.set_defaults(run=run)
