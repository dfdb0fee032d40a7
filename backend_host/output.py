"""Standard output of `fairgv-host`: tables as wide as the terminal, whole lines where there is none, one sentence when it cannot be written.

Wrong when: a file fills up while something else writes to it, too. What was printed until then stays.
"""

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from backend_host.errors import FairGVError

if TYPE_CHECKING:
    from rich.console import RenderableType

_ANY_WIDTH = 100_000


class OutputError(FairGVError):
    """What a command had to say cannot be written."""


def begin() -> None:
    """What the terminal's encoding has no character for, as that of bars, is a question mark."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def say(text: str, *, is_flushed: bool = False) -> None:
    """A line, or several; `is_flushed`: at once."""
    with _writing():
        print(text, flush=is_flushed)


def finish() -> None:
    """Whatever was said is written now, or OutputError tells. Who has nothing to say may have standard output closed."""
    if sys.stdout is not None:
        with _writing():
            sys.stdout.flush()


def say_json(value: object) -> None:
    """For programs."""
    say(json.dumps(value, indent=2))


def show(what: "RenderableType", *, is_wide: bool = False) -> None:
    """For people. `is_wide`: no line is cut or folded, however narrow the terminal is; so it is where there is no terminal."""
    from rich.console import Console  # noqa: PLC0415 - which a daemon, and what speaks to programs, does without
    from rich.measure import Measurement  # noqa: PLC0415 - as above

    with _writing():
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


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    if sys.stdout is None:
        raise OutputError("cannot write to standard output: it is closed")
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon()
        raise OutputError(f"cannot write to standard output: {error.strerror}") from None


def abandon() -> None:
    """What is still to be written at the end of the process goes nowhere: it would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
