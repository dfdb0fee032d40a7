"""Which files of compiled code go, where there is more of it than there may be: those that were used longest ago.

A tenant that has more than it may loses files of its own. Where all have too much together, or the file system too little room, files go
whosesoever they are, but none of a tenant that has its even share or less. So who uses all of its code all the time, or says so, keeps no more
than others can.

Wrong when: a tenant has files of two names. Their room is counted twice, and is free once both are gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from backend_host.walls.folders import NR_FILES, Contents, File


@dataclass(frozen=True)
class Bounds:
    """In bytes: of each tenant, and of all together."""

    each: int
    all: int


def excess(tenants: Mapping[str, Contents], bounds: Bounds, now_ns: int) -> list[tuple[str, File]]:
    """Whose files go, in this order."""
    left = {name: contents.nr_bytes for name, contents in tenants.items()}
    kept = [(name, file) for name, contents in tenants.items() for file in contents.files]
    kept.sort(key=lambda each: _used(each[1], now_ns))
    nr_left = {name: len(contents.files) for name, contents in tenants.items()}
    gone: list[tuple[str, File]] = []

    def take(name: str, file: File) -> None:
        gone.append((name, file))
        left[name] -= file.nr_bytes
        nr_left[name] -= 1

    rest = []
    for name, file in kept:
        if left[name] > bounds.each or nr_left[name] > NR_FILES:
            take(name, file)
        else:
            rest.append((name, file))
    total, share = sum(left.values()), bounds.all // max(1, len(tenants))
    for name, file in rest:
        if total <= bounds.all:
            break
        if left[name] > share:
            take(name, file)
            total -= file.nr_bytes
    return gone


def _used(file: File, now_ns: int) -> int:
    """A time that is to come was written by hand: it tells nothing."""
    return file.used_ns if file.used_ns <= now_ns else 0
