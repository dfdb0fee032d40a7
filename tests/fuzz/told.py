"""What a guest hears of driver calls that failed while its requests were served: the fuzzer of the worker tells each failure, with a code that
no handler makes, and each answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.backend_host.worker_guest import CALLS

TELLS = {"FUZZ_TELLS": "1"}
"""What the program's environment has for it."""
CODE = "7777"
"""STAND_ERROR of stand_in.h."""
MOVE = "a move"
_NAMES = {str(number): name for name, number in CALLS.items()}


@dataclass(frozen=True)
class Failure:
    """Of one call of the driver. `request`: in whose time. `own`: what that was answered with, "" where nothing was until the end. `is_told`:
    the code came to the guest in some way: in an answer, this one or a later one, with a chunk, or kept for the next that waits."""

    call: str
    request: str
    own: str
    is_told: bool


def failures(said: str) -> Iterator[Failure]:
    """Of each input in which a call failed, the first."""
    for text in said.split("\ninput ")[1:]:
        failure = _failure(text.splitlines()[1:])
        if failure is not None:
            yield failure


def _failure(lines: list[str]) -> Failure | None:
    request, number, failed = "", 0, None
    waiting: dict[str, int] = {}
    answers: dict[int, str] = {}
    is_told = False
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "record":
            slot, call = rest.split()
            number += 1
            request, waiting[slot] = _NAMES[call], number
        elif line == "move":
            number += 1
            request = MOVE
        elif word == "failed" and failed is None:
            failed = rest, request, number
        elif word == "answer":
            slot, result = rest.split()
            answers[waiting.get(slot, 0)] = result
        is_told |= word in ("answer", "chunk", "kept") and line.endswith(f" {CODE}")
    if failed is None:
        return None
    return Failure(failed[0], failed[1], answers.get(failed[2], ""), is_told)
