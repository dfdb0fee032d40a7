"""How a measurement was made, for the page of results."""

import shlex
import sys
from pathlib import Path


def command_line(module: str, output: Path | None) -> str:
    """This process's command as a person would repeat it: without where it writes its JSON."""
    words = [word for word in sys.argv[1:] if word not in ("--json", str(output))]
    return shlex.join(["python", "-m", module, *words])
