"""What is said of one thing that FairGV needs."""

import enum
from dataclasses import dataclass


class State(enum.StrEnum):
    """From good to bad."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Verdict:
    """One line. `text` says what was found, `remedy` what to do; it is empty where nothing is to be done."""

    check: str
    state: State
    text: str
    remedy: str = ""


def passed(check: str, text: str) -> Verdict:
    """All is well."""
    return Verdict(check, State.PASS, text)


def warned(check: str, text: str, remedy: str) -> Verdict:
    """FairGV works, with less."""
    return Verdict(check, State.WARN, text, remedy)


def failed(check: str, text: str, remedy: str) -> Verdict:
    """FairGV does not work, or not for domains."""
    return Verdict(check, State.FAIL, text, remedy)
