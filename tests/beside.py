"""A thread beside a block of a test."""

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def beside(work: Callable[[threading.Event], None], name: str | None = None) -> Iterator[None]:
    """For the block `work` goes on in a thread of its own, until the event that it is given is set, and has ended behind it."""
    is_over = threading.Event()
    thread = threading.Thread(target=work, args=(is_over,), name=name)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
