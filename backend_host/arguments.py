"""Paths and names as command lines have them: nothing, as of a variable that is not set, is none."""

import argparse
from pathlib import Path


def path_argument(text: str) -> Path:
    """A path; nothing is not the folder where the command runs."""
    if not text:
        raise argparse.ArgumentTypeError("a path, and not nothing")
    return Path(text)


def name_argument(text: str) -> str:
    """Of a vGPU, a domain, a user or a Gpu."""
    if not text:
        raise argparse.ArgumentTypeError("a name, and not nothing")
    return text


def take_state_dir(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Behind each of these commands, too: before it is where help has it."""
    for command in commands.choices.values():
        command.add_argument("--state-dir", type=path_argument, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
