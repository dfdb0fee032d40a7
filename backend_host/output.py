"""Standard output of `fairgv-host`: tables as wide as the terminal, whole lines where there is none. Errors are those of `writing`."""

import io
import json
import sys
from typing import TYPE_CHECKING

from scheduler.command_line import writing

if TYPE_CHECKING:
    from rich.console import RenderableType

_ANY_WIDTH = 100_000


def begin() -> None:
    """What the terminal's encoding has no character for, as that of bars, is a question mark."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def say(text: str, *, is_flushed: bool = False) -> None:
    """A line, or several; `is_flushed`: at once."""
    with writing():
        print(text, flush=is_flushed)


def say_json(value: object) -> None:
    """For programs."""
    say(json.dumps(value, indent=2))


def show(what: "RenderableType", *, is_wide: bool = False) -> None:
    """For people. `is_wide`: no line is cut or folded, however narrow the terminal is; so it is where there is no terminal."""
    from rich.console import Console  # noqa: PLC0415 - which a daemon, and what speaks to programs, does without
    from rich.measure import Measurement  # noqa: PLC0415 - as above

    with writing():
        console = Console()
        if is_terminal() and not is_wide:
            console.print(what)
            return
        options = console.options.update(max_width=_ANY_WIDTH)
        console = Console(width=max(console.width, Measurement.get(console, options, what).maximum))
        with console.capture() as printed:
            console.print(what)
        print("\n".join(line.rstrip() for line in printed.get().splitlines()))


def is_terminal() -> bool:
    """Whether standard output is one."""
    return sys.stdout is not None and sys.stdout.isatty()


def is_watched() -> bool:
    """Whether somebody looks at standard error while a command goes on."""
    return sys.stderr is not None and sys.stderr.isatty()
