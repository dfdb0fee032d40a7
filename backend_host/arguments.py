"""Paths as command lines have them."""

import argparse
from pathlib import Path


def path_argument(text: str) -> Path:
    """A path; nothing, as of a variable that is not set, is not the folder where the command runs."""
    if not text:
        raise argparse.ArgumentTypeError("a path, and not nothing")
    return Path(text)
