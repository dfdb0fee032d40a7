"""Writes docs/results.md from the JSON files in benchmarks/results: `python -m benchmarks.results [--check]`. No figure is typed by hand.

Each file is a document of `fairgv-bench --json`, or of `python -m benchmarks.frameworks --json`.
"""

import argparse
import json
import sys
from pathlib import Path

from backend_host.config import PACKAGE_ROOT
from benchmarks.document import Document, origin
from benchmarks.experiments import EXPERIMENTS
from benchmarks.frameworks.grid import frameworks_grid
from benchmarks.grid import Grid
from benchmarks.paper import claims

RESULTS = PACKAGE_ROOT / "benchmarks/results"
PAGE = PACKAGE_ROOT / "docs/results.md"

HEAD = """# Results

Made by `python -m benchmarks.results` from the files in `benchmarks/results`, which `fairgv-bench --json` wrote: no figure is typed by hand.
Quote ratios; the other figures belong to their machine.
"""
PAPER_HEAD = """## The paper's section 5 beside ours

The paper's GPU is a TitanX, its guests are virtual machines; ours are processes where nothing else is said. `behind` says that ours is worse
than the paper's, `-` that the paper has only a drawing of it.
"""
FRAMEWORKS = "frameworks"
"""The one that is no experiment of `fairgv-bench`."""
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
    FRAMEWORKS: "Frameworks and libraries",
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
    grids = [frameworks_grid(document)] if kind == FRAMEWORKS else EXPERIMENTS[kind].grids(document)
    head = f"## {TITLES[kind]}, {document['device']}\n\n{origin(document)}\n"
    return "\n".join([head, *(grid.on_page() for grid in grids)])


def page(folder: Path = RESULTS) -> str:
    """The whole page."""
    found = documents(folder)
    return "\n".join([HEAD, PAPER_HEAD, beside_the_paper(found), *map(section, found)])


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
