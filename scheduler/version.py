"""`--version` of every command. It stands here as this is the lowest package that has a command: all others may import it.

What is printed is the version of the package that is installed, which pyproject.toml has.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any


def version_text(program: str) -> str:
    """`fairgv-host 0.1.0`."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - takes longer than most commands

    try:
        return f"{program} {version('fairgv')}"
    except PackageNotFoundError:
        return f"{program} of a source tree that is not installed; make setup does that"


class VersionAction(argparse.Action):
    """Prints it and ends the command."""

    def __init__(self, option_strings: Sequence[str], dest: str, **more: Any) -> None:
        super().__init__(
            option_strings, dest=argparse.SUPPRESS, default=argparse.SUPPRESS, nargs=0, help="print it, and end"
        )

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """See argparse."""
        parser._print_message(f"{version_text(parser.prog)}\n", sys.stdout)
        parser.exit()
