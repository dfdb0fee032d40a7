"""What a measurement leaves: one JSON object that says where, when and how, and has what was measured as a list of records.

It is written anew after each record, so that nothing measured is lost, however the command ends. Tables, plots and the page of results are
made of it alone.
"""

import errno
import json
import os
import platform
import shlex
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backend_host.whole_file import whole
from benchmarks.steal import most_stolen

Record = dict[str, Any]
Document = dict[str, Any]
_OUTPUTS = {"--json", "--plot", "--output"}


def command_line(command: str, words: Sequence[str], *outputs: Path | None) -> str:
    """A command as a person would repeat it: without where it writes its results."""
    dropped = {*_OUTPUTS, *map(str, outputs)}
    return shlex.join([*command.split(), *(word for word in words if word not in dropped)])


def head(experiment: str, device: str, command: str) -> Document:
    """Where, when and how; `device` as its driver calls it. The load is that before the measurement."""
    return {
        "experiment": experiment,
        "device": device,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}",
        "load_before": round(os.getloadavg()[0], 2),
        "command": command,
    }


def check_writable(path: Path) -> None:
    """Raises OSError where a file could not be written; none is left behind."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not path.exists() or path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass


def write(path: Path, document: Document) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as file:
        file.write_text(json.dumps(document, indent=1) + "\n")


def records(document: Document, kind: str) -> list[Record]:
    """Those of one kind."""
    return [record for record in document["records"] if record["kind"] == kind]


def origin(document: Document) -> str:
    """One line under a title: when, where, how."""
    words = [document["date"], document["machine"]]
    if "load_before" in document:
        words.append(f"load {document['load_before']:.1f} before")
    if (steal := most_stolen(document.get("records", ()))) is not None:
        words.append(f"at most {100 * steal:.1f} % of CPU time stolen")
    if document.get("ended"):
        words.append(f"not whole: {document['ended']}")
    return f"{', '.join(words)}: `{document['command']}`"
