"""Processes that tests start and talk to."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def running(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process for the block, which is expected to see it end. When the block fails, by a time limit for example, it is killed:
    waiting for it, as `Popen` does by itself, could take for ever."""
    with subprocess.Popen(command, text=True, **options) as child:
        try:
            yield child
        except BaseException:
            child.kill()
            raise


def is_there(pid: int) -> bool:
    """Whether a process lives: one that waits to be reaped does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
