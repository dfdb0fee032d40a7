"""Writes docs/results.md and SPECIFICATION.md from the JSON files in benchmarks/results: `python -m benchmarks.results [--check]`.

No figure is typed by hand.

Each file is a document of `fairgv-bench --json`, or of `python -m benchmarks.frameworks --json` or `benchmarks.preemption`.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from backend_host.config import PACKAGE_ROOT
from benchmarks import pictures
from benchmarks.document import Document, origin
from benchmarks.experiments import EXPERIMENTS
from benchmarks.frameworks.grid import frameworks_grid
from benchmarks.grid import Grid
from benchmarks.paper import claims
from benchmarks.preemption.grid import preemption_grids
from benchmarks.promises import RESULTS
from benchmarks.specification import SPECIFICATION, specification

PAGE = PACKAGE_ROOT / "docs/results.md"

HEAD = """# Results

Made by `python -m benchmarks.results` from the files in `benchmarks/results`, which `fairgv-bench --json` wrote: no figure is typed by hand.
Quote ratios; the other figures belong to their machine.
"""
PAPER_HEAD = """## The paper's section 5 beside ours

The paper's GPU is a TitanX, its guests are virtual machines; ours are processes where nothing else is said. `behind` says that ours is worse
than the paper's, `-` that the paper has only a drawing of it.
"""
OTHERS: dict[str, Callable[[Document], list[Grid]]] = {
    "frameworks": lambda document: [frameworks_grid(document)],
    "preemption": preemption_grids,
}
"""Those that are no experiments of `fairgv-bench`."""
TITLES = {
    "overhead": "One guest beside native",
    "mmr": "Shares",
    "mixed": "Mixed kernel lengths",
    "work-conserving": "Work-conserving scheduling",
    "accounting": "Accounting",
    "slicing": "Long kernels in parts",
    "run": "Programs of others",
    "loops": "softgpu's speed",
    "decisions": "Decisions",
    "frameworks": "Frameworks and libraries",
    "preemption": "Kernels without PTX, preempted by their owner",
}


def documents(folder: Path) -> list[Document]:
    """In the order of their files' names."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def beside_the_paper(found: list[Document]) -> str:
    """Every claim of the paper, with what was found about it, or that nothing was."""
    rows: list[tuple[str, ...]] = []
    for name, claim in claims().items():
        mine = [
            (document, finding)
            for document in found
            if document["experiment"] in EXPERIMENTS
            for finding in EXPERIMENTS[document["experiment"]].findings(document)
            if finding.name == name
        ]
        for document, finding in mine:
            source, what, theirs, ours, verdict = finding.cells()
            guests = ", vm" if document.get("guests") == "vm" else ""
            rows.append((source, what, theirs, ours, f"{document['device']}{guests}", verdict))
        if not mine:
            rows.append((claim.source, claim.what, claim.text(), "-", "-", "not measured"))
    return Grid("", ("paper", "what", "paper's", "ours", "device", ""), tuple(rows)).on_page()


def section(document: Document) -> str:
    """One measurement. KeyError for a document of no known kind."""
    kind = document["experiment"]
    grids_of = EXPERIMENTS[kind].grids if kind in EXPERIMENTS else OTHERS[kind]
    head = f"## {TITLES[kind]}, {document['device']}\n\n{origin(document)}\n"
    return "\n".join([head, *(grid.on_page() for grid in grids_of(document))])


def page(folder: Path = RESULTS) -> str:
    """The whole page."""
    found = documents(folder)
    return "\n".join([HEAD, PAPER_HEAD, beside_the_paper(found), *map(section, found)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; with --check exit status 1 when something is stale."""
    parser = argparse.ArgumentParser(prog="results", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail when something is stale")
    texts = {PAGE: page(), SPECIFICATION: specification()}
    if not parser.parse_args(arguments).check:
        for path, text in texts.items():
            path.write_text(text)
        return 0
    stale = [path for path, text in texts.items() if path.read_text() != text]
    for path in stale:
        print(f"{path} is stale: run python -m benchmarks.results", file=sys.stderr)
    for path in (old := pictures.stale()):
        print(f"{path} does not come from benchmarks/results: run python -m benchmarks.pictures", file=sys.stderr)
    return 1 if stale or old else 0


if __name__ == "__main__":
    sys.exit(main())
