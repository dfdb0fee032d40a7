"""A record: what a daemon writes down for the next one, which checks each field, or the record is of no use.

The store is the daemon's own user's, and no guest reaches it. It is checked all the same: who reads half of a record serves half of a vGPU.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

_MOST = 1 << 64
_MOST_TEXT = 4096
T = TypeVar("T", bound="Record")


class RecordError(Exception):
    """A record is none of ours; the text says where."""


class Record:
    """Of numbers from 0 on, booleans, texts and tables of numbers."""

    def written(self) -> dict[str, Any]:
        """For the store."""
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    def read(cls: type[T], record: Mapping[str, Any]) -> T:
        """The counterpart. Raises RecordError."""
        hints = get_type_hints(cls)
        if record.keys() != hints.keys():
            raise RecordError(f"{cls.__name__} has other fields: {', '.join(sorted(record.keys() ^ hints.keys()))}")
        for name, hint in hints.items():
            if not holds(record[name], hint):
                raise RecordError(f"{cls.__name__}: {name} is {str(record[name])[:80]!r}")
        made = cls(**record)
        made.check()
        return made

    def check(self) -> None:
        """Raises RecordError for numbers that are out of bounds."""


def holds(value: object, hint: object) -> bool:
    """Whether a value of a record is of this type, and within the bounds of all."""
    if hint is int:
        return type(value) is int and 0 <= value < _MOST
    if hint is bool:
        return type(value) is bool
    if hint is str:
        return isinstance(value, str) and len(value) <= _MOST_TEXT
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        return False
    return hint != dict[str, int] or all(holds(each, int) for each in value.values())
