"""Completions for shells: commands, options, their choices, and files where a file is asked for."""

import argparse
from collections.abc import Mapping
from pathlib import Path

import shtab

from backend_host.arguments import path_argument
from manual.commands import Command, below, options

SHELLS = {"bash": "{}", "zsh": "_{}", "fish": "{}.fish"}
"""With the file's name, as each shell looks for it."""
_FOLDERS = ("--state-dir", "--output")


def completion(command: Command, shell: str) -> str:
    """The file for one shell."""
    parser = command.parser()
    for each in below(parser):
        for action in options(each):
            if isinstance(action.choices, Mapping):  # which shtab takes for commands
                action.choices = list(action.choices)
            if action.type in (Path, path_argument) or action.nargs == argparse.REMAINDER:
                is_folder = any(name in _FOLDERS for name in action.option_strings)
                action.complete = shtab.DIRECTORY if is_folder else shtab.FILE  # type: ignore[attr-defined]
    return shtab.complete(parser, shell=shell).rstrip("\n") + "\n"
