"""`top` among the commands of fairgv-host: the view on a terminal, one screen as text, or the status as JSON."""

import argparse
import math
import os
import sys
from collections.abc import Callable

from backend_host import output
from backend_host.errors import FairGVError
from backend_host.ipc import Connection
from backend_host.top.asking import Asker

_MOST_SECONDS = 86_400


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    """`top`."""
    parser = commands.add_parser(
        "top",
        help="what each vGPU gets and is entitled to, live",
        description="The Gpus, and the vGPUs with what each got since the look before beside what it is entitled to, its last minute, "
        "its waits for a turn, its memory. ? lists the keys, q and Ctrl-C end it.",
    )
    parser.add_argument("--seconds", type=_seconds, default=1.0, help="between two looks (default 1)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--once", action="store_true", help="one screen as text, of two looks; for scripts, and where no terminal is"
    )
    form.add_argument("--json", action="store_true", help="one status for programs, as status --json")
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"a number of seconds, more than 0 and at most {_MOST_SECONDS}, not {text!r}")
    return seconds


def run(options: argparse.Namespace, connect: Callable[[], Connection]) -> int:
    """To its end; the exit status. FairGVError where no daemon is to begin with, or no terminal."""
    asker = Asker(connect)
    if options.json:
        output.say_json(asker.ask("status"))
        return 0
    if options.once:
        from backend_host.top.once import show_once  # noqa: PLC0415 - with a library that only people need

        show_once(asker, options.seconds)
        return 0
    _check_terminal()
    from backend_host.top.app import Top  # noqa: PLC0415 - Textual, which only the view needs
    from backend_host.top.figures import Looks  # noqa: PLC0415 - as above

    looks = Looks()
    figures = looks.add(asker.ask("status"))

    view = Top(asker, looks, figures, options.seconds)
    view.run()
    return view.return_code or 0


def _check_terminal() -> None:
    """Textual reads standard input, and draws on standard error."""
    for stream, name in ((sys.stdin, "input"), (sys.stdout, "output"), (sys.stderr, "error")):
        if stream is None or not stream.isatty():
            raise FairGVError(f"top draws on a terminal, and standard {name} is none; see: fairgv-host top --once")
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        raise FairGVError(
            "top cannot draw on a terminal of no kind: set TERM to what it is, or see: fairgv-host top --once"
        )
