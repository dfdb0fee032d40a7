"""Ctrl-C, SIGTERM and a closed terminal end a command through its `with` blocks, and do not end what those blocks then
clean up.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class InterruptedBySignalError(BaseException):
    """Like KeyboardInterrupt, which it stands beside: no `except Exception` may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextlib.contextmanager
def raised_signals() -> Iterator[None]:
    """For the block, the first of the signals raises `InterruptedBySignalError` in the main thread; later ones do nothing.

    What the block then cleans up is not cut short by an impatient second Ctrl-C; Ctrl-\\ still ends the process.
    """

    def interrupt(number: int, _frame: FrameType | None) -> None:
        for each in _ENDINGS:
            signal.signal(each, signal.SIG_IGN)
        raise InterruptedBySignalError(number)

    before = {number: signal.signal(number, interrupt) for number in _ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def delayed_signals() -> Iterator[None]:
    """Signals that arrive during the block act after it: for cleaning up that must not stay half done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
