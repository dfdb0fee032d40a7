"""What commands of kills share: the command line, and what is left in /dev/shm. The seed comes first: the same one gives the same kills."""

import argparse
import contextlib
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

LIMIT_S = 60.0
"""What has not come by then never will."""
SHARED = Path("/dev/shm")


class KillsError(Exception):
    """What was wrong, after which kill."""


def mapped(pids: Iterable[int]) -> set[Path]:
    """Files of /dev/shm that these processes map."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            words = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
            found |= {Path(word[5]) for word in words if len(word) > 5 and word[5].startswith(f"{SHARED}/")}
    return found


def expect_gone(paths: Iterable[Path]) -> None:
    """Raises KillsError."""
    left = [path for path in paths if path.exists()]
    if left:
        raise KillsError(f"left in {SHARED}: {', '.join(map(str, left))}")


def main(name: str, about: str, kills: int, run: Callable[[int, random.Random, Path], Counter[str]]) -> int:
    """A command that kills so often unless told otherwise. `run` says how often each was killed, or raises KillsError."""
    parser = argparse.ArgumentParser(prog=name, description=about.partition("\n\n")[0])
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fairgv-kills-") as folder:
        try:
            done = run(options.kills, random.Random(options.seed), Path(folder))
        except KillsError as error:
            print(error, file=sys.stderr)
            return 1
    each = ", ".join(f"{number} {whom}" for whom, number in sorted(done.items()))
    print(f"{done.total()} kills, the other one went on after each: {each}")
    return 0
