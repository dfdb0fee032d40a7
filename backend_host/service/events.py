"""What was done to the daemon, and what it refused: a record each, in its log and in a file that outlives it.

The file is of JSON lines, and bounded: when it is full it becomes the one before, in place of what that had. Of one user so many refusals a
minute are told and no more, and of each its beginning: nobody is to drive out of the file what others did.

Wrong when: the file system is full. What then happens is in the log only.
"""

import contextlib
import datetime
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from backend_host.entitlement import Entitlement
from backend_host.ipc import Message

MAX_FILE_BYTES = 1 << 20
"""Some three thousand records, twice."""
MAX_ANSWERED = 1000
"""At once; who asks for more goes on behind the last."""
MAX_REFUSALS = 20
"""Of one user within a minute."""
MAX_LETTERS = 1000
"""Of a refusal that are told: it may have all that was asked for in it."""
_MINUTE_S = 60.0
UNCHANGED = "is_unchanged"
"""The key of an answer to a request for a change that is true where all was so already: that is no event."""

log = logging.getLogger("fairgv.events")


def change_answer(name: str, entitlement: Entitlement, text: str, *, is_changed: bool) -> Message:
    """To a request for another entitlement of a vGPU, which is this one now. `text`: where it is another."""
    return {"text": text if is_changed else f"{name} has that already: {entitlement}", UNCHANGED: not is_changed}


def printable(text: str) -> str:
    """A line of text that has others' words in it."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class Events:
    """Of one daemon; `path`: the newer file, or None where nothing is kept. Thread-safe."""

    def __init__(self, path: Path | None, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self._path = path
        self._max_file_bytes = max_file_bytes
        self._lock = threading.Lock()
        self._refusals: dict[int, tuple[float, int]] = {}
        self._sequence = max((record["sequence"] for record in self._read()), default=0)

    def tell(self, event: str, uid: int, text: str, **more: Any) -> None:
        """`more`: vgpu, domain, old and new, as far as there are such."""
        with self._lock:
            self._sequence += 1
            text = printable(text)
            record = {
                "sequence": self._sequence,
                "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
                "event": event,
                "uid": uid,
                **{key: more.get(key) for key in ("vgpu", "domain", "old", "new")},
                "text": text,
            }
            self._write(record)
        level = logging.WARNING if event == "refusal" else logging.INFO
        fields = {key: more.get(key) or "" for key in ("vgpu", "domain")}
        log.log(level, "%s by user %d: %s", event, uid, text, extra={**fields, "event": event, "uid": uid})

    def refused(self, uid: int, text: str, **more: Any) -> None:
        """A refusal, unless that user had too many just now."""
        with self._lock:
            now_s = time.monotonic()
            self._refusals = {user: each for user, each in self._refusals.items() if now_s - each[0] < _MINUTE_S}
            since_s, nr = self._refusals.get(uid, (now_s, 0))
            self._refusals[uid] = (since_s, nr + 1)
        if nr < MAX_REFUSALS:
            is_cut = len(text) > MAX_LETTERS
            self.tell("refusal", uid, f"{text[:MAX_LETTERS]}..." if is_cut else text, **more)
        elif nr == MAX_REFUSALS:
            self.tell("refusal", uid, "too many refusals to tell; no more of this user within this minute")

    def after(self, sequence: int) -> Sequence[Message]:
        """Records with a greater number, the oldest first."""
        with self._lock:
            if sequence >= self._sequence:
                return []
            return [record for record in self._read() if record["sequence"] > sequence][:MAX_ANSWERED]

    def _before(self) -> Path | None:
        return self._path.with_suffix(".1.jsonl") if self._path is not None else None

    def _read(self) -> Iterator[Message]:
        for path in (self._before(), self._path):
            if path is None:
                continue
            with contextlib.suppress(OSError), path.open(errors="replace") as lines:
                for line in lines:
                    with contextlib.suppress(ValueError):  # a line that a full disk, or a sudden end, cut off
                        record = json.loads(line)
                        if isinstance(record, dict) and isinstance(record.get("sequence"), int):
                            yield record

    def _write(self, record: Message) -> None:
        before = self._before()
        if self._path is None or before is None:
            return
        line = json.dumps(record).encode() + b"\n"
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                size = os.fstat(fd).st_size
                if size and os.pread(fd, 1, size - 1) != b"\n":
                    line = b"\n" + line
                os.write(fd, line)
            finally:
                os.close(fd)
            if size + len(line) > self._max_file_bytes:
                self._path.replace(before)
        except OSError as error:
            log.error("an event is not kept in %s: %s", self._path, error.strerror)
