"""
Programs as guests of a host that runs every launch in parts: `python -m tests.slicing.forced [--device cuda] [--only NAME] [--cases NAME,...]`.

Each of the benchmark programs runs natively, and as a guest whose launches go whole, in boxes of a block or two, and persistently with
a stop after every few blocks; what their results hash to must be the same. All cases of the conformance suite are compared with native in the
latter two ways. Prints a short table; exit status 1 when anything differs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console
from rich.table import Table

from backend_host.config import Config, load_config
from backend_host.daemon import serve
from backend_host.ipc import Connection
from backend_host.launching import wait_for_start
from backend_host.workers import slicing_settings
from benchmarks.build import NAMES, build
from tests.conformance.comparing import read_known
from tests.conformance.running import ALL_NAMES, problems, run_both_ways
from tests.end_to_end.host import Host
from tests.end_to_end.test_benchmark_programs import arguments_of

WAYS: Mapping[str, Mapping[str, object]] = {
    "whole": {"slicing": "off"},
    "boxes": {
        "slicing": "boxes",
        "slicing_threshold_blocks": 0,
        "slicing_least_blocks": 1,
    },
    "persistent": {"slicing": "persistent", "slicing_threshold_blocks": 0},
}
RUN_BLOCKS = {"persistent": 8}
"""After so many blocks a persistent kernel stops by itself. Workers can do that, and no setting of a host asks for it."""
PART_US = {"soft": 0, "cuda": 20}
"""On a GPU a launch of many small blocks would take minutes in boxes of one."""
VGPU = "forced"


@dataclass(frozen=True)
class Outcome:
    """What a program's results hash to, "" when it failed, and what became of its launches since the host started."""

    digest: str
    totals: dict[str, Any]
    errors: str


@contextmanager
def forced_host(state_dir: Path, way: str, device: str = "soft") -> Iterator[Host]:
    """A host whose launches all go this way; its vGPU `VGPU` stays while it lives."""
    settings = {**WAYS[way], "slicing_part_us": PART_US[device]}
    config = load_config(None, state_dir=state_dir, device=device, adopt="attached", **settings)
    with daemon(config, RUN_BLOCKS.get(way, 0)), Connection(config.socket_path) as connection:
        connection.ask("open", name=VGPU, weight=1, memory_bytes=0)
        yield Host(state_dir, device)


@contextmanager
def daemon(config: Config, run_blocks: int) -> Iterator[None]:
    """A daemon whose workers are told so many `run_blocks` beside what the settings say."""
    ours, theirs = socket.socketpair()
    process = multiprocessing.get_context("spawn").Process(target=serve_daemon, args=(config, run_blocks, theirs))
    process.start()
    theirs.close()
    with ExitStack() as stack:
        stack.callback(process.join)
        stack.enter_context(ours)
        wait_for_start(config, ours)
        yield


def serve_daemon(config: Config, run_blocks: int, ready: socket.socket) -> None:
    """The daemon's process."""
    os.dup2(os.open(config.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), sys.stderr.fileno())
    settings = slicing_settings(config, preempts=False) | {"run_blocks": run_blocks}
    with mock.patch("backend_host.device.gpu.slicing_settings", return_value=settings):
        sys.exit(serve(config, ready.detach()))


def digest_of(errors: str) -> str:
    """From what a benchmark program says with --digest."""
    found = re.search(r"^digest (\w+)$", errors, re.MULTILINE)
    return found[1] if found else ""


def run_program(host: Host, name: str) -> Outcome:
    """A benchmark program, as a guest."""
    result = host.guest(build(name), *arguments_of(name), "--digest", options=("--vgpu", VGPU))
    [vgpu] = host.status()["vgpus"]
    digest = digest_of(result.stderr) if result.returncode == 0 else ""
    return Outcome(digest, vgpu["totals"], result.stderr)


def native_digest(host: Host, name: str) -> str:
    """The same program on the device itself."""
    result = host.native(str(build(name)), *arguments_of(name), "--digest")
    return digest_of(result.stderr) if result.returncode == 0 else ""


def compare_programs(device: str, folder: Path) -> tuple[Table, bool]:
    """All of them; whether all hashes are the same."""
    digests: dict[str, dict[str, str]] = {name: {} for name in NAMES}
    notes = {}
    for way in WAYS:
        with forced_host(_state_dir(folder, way), way, device) as host:
            for name in NAMES:
                digests[name].setdefault("native", native_digest(host, name))
                outcome = run_program(host, name)
                digests[name][way] = outcome.digest
            notes[way] = (
                f"{outcome.totals['nr_sliced']} launches in {outcome.totals['nr_parts']} parts, whole {outcome.totals['whole']}"
            )
    table = Table("program", "native", *WAYS)
    for name, found in digests.items():
        each = ("same" if digest and digest == found["native"] else digest or "failed" for digest in found.values())
        table.add_row(name, found["native"], *list(each)[1:])
    table.caption = "\n".join(f"{way}: {note}" for way, note in notes.items())
    return table, all(digest and digest == found["native"] for found in digests.values() for digest in found.values())


def compare_cases(device: str, folder: Path, names: list[str]) -> list[str]:
    """What differs between native and each of the ways in parts, of the conformance suite."""
    known, native, wrong = read_known(), None, []
    for way in ("boxes", "persistent"):
        begin_s = time.monotonic()
        with forced_host(_state_dir(folder, f"cases-{way}"), way, device) as host:
            outputs = run_both_ways(host, names, host.state_dir, native)
        both = "" if native else ", natively as well"
        native = outputs.native
        found = [f"{way}: {name}: {text}" for name in names if (text := problems(outputs, name, known, device))]
        print(
            f"{way}{both}: {len(names)} cases in {time.monotonic() - begin_s:.0f} s, {len(found)} differ",
            file=sys.stderr,
        )
        wrong += found
    return wrong


def _state_dir(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir(mode=0o711)
    return path


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="forced", description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--device", choices=("soft", "cuda"), default="soft")
    parser.add_argument("--only", choices=("programs", "conformance"), help="one of them (the suite takes minutes)")
    parser.add_argument("--cases", metavar="NAME,...", help="of the suite (default: all)")
    options = parser.parse_args()
    names = options.cases.split(",") if options.cases else ALL_NAMES
    if unknown := set(names) - set(ALL_NAMES):
        parser.error(f"there is no case {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="fairgv-forced-") as directory:
        folder = Path(directory)
        folder.chmod(0o711)
        is_same, wrong = True, []
        if options.only != "conformance":
            table, is_same = compare_programs(options.device, folder)
            Console(width=140).print(table)
        if options.only != "programs":
            wrong = compare_cases(options.device, folder, names)
            print("\n".join([*wrong, f"{len(names)} cases twice, {len(wrong)} differ"]))
    return 0 if is_same and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
