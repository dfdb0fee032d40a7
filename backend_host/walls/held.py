"""The room that processes take of a file system by files that they removed and keep: no folder shows those.

Wrong when: a process has such a file on its way in a socket alone, or is gone a moment later.
"""

import contextlib
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

_PARENT = re.compile(r"^PPid:\t(\d+)", re.MULTILINE)
_OPEN = ("fd", "map_files")
"""Of a process: descriptors, and mappings, which outlive them."""


def held_bytes(pids: Collection[int], device: int) -> int:
    """Of removed files on this device that these processes or their children have open or mapped."""
    files: dict[int, int] = {}
    for pid in with_children(pids):
        for status in _open_files(pid):
            if status.st_dev == device and status.st_nlink == 0:
                files[status.st_ino] = status.st_blocks * 512
    return sum(files.values())


def _open_files(pid: int) -> Iterator[os.stat_result]:
    for name in _OPEN:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/{name}") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    yield entry.stat()


def with_children(pids: Collection[int]) -> set[int]:
    """These processes, theirs, and so on. A worker's own are below it for ever: it is the first process of its namespace."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):  # it has ended
            if parent := _PARENT.search(status.read_text(errors="replace")):
                children.setdefault(int(parent[1]), []).append(int(status.parent.name))
    found: set[int] = set()
    new = set(pids)
    while new:
        found |= new
        new = {child for pid in new for child in children.get(pid, ())} - found
    return found
