"""Writes the metrics into a file again and again, for node_exporter's textfile collector.

Whoever reads sees a whole file: each is written beside it and takes its place. It goes when the daemon stops, as its numbers would stand still.

Wrong when: the daemon dies. The file then stays as it was; node_textfile_mtime_seconds tells its age.
"""

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from backend_host.looking import Looking

PERIOD_S = 15.0
"""Prometheus asks every 15 s or more, as a rule."""

log = logging.getLogger("fairgv.metrics")


class MetricsFile(Looking):
    """One thread for one file."""

    def __init__(self, path: Path, text: Callable[[], bytes], note: Callable[[str], None] = lambda _: None) -> None:
        """`note` is told why it cannot be written at the start; it is tried again."""
        super().__init__("metrics-file")
        self._path = path
        self._new = path.with_suffix(".new")  # of which the collector reads nothing
        self._text = text
        self._note = note

    def start(self) -> None:
        """Writes it, and goes on."""
        try:
            self._write()
        except OSError as error:
            why = (
                f"cannot write {self._path}: {error.strerror}; set metrics_file to a file in the folder of node_exporter's "
                "--collector.textfile.directory, which the daemon may write to"
            )
            log.error("%s; it is tried again every %g s", why, PERIOD_S)
            self._note(why)
            self._is_failing = True
        super().start()

    def stop(self) -> None:
        """Ends the thread and removes the file."""
        super().stop()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
            self._new.unlink(missing_ok=True)

    def _run(self) -> None:
        while not self._is_stopping.wait(PERIOD_S):
            self._tried(self._write, log, f"the metrics are not written to {self._path}")

    def _write(self) -> None:
        """Follows no link: whoever else may write to the folder would choose what a daemon of root's overwrites."""
        text = self._text()
        self._new.unlink(missing_ok=True)
        with os.fdopen(os.open(self._new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as new:
            new.write(text)
            os.fchmod(new.fileno(), 0o644)
        self._new.replace(self._path)
