"""Writes docs/results.md from the JSON files in benchmarks/results: `python -m benchmarks.results [--check]`. No figure is typed by hand."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from backend_host.config import PACKAGE_ROOT

RESULTS = PACKAGE_ROOT / "benchmarks/results"
PAGE = PACKAGE_ROOT / "docs/results.md"

HEAD = """# Results

Made by `python -m benchmarks.results` from the files in `benchmarks/results`. Each row compares native and FairGV in one run on one machine,
medians over alternating repetitions. A ratio above 1 means that FairGV is better: faster, or more bytes a second. Quote ratios; the other
figures belong to their machine.

Why a guest can be faster than native: it does not wait for the driver. A launch or a small copy to the device is a record in a ring, and
the worker makes the driver's call on another core. Where CUDA itself waits, the guest pays for the way to the worker and back.
"""


def section(path: Path) -> str:
    """One measurement as a table."""
    document: dict[str, Any] = json.loads(path.read_text())
    lines = [
        f"## Single operations, {document['device_name']}",
        "",
        f"{document['date']}, {document['machine']}, {document['nr_repetitions']} repetitions: `{document['command']}`",
        "",
        "| operation | native | FairGV | unit | ratio | aim |",
        "|---|---:|---:|---|---:|---|",
    ]
    for name, row in document["results"].items():
        lines.append(
            f"| {name} | {row['native']:.3g} | {row['guest']:.3g} | {row['unit']} | {row['ratio']:.2f} | {row['aim']} |"
        )
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(section(path) for path in sorted(RESULTS.glob("*.json")))])


def main() -> int:
    """Entry point; with --check exit status 1 when the page is stale."""
    parser = argparse.ArgumentParser(prog="results", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail when the page is stale")
    text = page()
    if parser.parse_args().check:
        if PAGE.read_text() != text:
            print(f"{PAGE} is stale: run python -m benchmarks.results", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
