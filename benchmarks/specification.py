"""SPECIFICATION.md: every promise in one row, with what holds it and its last figure. `python -m benchmarks.results` writes it."""

from pathlib import Path

from backend_host.config import PACKAGE_ROOT
from benchmarks.promises import Promise, groups, promises

SPECIFICATION = PACKAGE_ROOT / "SPECIFICATION.md"
MOST_BYTES = 8000

HEAD = """# What FairGV promises

A claim links to the test that holds it, or has what measures it: `fairgv-bench NAME` or `python -m benchmarks.NAME`. This page is made of
[promises.toml](benchmarks/promises.toml), which names tests and files of [figures](docs/results.md). [missed]: out of bounds last time;
[pending]: no figure yet. Due: a weight's part of what a guest does alone. Ratio: least over greatest part of its due that one gets.
Three guests weigh 1:2:3, six 1:2:2:3:3:4.
"""


def specification() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_group(letter) for letter in groups())])


def _group(letter: str) -> str:
    rows = [promise for promise in promises() if promise.number.startswith(letter)]
    columns = ["", "claim", *(["by", "bound", "last figure"] if any(promise.has_bound for promise in rows) else [])]
    lines = [f"## {groups()[letter]}", "", _line(columns), f"|{'-|' * len(columns)}"]
    lines += [_line([promise.number, _claim(promise), *_figures(promise)]) for promise in rows]
    return "\n".join(lines) + "\n"


def _claim(promise: Promise) -> str:
    """A link to its tests, one for each further file."""
    first, *others = dict.fromkeys(node.partition("::")[0] for node in promise.held) or [""]
    linked = f"[{promise.claim}]({first})" if first else promise.claim
    return ", ".join([linked, *(f"[{Path(path).stem.removeprefix('test_')}]({path})" for path in others)])


def _figures(promise: Promise) -> list[str]:
    """Cells that a row without a bound ends before."""
    return [f"`{promise.command}`", promise.bound(), last_figure(promise)] if promise.has_bound else []


def last_figure(promise: Promise) -> str:
    """Of a promise with a bound, as a cell: the figure, where and when, and what is the matter with it."""
    figure = promise.figure()
    if figure is None:
        return "[pending]"
    verdict = "" if promise.keeps(figure.value) else " [missed]"
    return f"{promise.cell(figure.value)}, {figure.device} {figure.date}{verdict}"


def _line(cells: list[str]) -> str:
    return f"|{'|'.join(cells)}|"
