"""Questions to a libvirtd that may hang: it takes a connection, or has one, and says nothing. Who asks then waits for so long and no longer.

libvirt has no limit for an answer, and no way to take a question back: each is asked in a thread of its own, which ends with the answer, or
with libvirtd. While one hangs the next ones are not even asked, so that there are no more threads with each command.

Wrong when: libvirtd is only slow, by more than ANSWER_S. Then commands are told that it does not answer, and what is patient is served late.
"""

import concurrent.futures
import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from backend_host.vm.errors import VmError

ANSWER_S = 10.0

T = TypeVar("T")

log = logging.getLogger("fairgv.domains")


class Asking:
    """Of one libvirtd. Thread-safe."""

    def __init__(self, uri: str) -> None:
        self._sentence = (
            f"libvirtd at {uri} has not answered for {ANSWER_S:.0f} s; if it hangs: systemctl restart libvirtd"
        )
        self._late: set[concurrent.futures.Future[Any]] = set()
        """Questions that hang."""
        self._lock = threading.Lock()

    def ask(self, question: Callable[[], T], *, is_patient: bool = False) -> T:
        """The answer. Where it is late the log says so; who `is_patient` waits on, however long, and for anybody else it is a VmError."""
        if self._late and not is_patient:
            raise VmError(self._sentence)
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            threading.Thread(target=_answer, args=(question, answer), name="libvirt", daemon=True).start()
        except RuntimeError as error:
            raise VmError(f"libvirtd is not asked: {error}") from error
        concurrent.futures.wait([answer], ANSWER_S)
        if not answer.done():
            self._note(answer)
            if not is_patient:
                raise VmError(self._sentence)
        return answer.result()

    def _note(self, answer: concurrent.futures.Future[T]) -> None:
        with self._lock:
            is_first = not self._late
            self._late.add(answer)
        if is_first:
            log.warning("%s. Until it answers, domains are served as they were", self._sentence)
        answer.add_done_callback(self._forget)  # at once, where it has come meanwhile

    def _forget(self, answer: concurrent.futures.Future[T]) -> None:
        with self._lock:
            self._late.discard(answer)
            is_last = not self._late
        if is_last and answer.exception() is None:
            log.info("libvirtd answers again")


def _answer(question: Callable[[], T], answer: concurrent.futures.Future[T]) -> None:
    try:
        answer.set_result(question())
    except BaseException as error:
        answer.set_exception(error)
