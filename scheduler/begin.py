"""Where commands begin: Ctrl-C while one is still loaded ends it by the signal, as it ends any program, and not with Python's words.

Their modules take a good part of a second to load on a slow machine, so whoever mistyped a command is quicker. It stands here as VersionAction
does. Wrong when: Python itself is still starting.
"""

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Around the import of a command. Who started it with Ctrl-C ignored, as shells do in the background, has that."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
