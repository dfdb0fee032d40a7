"""How a measurement was made, for the page of results."""

import shlex
import sys
from pathlib import Path


def command_line(module: str, *outputs: Path | None) -> str:
    """This process's command as a person would repeat it: without where it writes its results."""
    written = {"--json", "--plot", *map(str, outputs)}
    words = [word for word in sys.argv[1:] if word not in written]
    return shlex.join(["python", "-m", module, *words])
