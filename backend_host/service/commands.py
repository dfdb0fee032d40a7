"""Commands of `fairgv-host` for a daemon that is a service: `reload` and `events`."""

import argparse
import contextlib
import datetime
import json
import time
from collections.abc import Callable
from typing import TypeAlias

from backend_host import output
from backend_host.hand_overs import NOBODY
from backend_host.ipc import Connection, Message
from backend_host.service.roles import user_called

PERIOD_S = 0.5
"""Between two questions that follow."""

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

    events = commands.add_parser(
        "events",
        help="what was changed and refused, by whom and when",
        description="Changes of vGPUs and of the configuration, and refusals, the oldest first. The daemon keeps some thousands in its "
        "state directory, so they survive its end.",
        epilog="example: fairgv-host events --follow (Ctrl-C ends it)",
    )
    events.add_argument("--follow", action="store_true", help="go on with each new one, until Ctrl-C")
    events.add_argument(
        "--json", action="store_true", help="an object a line, for programs (docs/json.md has the keys)"
    )
    events.set_defaults(run=lambda options: _events(connect(options), options))


def _reload(connection: Connection) -> int:
    with connection:
        output.say(connection.ask("reload")["text"])
    return 0


def _events(connection: Connection, options: argparse.Namespace) -> int:
    with connection, contextlib.suppress(KeyboardInterrupt):
        after = 0
        while True:
            records = connection.ask("events", after=after)["events"]
            for record in records:
                output.say(json.dumps(record) if options.json else _line(record), is_flushed=options.follow)
            if not records and not options.follow:
                break
            after = records[-1]["sequence"] if records else after
            if not records:
                time.sleep(PERIOD_S)
    return 0


def _line(record: Message) -> str:
    """Times are this machine's own."""
    at = datetime.datetime.fromisoformat(record["time"]).astimezone()
    text = f"{record['text']}{_changes(record)}"
    return f"{at:%Y-%m-%d %H:%M:%S}  {user_called(record['uid']):<12}  {record['event']:<8}  {record['vgpu'] or NOBODY:<14}  {text}"


def _changes(record: Message) -> str:
    """What a `set` gave, and what there was before; the text of a reload has that."""
    if (
        record["event"] != "set"
        or not isinstance(old := record["old"], dict)
        or not isinstance(new := record["new"], dict)
    ):
        return ""
    changed = (f"{key} {old.get(key, NOBODY)} -> {value}" for key, value in new.items() if old.get(key) != value)
    return f" ({', '.join(changed)})"
