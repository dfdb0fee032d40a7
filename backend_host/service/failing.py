"""What becomes of a daemon that cannot start: whether the manager that started it is to start it again.

A driver that is not loaded yet passes: the manager tries again. What the operator has to mend does not pass, and the exit status says so. Of a
failure that may be either, starts are counted: a manager's own limit is of starts within a time, which starts that take long never come to.

Wrong when: the daemon ends before it gets here, as with an installation that is broken. Such starts are short, and the manager's own limit
ends them.
"""

import contextlib
import logging
import os
from pathlib import Path

from backend_host.errors import LastingError
from backend_host.service.manager import Manager

GIVE_UP_STATUS = os.EX_CONFIG
"""Tells the manager not to start it again: RestartPreventExitStatus of the unit."""
MOST_TRIES = 30
"""Starts in a row that fail: 45 s of them and more, where the manager waits for a second between two."""
_SENTENCE = "the daemon cannot start, and is not started again by itself: see systemctl status fairgv, or its log"

log = logging.getLogger("fairgv.service")


def exit_status(error: Exception, manager: Manager, state_dir: Path) -> int:
    """Of a daemon that could not start. It counts the start, and tells the manager and, where that gives up, who waits for the daemon."""
    manager.tell(STATUS=f"failed: {error}")
    if not isinstance(error, LastingError) and not (manager.is_there and _has_tried_enough(state_dir)):
        return 1
    if manager.is_there:
        log.error("it is not started again by itself: mend that, then systemctl start fairgv")
    manager.turn_away(_SENTENCE)
    return GIVE_UP_STATUS


def forget(state_dir: Path) -> None:
    """A start has not failed: the next one that does is the first again."""
    _path(state_dir).unlink(missing_ok=True)


def _has_tried_enough(state_dir: Path) -> bool:
    """Counts one more. Whoever starts it by hand after the last one has all tries again."""
    path = _path(state_dir)
    with contextlib.suppress(OSError):  # it cannot be written down: the manager's limit is left
        nr = len(path.read_bytes()) + 1 if path.exists() else 1
        if nr >= MOST_TRIES:
            path.unlink()
            return True
        path.write_bytes(b"." * nr)
    return False


def _path(state_dir: Path) -> Path:
    return state_dir / "failed-starts"
