"""Sizes, times and numbers of programs as people write and read them."""

import shlex
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_host.config import PACKAGE_ROOT
from backend_host.errors import ConfigError
from backend_host.sizes import (
    format_count,
    format_programs,
    format_size,
    format_time,
    format_times,
    format_uptime,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "nr_bytes"),
    [("0", 0), ("4096", 4096), ("64M", 64 << 20), ("1.5GiB", 3 << 29), (" 2 kb ", 2048), ("1T", 1 << 40)],
)
def test_parse_size(text: str, nr_bytes: int) -> None:
    assert parse_size(text) == nr_bytes


@pytest.mark.parametrize("text", ["", "M", "-1", "1X", "1 2", "0x10", "1e9", "0.5", "0.0001K"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_size(text)


@given(st.integers(0, 1 << 50))
def test_what_is_formatted_parses_back_to_within_a_rounding(nr_bytes: int) -> None:
    assert parse_size(format_size(nr_bytes)) == pytest.approx(nr_bytes, rel=0.01, abs=1)


@pytest.mark.parametrize(
    ("nr_ns", "text"),
    [(0, "0 ns"), (850, "850 ns"), (1_250_000, "1.25 ms"), (3_400_000_000, "3.4 s"), (2 * 10**12, "2000 s")],
)
def test_format_time(nr_ns: int, text: str) -> None:
    assert format_time(nr_ns) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "250 ms"),
        (3599, "3599 s"),
        (3600, "1 h 0 min"),
        (20_000, "5 h 33 min"),
        (172_799, "47 h 59 min"),
        (172_800, "2 days 0 h"),
        (1_216_800, "14 days 2 h"),
    ],
)
def test_format_uptime(seconds: float, text: str) -> None:
    assert format_uptime(round(seconds * 1e9)) == text


@pytest.mark.parametrize(("nr", "text"), [(0, "0 programs"), (1, "one program"), (2, "2 programs")])
def test_programs(nr: int, text: str) -> None:
    assert format_programs(nr) == text


@pytest.mark.parametrize(
    ("nr", "thing", "text"), [(1, "vGPU", "one vGPU"), (2, "vGPU", "2 vGPUs"), (0, "launch", "0 launches")]
)
def test_counts(nr: int, thing: str, text: str) -> None:
    assert format_count(nr, thing) == text


@pytest.mark.parametrize(("nr", "text"), [(1, "once"), (2, "2 times")])
def test_times(nr: int, text: str) -> None:
    assert format_times(nr) == text


HOSTILE = """
from backend_host.errors import ConfigError
from backend_host.sizes import parse_size
for begin, middle in (("1", " "), ("", " "), ("1", "1"), ("1.", "1")):
    try:
        parse_size(begin + middle * (1 << 20) + "x")
    except ConfigError:
        print("no size")
"""
MOST_CPU_S = 20
"""One whose time grew with the square of its length took hours."""


def test_a_long_text_is_no_work() -> None:
    """Anybody's: a member of the daemon's group says sizes, and while one is looked at no thread of the daemon runs."""
    most = [shlex.quote(each) for each in (sys.executable, "-c", HOSTILE)]
    command = f"ulimit -t {MOST_CPU_S}; exec {' '.join(most)}"
    done = subprocess.run(["sh", "-c", command], cwd=PACKAGE_ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["no size"] * 4
