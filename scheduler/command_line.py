"""Standard output of the commands: one sentence when it cannot be written, and none when its reader has gone (`| head`). And their parsers.

It stands here as VersionAction does. Wrong when: a file fills up while something else writes to it, too. What was printed until then stays.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

EXIT_UNWRITTEN = 1


class OutputError(Exception):
    """What a command had to say cannot be written."""


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Around whatever prints. OutputError where that is not possible; BrokenPipeError, whose catcher calls `abandon`, where nobody reads."""
    if sys.stdout is None:
        raise OutputError("cannot write to standard output: it is closed")
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon()
        raise OutputError(f"cannot write to standard output: {error.strerror}") from None


def finish() -> None:
    """Whatever was said is written now; errors are those of `writing`. Who has nothing to say may have standard output closed."""
    if sys.stdout is not None:
        with writing():
            sys.stdout.flush()


def abandon() -> None:
    """What is still to be written at the end of the process goes nowhere: it would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Parser(argparse.ArgumentParser):
    """One that tells when its help cannot be written, where that of argparse ends as if it was; and of a word that a command does not know,
    how that command is used, where argparse has the usage of what is around it."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """See argparse; there is nothing unknown."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is None or file is not sys.stdout:
            super()._print_message(message, file)
            return
        try:
            with writing():
                print(message, end="", flush=True)
        except BrokenPipeError:
            abandon()
            self.exit(EXIT_UNWRITTEN)
        except OutputError as error:
            self.exit(EXIT_UNWRITTEN, f"{self.prog.split()[0]}: {error}\n")
