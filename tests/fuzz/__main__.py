"""`make fuzz`: runs each fuzzer from its seeds, and prints a table: executions, coverage, findings. The worker has half of the time.

What it finds is left in build/fuzz/NAME-findings, new inputs in build/fuzz/NAME-corpus. Ends with 1 when something was found.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.build import HERE, OUT, build
from tests.fuzz.by_lines import Target, fuzz, lines_with_code
from tests.fuzz.daemon_programs import DAEMON_PROGRAMS
from tests.fuzz.inputs import SPAN, pack
from tests.fuzz.programs import PROGRAMS
from tests.fuzz.python_targets import targets

MAX_BYTES = 6000
"""Of an input: some 60 records."""
HANG_SECONDS = 60
MOST_KEPT = 20
"""Of what one target found: the rest is the same again, as a rule."""
HANDLERS = ("/calls/", "/client/", "/parts/")


def write_seeds(folder: Path) -> None:
    """Each program of records, with each way of running it; and those of the daemon's."""
    for name, records in PROGRAMS.items():
        for flags in range(2 * SPAN):
            (folder / f"{name.replace(' ', '-')}-{flags}").write_bytes(
                pack(records, flags=flags, busy=64 * (flags % 2))
            )
    for number, (flags, told) in enumerate(DAEMON_PROGRAMS.values()):
        for busy in (0, 64):
            (folder / f"daemon-{number}-{busy}").write_bytes(pack(told, flags=flags | busy // 64, busy=busy))


def run(program: Path, name: str, minutes: float) -> tuple[int, list[Path]]:
    """Executions, and files of what was found."""
    corpus, findings = OUT / f"{name}-corpus", OUT / f"{name}-findings"
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    write_seeds(corpus)
    before = set(findings.iterdir())
    command: list[str | Path] = [
        program,
        f"-max_total_time={round(minutes * 60)}",
        f"-max_len={MAX_BYTES}",
        f"-timeout={HANG_SECONDS}",
    ]
    command += ["-entropic=0", "-print_final_stats=1", f"-artifact_prefix={findings}/", corpus, HERE / "corpus" / name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    (OUT / f"{name}.log").write_text(done.stderr)
    executed = re.findall(r"number_of_executed_units: (\d+)", done.stderr)
    if not executed:
        sys.exit(done.stderr[-2000:])
    return int(executed[-1]), sorted(set(findings.iterdir()) - before)


def coverage(name: str) -> dict[str, float]:
    """Of the handlers' own lines, in percent, and of all of the worker's C."""
    program = build(name, counts=True)
    raw, merged = program.parent / "counts.raw", program.parent / "counts"
    command: list[str | Path] = [program, "-runs=0", OUT / f"{name}-corpus", HERE / "corpus" / name]
    environment = {**os.environ, "LLVM_PROFILE_FILE": str(raw)}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    subprocess.run(["llvm-profdata-14", "merge", "-o", merged, raw], check=True)
    report: list[str | Path] = ["llvm-cov-14", "report", program, f"-instr-profile={merged}"]
    told = subprocess.run(report, capture_output=True, text=True, check=True).stdout
    lines = [
        (row[0], int(row[7]), int(row[8]))
        for row in (line.split() for line in told.splitlines())
        if len(row) >= 10 and row[0].endswith(".c") and "worker/" in row[0]
    ]

    def share(rows: list[tuple[str, int, int]]) -> float:
        return 100 - 100 * sum(missed for _, _, missed in rows) / max(sum(nr for _, nr, _ in rows), 1)

    own = [row for row in lines if any(folder in f"/{row[0]}" for folder in HANDLERS)]
    for path, nr, missed in sorted(own):
        print(f"  {path}: {100 - 100 * missed / nr:.0f} % of {nr} lines")
    return {"handlers": share(own), "all": share(lines)}


@dataclass(frozen=True)
class Row:
    """One line of the table. `lines` tells what was reached, in percent, and of what."""

    target: str
    nr_executions: int
    lines: str
    findings: list[Path]


def fuzz_worker(minutes: float) -> Row:
    nr, found = run(build("worker"), "worker", minutes)
    covered = coverage("worker")
    lines = f"{covered['handlers']:.1f} % of the handlers', {covered['all']:.1f} % of the worker's"
    return Row("worker", nr, lines, found)


def fuzz_python(target: Target, minutes: float) -> Row:
    """What is found is left as an input, and beside it why."""
    outcome = fuzz(target, seed=random.randrange(1 << 32), seconds=minutes * 60)
    findings = OUT / f"{target.name.replace(' ', '-')}-findings"
    paths = []
    for data, why in outcome.findings[:MOST_KEPT]:
        findings.mkdir(parents=True, exist_ok=True)
        paths.append(findings / hashlib.sha1(data).hexdigest())
        paths[-1].write_bytes(data)
        paths[-1].with_suffix(".txt").write_text(why)
    share = 100 * len(outcome.lines) / sum(lines_with_code(path) for path in target.files)
    names = ", ".join(sorted(Path(path).name for path in target.files))
    return Row(target.name, outcome.nr_executions, f"{share:.0f} % of {names}", paths)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="of all targets together")
    minutes = parser.parse_args().minutes
    with ExitStack() as stack:
        python = targets(stack)
        each = minutes / 2 / len(python)
        rows = [fuzz_worker(minutes / 2), *(fuzz_python(target, each) for target in python)]
    print(f"{'target':15} {'executions':>12} {'findings':>9}  lines reached")
    for row in rows:
        print(f"{row.target:15} {row.nr_executions:12} {len(row.findings):9}  {row.lines}")
    found = [path for row in rows for path in row.findings]
    for path in found:
        print(f"found: {path}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
