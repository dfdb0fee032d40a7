"""Generated files: which of them are stale, writing them, and the command that does both."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
SEAL = "{seal}"
"""Where a text has its seal."""


def seal(inputs: Iterable[Path]) -> str:
    """A hash of everything that the outputs depend on."""
    digest = hashlib.sha256()
    for path in sorted(inputs):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def sealed(texts: Mapping[str, str], mark: str) -> dict[str, str]:
    return {path: text.replace(SEAL, mark, 1) for path, text in texts.items()}


def stale(texts: Mapping[str, str], root: Path = ROOT) -> dict[str, str]:
    """The files that differ in any byte from what they should be, by their paths from the root."""
    return {path: text for path, text in texts.items() if not _holds(root / path, text)}


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


def write(texts: Mapping[str, str], root: Path = ROOT) -> list[str]:
    """Writes the stale files and names them."""
    differing = stale(texts, root)
    for name, text in differing.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(differing)


def command(
    module: str,
    table: str,
    make: Callable[[], Mapping[str, str]],
    error: type[Exception] | tuple[type[Exception], ...],
    arguments: list[str] | None,
) -> int:
    """`python -m MODULE` writes what `make` gives, `--check` only says what is stale. `error`: the table is wrong."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=f"Make files from {table}.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when a file is stale")
    options = parser.parse_args(arguments)
    try:
        texts = make()
    except error as problem:
        print(f"{table}: {problem}", file=sys.stderr)
        return 1
    names = list(stale(texts)) if options.check else write(texts)
    for name in names:
        print(f"stale: {name}" if options.check else f"wrote {name}", file=sys.stderr if options.check else sys.stdout)
    return 1 if options.check and names else 0
