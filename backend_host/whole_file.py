"""Files that are there as a whole or not at all."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """What to write in place of `path`: a file beside it, which comes there at the end of the block, and is gone where the block fails. A link
    goes on to point there. What is no file, as /dev/stdout, a pipe or /dev/null, is written itself: a file in its place would take it from
    the whole host. OSError where that cannot be."""
    if path.exists() and not path.is_file():
        yield path
        return
    place = path.resolve()
    unfinished = place.with_name(f".{place.name}.unfinished")
    try:
        yield unfinished
        unfinished.replace(place)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
