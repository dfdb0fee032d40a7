"""Writes docs/results.md and SPECIFICATION.md from the JSON files in benchmarks/results: `python -m benchmarks.results [--check]`.

No figure is typed by hand.

Each file is a document of `fairgv-bench --json`, or of `python -m benchmarks.frameworks --json`.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from backend_host.config import PACKAGE_ROOT
from benchmarks import pictures
from benchmarks.document import Document, origin
from benchmarks.experiments import EXPERIMENTS
from benchmarks.frameworks.sheet import frameworks_sheet
from benchmarks.newest import merged, surviving
from benchmarks.paper import claims
from benchmarks.promises import RESULTS, promises
from benchmarks.sheet import Sheet
from benchmarks.specification import SPECIFICATION, specification

SOFTGPU = "softgpu"
PAGE = PACKAGE_ROOT / "docs/results.md"

HEAD = """# Results

Made by `python -m benchmarks.results` from the files in `benchmarks/results`, which `fairgv-bench --json` wrote: no figure is typed by hand,
and of all that was measured the newest run counts. Quote ratios; other figures belong to their machine. Guests are processes where nothing else
is said.
"""
OURS_HEAD = """## What is promised

The numbers are those of [SPECIFICATION.md](../SPECIFICATION.md), which has the claims that tests hold as well. A guest's due is its weight's
part of what its program does alone; the ratio is that of the least to the greatest part of its due that a guest gets. Figures are the worst of
their kind.
"""
PAPER_HEAD = """## Papers beside ours

The GPU of FairGV's paper is a TitanX, its guests are virtual machines; Gemini's is a V100. Each row has the worst of what was found. `behind`
says that it is worse than the paper's, `-` that the paper has only a drawing of it. The programs of FairGV's paper fill its GPU. Where
programs leave ours to each other, all may get more than their due, and the ratio of what they get says nothing: these are judged by the least
that one gets, and by what all do together.
"""
DETAILS_HEAD = """## All that was measured

Intervals are of 95 %.
"""
FRAMEWORKS = "frameworks"
"""The one that is no experiment of `fairgv-bench`."""
TITLES = {
    "overhead": "One guest beside native",
    "mmr": "Shares",
    "shares-over-time": "Shares over time",
    "elastic": "Requests and limits",
    "bursts": "Turns by bursts",
    "kept-turns": "Turns that are kept",
    "clients": "Programs alone, more clients, and programs beside each other",
    "mixed": "Mixed kernel lengths",
    "work-conserving": "Work-conserving scheduling",
    "accounting": "Accounting",
    "slicing": "Long kernels in parts",
    "allocation": "Memory of the device",
    "oversubscription": "More memory than the device has",
    "migration": "Programs that move to another GPU",
    "ahead": "Programs that are copied ahead",
    "balancing": "Several GPUs",
    "arrivals": "Programs that arrive and end",
    "energy": "Energy",
    "gloop": "Event-driven kernels",
    "space": "Sharing in space",
    "run": "Programs of others",
    "loops": "softgpu's speed",
    "decisions": "Decisions",
    FRAMEWORKS: "Frameworks and libraries",
}


def documents(folder: Path) -> list[Document]:
    """In the order of their files' names."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def ours(folder: Path) -> str:
    """Every promise that has a bound, with its last figure."""
    rows = []
    for promise in promises():
        if promise.has_bound:
            figure = promise.figure(folder)
            known = (promise.cell(figure.value), promise.bound(), figure.device, figure.date) if figure else ()
            verdict = ("yes" if promise.keeps(figure.value) else "**no**") if figure else "pending"
            rows.append((promise.number, promise.claim, *(known or ("-", promise.bound(), "-", "-")), verdict))
    return Sheet("", ("", "claim", "figure", "bound", "device", "date", "holds"), tuple(rows)).on_page()


def beside_the_paper(found: Sequence[Document]) -> str:
    """Every claim of the paper, with the worst of what was found about it on a GPU, or that nothing was."""
    rows: list[tuple[str, ...]] = []
    for name, claim in claims().items():
        mine = [
            (finding, document)
            for document in found
            if document["experiment"] in EXPERIMENTS and document["device"] != SOFTGPU
            for finding in EXPERIMENTS[document["experiment"]].findings(document)
            if finding.name == name
        ]
        if not mine:
            rows.append((claim.source, claim.what, claim.text(), "-", "", "-", "-", "not measured"))
            continue
        worst = claim.worst([finding for finding, _ in mine])
        document = next(document for finding, document in mine if finding is worst)
        guests = ", vm" if document.get("guests") == "vm" else ""
        device = f"{document['device'].removeprefix('NVIDIA ')}{guests}"
        which = f"{worst.detail}{f'; the worst of {len(mine)}' if len(mine) > 1 else ''}"
        figures = (claim.text(), f"{worst.ours:.3f}", which, device, document["date"], claim.verdict(worst.ours))
        rows.append((claim.source, claim.what, *figures))
    columns = ("paper", "what", "paper's", "ours", "of", "device", "date", "")
    return Sheet("", columns, tuple(rows)).on_page()


def section(document: Document) -> str:
    """What was measured by one experiment, folded. KeyError for a document of no known kind."""
    kind = document["experiment"]
    sheets = [frameworks_sheet(document)] if kind == FRAMEWORKS else EXPERIMENTS[kind].sheets(document)
    told = [sheet.notes for sheet in sheets]
    tables = [
        (replace(sheet, notes=()) if sheet.notes in told[:number] else sheet).on_page()
        for number, sheet in enumerate(sheets)
    ]
    head = f"<details><summary>{TITLES[kind]}, {document['device']}</summary>\n"
    origins = [f"- {line}" for line in document.get("origins", [origin(document)])]
    return "\n".join([head, *tables, *origins, "", "</details>", ""])


def page(folder: Path = RESULTS) -> str:
    """The whole page."""
    found = documents(folder)
    shown = [picture.on_page() for picture in pictures.ALL if pictures.source(picture, folder) is not None]
    figures = [OURS_HEAD, ours(folder), *shown, PAPER_HEAD, beside_the_paper(surviving(found))]
    return "\n".join([HEAD, *figures, DETAILS_HEAD, *map(section, merged(found))])


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
