"""What the start of a program costs, and its worker's memory, of several builds in turn: `python -m benchmarks.starts TREE TREE`.

Each tree is a checkout with its own build and .venv. A daemon of each serves softgpu; `fairgv-run` of one trivial program is measured as a
whole, the trees one after another, so that what loads the machine loads all of them: the time until its end, and the processors' time of all
that was started for it, a warm worker for the next one included. Then a program that lasts is started, and the memory (PSS) of its worker
looked at, with the processes below it.
Wrong when: the machine is loaded: the time until the end then tells of the load. Processors' time tells less of it.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from backend_host.config import PACKAGE_ROOT

TRIVIAL = ("device_query",)
LASTING = ("spin", "6000")
T = TypeVar("T")
MIB = 1024
"""KiB, which smaps has."""
SETTLE_S = 1.0
"""For a warm worker to be there again: 0.3 s on two idle cores."""


class Tree:
    """One build, with a daemon."""

    def __init__(self, root: Path, state_dir: Path) -> None:
        self.root = root
        self._state_dir = state_dir
        self._environment = {**os.environ, "FAIRGV_SOFTGPU_STATE": str(state_dir / "device")}

    def host(self, *arguments: str) -> str:
        """One `fairgv-host` command."""
        return self._command("fairgv-host", *arguments)

    def start_s(self) -> tuple[float, float]:
        """Of the trivial program: from the command to its end, and of the processors until a warm worker is there again."""
        busy_s, begun_s = self._busy_s(), time.perf_counter()
        self._command("fairgv-run", "--", *_program(TRIVIAL))
        wall_s = time.perf_counter() - begun_s
        time.sleep(SETTLE_S)
        return wall_s, self._busy_s() - busy_s

    def _busy_s(self) -> float:
        """Of the processors, for the commands and the workers that have ended."""
        daemon = json.loads(self.host("status", "--json"))["pid"]
        fields = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime + sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> float:
        """Of the worker of a program that runs."""
        command = [self._path("fairgv-run"), "--state-dir", str(self._state_dir), "--", *_program(LASTING)]
        with subprocess.Popen(command, env=self._environment, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            child.stdout.readline()  # "running"
            found = sum(_memory_kib(pid) for pid in _tree(self._worker()))
            child.communicate()
        return found / MIB

    def _worker(self) -> int:
        vgpus: list[dict[str, Any]] = json.loads(self.host("status", "--json"))["vgpus"]
        return next(int(client["worker_pid"]) for vgpu in vgpus for client in vgpu["clients"])

    def _path(self, name: str) -> str:
        return str(self.root / ".venv/bin" / name)

    def _command(self, name: str, *arguments: str) -> str:
        command = [self._path(name), "--state-dir", str(self._state_dir), *arguments]
        return subprocess.run(command, env=self._environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def _program(words: Sequence[str]) -> list[str]:
    """The same file for all trees."""
    return [str(PACKAGE_ROOT / "build/programs" / words[0]), *words[1:]]


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                yield from _tree(int(child))


def _memory_kib(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:  # a compiler that has ended
        return 0
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))


def _in_turn(trees: Sequence[Tree], measure: Callable[[Tree], T], count: int) -> list[list[T]]:
    """So many samples of each tree."""
    samples: list[list[T]] = [[] for _ in trees]
    for _ in range(count):
        for tree, of_tree in zip(trees, samples, strict=True):
            of_tree.append(measure(tree))
    return samples


def _text(samples: Sequence[float], digits: int) -> str:
    """The median, and the quartiles about it."""
    low, middle, high = statistics.quantiles(samples, n=4)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="+", type=Path, help="folders of builds")
    parser.add_argument("--times", type=int, default=40, help="starts of each (default: %(default)s)")
    parser.add_argument("--looks", type=int, default=5, help="at the memory of each (default: %(default)s)")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as ends:
        trees = []
        for root in options.trees:
            folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="fairgv-starts-")))
            folder.chmod(0o711)
            tree = Tree(root.resolve(), folder)
            tree.host("start", "--device", "soft")
            ends.callback(tree.host, "stop")
            tree.start_s()  # compiles, and keeps it
            trees.append(tree)
        starts = _in_turn(trees, Tree.start_s, options.times)
        memory = _in_turn(trees, Tree.memory_mib, options.looks)
    for tree, times_s, looks in zip(trees, starts, memory, strict=True):
        walls, busy = ([1e3 * each for each in column] for column in zip(*times_s, strict=True))
        print(
            f"{tree.root}: {_text(walls, 0)} ms, least {min(walls):.0f}; processors {_text(busy, 0)} ms, least {min(busy):.0f}"
        )
        print(f"    worker {_text(looks, 1)} MiB")


if __name__ == "__main__":
    main()
