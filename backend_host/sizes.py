"""Sizes, times and numbers of programs as people write and read them."""

import argparse
import re

from backend_host.errors import ConfigError

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
"""Without blanks at its ends: where two places may take the same ones, a long text is tried in all ways, and the whole process waits."""


def parse_size(text: str) -> int:
    """Bytes from `4096`, `64M`, `1.5GiB`; units are powers of 1024, upper or lower case. Raises ConfigError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is not a size; write for example 512M or 2G")
    try:
        size = float(match[1]) * _UNITS[match[2].lower()]
        if 0 < size < 1:
            raise ConfigError(f"{text!r} is less than a byte; write for example 512M or 2G")
        return int(size)
    except OverflowError:
        raise ConfigError(f"{text!r} is more than any size") from None


def read_size(key: str, written: object) -> int:
    """The size that a key of a file says. Raises ConfigError, which names the key."""
    try:
        return parse_size(str(written))
    except ConfigError:
        raise ConfigError(f"{key} must be a size, such as 512M or 2G, not {written!r}") from None


def format_size(nr_bytes: int) -> str:
    """`0 B`, `512 B`, `1.5 MiB`: three digits are enough for a table."""
    value, unit = float(nr_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.3g} {unit}"


def format_time(nr_ns: int) -> str:
    """`850 ns`, `1.25 ms`, `3.4 s`."""
    value = float(nr_ns)
    for unit in ("ns", "us", "ms"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} s" if value < 1000 else f"{value:.0f} s"


def format_uptime(nr_ns: int) -> str:
    """`12.1 s`, `5 h 33 min`, `14 days 2 h`."""
    minutes = nr_ns // 60_000_000_000
    if minutes < 60:
        return format_time(nr_ns)
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} days {hours % 24} h"


def format_count(nr: int, thing: str) -> str:
    """`one program`, `2 programs`, `3 launches`."""
    return f"one {thing}" if nr == 1 else f"{nr} {thing}{'es' if thing.endswith('ch') else 's'}"


def format_programs(nr: int) -> str:
    """As `format_count`, of those."""
    return format_count(nr, "program")


def format_times(nr: int) -> str:
    """`once`, `2 times`."""
    return "once" if nr == 1 else f"{nr} times"


def size_argument(text: str) -> int:
    """A size on a command line."""
    try:
        return parse_size(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
