"""`make fuzz`: runs each fuzzer for so many minutes from its committed corpus, and prints a table: executions, coverage, findings.

What it finds is left in build/fuzz/NAME-findings, new inputs in build/fuzz/NAME-corpus. Ends with 1 when something was found.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.fuzz.build import HERE, OUT, build

MAX_BYTES = 6000
"""Of an input: some 60 records."""
HANG_SECONDS = 60
HANDLERS = ("/calls/", "/client/", "/parts/")


def run(program: Path, name: str, minutes: float) -> tuple[int, list[Path]]:
    """Executions, and files of what was found."""
    corpus, findings = OUT / f"{name}-corpus", OUT / f"{name}-findings"
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    before = set(findings.iterdir())
    command: list[str | Path] = [
        program,
        f"-max_total_time={round(minutes * 60)}",
        f"-max_len={MAX_BYTES}",
        f"-timeout={HANG_SECONDS}",
    ]
    command += ["-print_final_stats=1", f"-artifact_prefix={findings}/", corpus, HERE / "corpus" / name]
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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    minutes = parser.parse_args().minutes
    nr, found = run(build("worker"), "worker", minutes)
    covered = coverage("worker")
    print(f"{'target':10} {'executions':>12} {'handlers':>9} {'all C':>7} {'findings':>9}")
    print(f"{'worker':10} {nr:12} {covered['handlers']:8.1f}% {covered['all']:6.1f}% {len(found):9}")
    for path in found:
        print(f"found: {path}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
