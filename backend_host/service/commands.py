"""Commands of `fairgv-host` for a daemon that is a service: `reload`."""

import argparse
from collections.abc import Callable
from typing import TypeAlias

from backend_host import output
from backend_host.ipc import Connection

Connect: TypeAlias = Callable[[argparse.Namespace], Connection]


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", connect: Connect) -> None:
    """Among the commands of fairgv-host; `connect` reaches the daemon."""
    reload = commands.add_parser(
        "reload",
        help="read the configuration again",
        description="Reads the configuration again, and the files of vGPUs beside it. It is checked whole, then used whole; what cannot change "
        "while the daemon runs is refused by name, and nothing changes then. Says what changed.",
    )
    reload.set_defaults(run=lambda options: _reload(connect(options)))


def _reload(connection: Connection) -> int:
    with connection:
        output.say(connection.ask("reload")["text"])
    return 0
