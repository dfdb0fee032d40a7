"""A fuzzer for Python: an input that reaches a line which none before it did is kept, and changed in its turn.

Wrong when: what is looked for needs a value and not a line. The worker's fuzzer, which is libFuzzer, sees both.
"""

from __future__ import annotations

import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

Line = tuple[str, int]
MOST_BYTES = 20_000
WORDS = (
    b"\x00",
    b"\xff",
    b"\xff" * 4,
    b"\xff" * 8,
    b"\x00" * 8,
    b"\x7f\xff",
    b"\x80",
    b"0",
    b"9" * 30,
    b"{",
    b"}",
    b'"',
    b"[",
    b";",
    b"\n",
    b"-",
)


@dataclass(frozen=True)
class Target:
    """`run` is given hostile bytes, and raises for a finding only. `files` are those whose lines count."""

    name: str
    run: Callable[[bytes], None]
    seeds: Sequence[bytes]
    files: frozenset[str]


@dataclass
class Outcome:
    nr_executions: int = 0
    lines: set[Line] = field(default_factory=set)
    findings: list[tuple[bytes, str]] = field(default_factory=list)


def mutate(data: bytes, other: bytes, choice: random.Random) -> bytes:
    """A few changes: bits, words, pieces that go, come again, or come from another input."""
    changed = bytearray(data)
    for _ in range(choice.randint(1, 4)):
        at, end = sorted(choice.randint(0, len(changed)) for _ in range(2))
        end = min(end, at + choice.choice((1, 4, 16, 256)))
        match choice.randrange(6):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << choice.randrange(8)
            case 1:
                del changed[at:end]
            case 2:
                changed[at:at] = changed[at:end]
            case 3:
                word = choice.choice(WORDS)
                changed[at : at + len(word)] = word
            case 4:
                changed[at:at] = choice.choice(WORDS)
            case _:
                start = choice.randint(0, len(other))
                changed[at:end] = other[start : start + choice.choice((4, 16, 256))]
    return bytes(changed[:MOST_BYTES])


@contextmanager
def lines_of(files: frozenset[str], reached: set[Line]) -> Iterator[None]:
    """Notes each line of these files that is come to, in whatever thread."""

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if name not in files:
            return None
        if event == "line":
            reached.add((name, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    threading.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before)


def fuzz(target: Target, *, seed: int, seconds: float | None = None, executions: int | None = None) -> Outcome:
    """Until the time is over, or so many executions are done; the first of them are the seeds."""
    choice, outcome = random.Random(seed), Outcome()
    corpus: list[bytes] = []
    waiting = list(target.seeds)
    end = time.monotonic() + seconds if seconds is not None else None
    while (end is None or time.monotonic() < end) and (executions is None or outcome.nr_executions < executions):
        data = waiting.pop() if waiting else mutate(choice.choice(corpus), choice.choice(corpus), choice)
        reached: set[Line] = set()
        try:
            with lines_of(target.files, reached):
                target.run(data)
        except Exception:
            outcome.findings.append((data, traceback.format_exc()))
        outcome.nr_executions += 1
        if not reached <= outcome.lines or not corpus:
            outcome.lines |= reached
            corpus.append(data)
    return outcome


def lines_with_code(path: str) -> int:
    """Of a file: what `lines_of` could ever note."""
    codes, lines = [compile(Path(path).read_text(), path, "exec")], set()
    while codes:
        code = codes.pop()
        lines |= {line for _, _, line in code.co_lines() if line}
        codes += [constant for constant in code.co_consts if isinstance(constant, type(code))]
    return len(lines)
