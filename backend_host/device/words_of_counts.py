"""Counters that there are many of, each number of which is told by a word."""

from collections.abc import Mapping, Sequence

from backend_host.generated.counters import BOUNDS, EACH
from backend_host.worker._worker import ffi

_COUNTERS = dict(ffi.typeof("struct fgw_counters").fields)


def _words(member: str, words: Mapping[int, str]) -> tuple[str, ...]:
    """Of each number of a counter that there are many of. One that is nothing was written by a worker that its guest took over."""
    return tuple(words.get(number, "unknown") for number in range(_COUNTERS[member].type.length))


_MANY = (
    *(
        (name, member, _words(member, {int(each): each.text for each in kind if each}))
        for name, (member, kind) in EACH.items()
    ),
    *((name, name, _words(name, dict(enumerate(words)))) for name, words in BOUNDS.items()),
)
"""Counters that there are many of: name in Python, member of struct fgw_counters, and what each of its numbers is."""


def in_words(arrays: Mapping[str, Sequence[int]]) -> dict[str, dict[str, int]]:
    """Counters that there are many of, by their names in Python, and in words."""
    return {
        name: {word: count for word, count in zip(words, arrays[member], strict=True) if count}
        if member in arrays
        else {}
        for name, member, words in _MANY
    }
