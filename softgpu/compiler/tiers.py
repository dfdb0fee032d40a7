"""
Two tiers for a large module: first an object that is made quickly, for the program to go on with, then the optimised one, made by a process
that stays behind while the program runs.

Both are made of the same LLVM text, so they differ in nothing but speed. The process that stays behind holds a lock on the quick object for
as long as it lives, so that others see whether somebody is at it, and removes that object once the optimised one is in its place. Nobody
waits for it: it belongs to no terminal, gives the program a head start, gives way to whatever else runs, and ends when it has used
`_MOST_CPU_S`, or with the program where that asks for it (lifetime.py). Of one cache there are at most `_MOST_BEHIND`; who comes when all
places are taken leaves the quick object to the next program that finds it.
"""

from __future__ import annotations

import fcntl
import os
import resource
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from cuda_api.record import record
from softgpu.compiler.lifetime import end_with_input, has_input_of_program
from softgpu.compiler.text.pieces import Part

_LARGE_WEIGHT = 300
"""Of one process's part: to optimise and emit it takes some 0.1 s more than to make do, and a first launch a third of a second."""
_HEAD_START_S = 0.5
"""For the program, whose first launches take the cores: to share them with what stays behind would cost it some 0.1 s."""
_NICE = 10
_MOST_CPU_S = 300
"""Of each process that stays behind, so that a text that LLVM comes to no end with does not keep a core for good."""


_MOST_BEHIND = 4
"""Each has work for all cores. Few programs have more large modules than this; one that was written to leave processes behind left dozens."""


def is_large(parts: Sequence[Part]) -> bool:
    """Whether two tiers are worth it; FAIRGV_SOFTGPU_TIERS=all says so of every module."""
    return os.environ.get("FAIRGV_SOFTGPU_TIERS") == "all" or max(part.weight for part in parts) > _LARGE_WEIGHT


def compile_in_two(parts: Sequence[Part], quick: Path, output: Path) -> None:
    """Makes `quick` and leaves a process behind that makes `output`; both are absolute. Raises CompileError."""
    from softgpu.compiler import native  # noqa: PLC0415 - `finish` does without

    folder = native.make_work_folder(output)
    is_handed_over = False
    try:
        texts = [_Text(part.text, folder / f"{number}.ll") for number, part in enumerate(parts)]
        made = folder / "quick.so"
        native.link(native.objects(texts, folder, speed_level=0), made)
        lock = _locked(made)
        if not _is_locked(quick):  # else another process made the same meanwhile, and is at the rest
            made.replace(quick)
            is_handed_over = _leave_behind(partial(_optimise, texts, folder, quick, output), output.parent)
        os.close(lock)
    finally:
        if not is_handed_over:
            native.remove_work_folder(folder)


def finish(compile_whole: Callable[[], None], quick: Path, output: Path) -> None:
    """Leaves a process behind that makes `output`, unless there is one, or nothing left to do."""
    try:
        lock = _locked(quick)
    except OSError:
        return
    if not output.exists():
        _leave_behind(partial(_complete, compile_whole, quick), output.parent)
    os.close(lock)


@record
class _Text:
    """A part's text, written once and kept in a file for whoever asks again."""

    write: Callable[[], str]
    file: Path

    def __call__(self) -> str:
        if self.file.exists():
            return self.file.read_text("utf-8")
        text = self.write()
        unfinished = self.file.with_suffix(".new")
        unfinished.write_text(text, "utf-8")
        unfinished.replace(self.file)
        return text


def _optimise(texts: Sequence[_Text], folder: Path, quick: Path, output: Path) -> None:
    from softgpu.compiler import native  # noqa: PLC0415

    time.sleep(_HEAD_START_S)

    def link() -> None:
        native.link(native.objects(texts, folder), output)

    try:
        _complete(link, quick)
    finally:
        native.remove_work_folder(folder)


def _complete(make_output: Callable[[], None], quick: Path) -> None:
    make_output()
    quick.unlink(missing_ok=True)


def _locked(file: Path) -> int:
    """A descriptor that holds the lock, for this process and those it forks. Raises OSError: there is no file, or another holds it."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_locked(file: Path) -> bool:
    try:
        os.close(_locked(file))
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _leave_behind(work: Callable[[], None], cache: Path) -> bool:
    """Has a copy of this process do it, detached. False: enough of them are at work for this cache."""
    place = _place(cache)
    if place is None:
        return False
    if os.fork():
        os.close(place)
        return True
    status = 1
    try:
        _detach()
        if has_input_of_program():
            end_with_input()
        work()
        status = 0
    finally:
        os._exit(status)


def _place(cache: Path) -> int | None:
    """A descriptor that holds one of the places, for this process and those it forks."""
    for number in range(_MOST_BEHIND):
        file = cache / f".behind-{number}"
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        with suppress(OSError):
            return _locked(file)
    return None


def _detach() -> None:
    """Leaves the caller's session, folder and files, so that nothing waits for this process and nothing ends it by the way."""
    os.setsid()
    os.chdir("/")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2) if has_input_of_program() else (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.nice(_NICE)
    with suppress(
        OSError
    ):  # where each session has its share of the cores, and niceness only counts within: that of the session
        Path("/proc/self/autogroup").write_text(str(_NICE))
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_CPU_S, _MOST_CPU_S))
