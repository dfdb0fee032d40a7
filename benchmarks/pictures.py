"""Draws docs/pictures from the JSON files in benchmarks/results: `python -m benchmarks.pictures`; for slides `--png FOLDER`.

Each picture keeps a digest of the document that it was made of, by which `python -m benchmarks.results --check` finds one that is stale. Its
texts stay texts, in whatever sans-serif font the reader has.
"""

import argparse
import hashlib
import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend_host.config import PACKAGE_ROOT
from benchmarks.document import Document, records
from benchmarks.due import draw_due, has_the_drivers
from benchmarks.experiments import EXPERIMENTS, balancing, joins, migration
from benchmarks.newest import merged
from benchmarks.promises import RESULTS
from benchmarks.style import THEMES, Theme, figure_of

PICTURES = PACKAGE_ROOT / "docs/pictures"
MAKER = "python -m benchmarks.pictures"
"""As pictures name it, by which they are told from others."""


@dataclass(frozen=True)
class Picture:
    """
    Of an experiment's documents, by default its plot, for light pages and for dark ones; `size` in inches; `text` says what is to be seen.
    """

    name: str
    experiment: str
    size: tuple[float, float]
    text: str
    draw: Callable[[Document, Any], None] | None = None
    has_enough: Callable[[Document], bool] = lambda _: True
    """Of a document that was merged: whether the picture can be drawn of it."""

    def files(self, folder: Path) -> dict[Path, Theme]:
        """By their paths."""
        return {folder / f"{self.name}-{theme}.svg": colours for theme, colours in THEMES.items()}

    def on_page(self) -> str:
        """For a page of docs."""
        dark = f'<source media="(prefers-color-scheme: dark)" srcset="pictures/{self.name}-dark.svg">'
        return f'<picture>{dark}<img alt="{self.text}" src="pictures/{self.name}-light.svg"></picture>\n'


def _draw_joins(document: Document, figure: Any) -> None:
    EXPERIMENTS["elastic"].plot({**document, "records": records(document, joins.KIND)}, figure)


def _has_joins(document: Document) -> bool:
    return bool(records(document, joins.KIND))


def _draw_costs(document: Document, figure: Any) -> None:
    EXPERIMENTS["slicing"].plot({**document, "records": records(document, "cost")}, figure)


def _draw_load(document: Document, figure: Any) -> None:
    balancing.plot_load(document, figure)


def _has_replay(document: Document) -> bool:
    return any(record["memory"] == migration.REPLAY for record in records(document, migration.KIND))


def _draw_moves(document: Document, figure: Any) -> None:
    migration.plot_parts(document, figure)


def _draw_harm(document: Document, figure: Any) -> None:
    balancing.plot_harm(document, figure)


ALL = (
    Picture(
        "shares",
        "shares-over-time",
        (8.4, 3.8),
        "Parts of the GPU's time of three guests, and a fourth",
    ),
    Picture(
        "joins",
        "elastic",
        (8.4, 3.8),
        "Parts of the GPU's time of three programs with requests and limits that join and leave",
        draw=_draw_joins,
        has_enough=_has_joins,
    ),
    Picture(
        "due",
        "mmr",
        (8.4, 5.6),
        "What each guest gets over its due, by program and system",
        draw=draw_due,
        has_enough=has_the_drivers,
    ),
    Picture("overhead", "overhead", (8.4, 3.8), "Time over native of twelve programs, and of kernels by their length"),
    Picture("mixed", "mixed", (8.4, 3.4), "Run time beside a background of kernels, by their length, over that alone"),
    Picture(
        "slicing", "slicing", (8.4, 3.2), "Slowdown of a large kernel, by the blocks of its parts", draw=_draw_costs
    ),
    Picture("hand-overs", "accounting", (8.4, 3.6), "How gaps at hand-overs are distributed, by the length of kernels"),
    Picture("allocation", "allocation", (8.4, 3.4), "Time to get memory and give it back, by its size"),
    Picture(
        "balancing", "balancing", (8.4, 3.4), "Mean time of programs on four GPUs, with placement alone and with moves"
    ),
    Picture(
        "balancing-load",
        "balancing",
        (8.4, 3.2),
        "How much of four GPUs programs want, GPU by GPU, with placement alone and with moves",
        draw=_draw_load,
        has_enough=balancing.has_loads,
    ),
    Picture(
        "balancing-harm",
        "balancing",
        (8.4, 3.4),
        "Programs that are hardly slowed down on four GPUs, and Jain's index, with placement alone and with moves",
        draw=_draw_harm,
    ),
    Picture(
        "energy",
        "energy",
        (8.4, 3.6),
        "Energy of GPUs with light programs joined on few of them, over that of placement alone",
    ),
    Picture(
        "migration",
        "migration",
        (8.4, 3.4),
        "Pauses of a program that moves to another GPU, by its memory",
        has_enough=_has_replay,
    ),
    Picture(
        "migration-parts",
        "migration",
        (8.4, 3.4),
        "Part of a run of half a minute that one move costs a program, by its memory",
        draw=_draw_moves,
        has_enough=_has_replay,
    ),
    Picture("oversubscription", "oversubscription", (8.4, 3.6), "Throughput by how much of a card is allocated"),
)


def source(picture: Picture, results: Path = RESULTS) -> Document | None:
    """What a picture is made of: the newest of a GPU that has enough for it, or where there is none, of softgpu."""
    documents: list[Document] = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    mine = [
        document
        for document in merged(documents)
        if document["experiment"] == picture.experiment and picture.has_enough(document)
    ]
    return max(mine, key=lambda document: (document["device"] != "softgpu", document["date"]), default=None)


def digest(document: Document) -> str:
    """Of all that it says."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def drawn(picture: Picture, document: Document, theme: Theme, kind: str = "svg") -> bytes:
    """The picture, as SVG or as another of matplotlib's kinds. ImportError without matplotlib."""
    with figure_of(picture.size, theme) as figure:
        (picture.draw or EXPERIMENTS[picture.experiment].plot)(document, figure)
        figure.set_size_inches(picture.size)
        file = io.BytesIO()
        said = {"Date": None, "Creator": MAKER, "Identifier": digest(document)} if kind == "svg" else {}
        figure.savefig(file, format=kind, metadata=said)
    return file.getvalue()


def stale(folder: Path = PICTURES, results: Path = RESULTS) -> list[Path]:
    """Pictures that are not made of what there is now, or of nothing that there is."""
    wanted = {
        path: digest(document)
        for picture in ALL
        if (document := source(picture, results)) is not None
        for path in picture.files(folder)
    }
    there = {path: text for path in folder.glob("*.svg") if MAKER in (text := path.read_text())}
    return sorted(path for path in {*wanted, *there} if path not in wanted or wanted[path] not in there.get(path, ""))


def draw_all(folder: Path = PICTURES, results: Path = RESULTS, kind: str = "svg") -> None:
    """Those that there is a document for."""
    folder.mkdir(parents=True, exist_ok=True)
    for picture in ALL:
        document = source(picture, results)
        if document is None:
            print(f"{picture.name}: there is no document of {picture.experiment} in {results}", file=sys.stderr)
            continue
        for path, theme in picture.files(folder).items():
            path.with_suffix(f".{kind}").write_bytes(drawn(picture, document, theme, kind))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pictures", description="Draws docs/pictures from benchmarks/results.")
    parser.add_argument("--png", type=Path, metavar="FOLDER", help="write PNG files there in place of those of docs")
    folder = parser.parse_args(arguments).png
    if folder is None:
        draw_all()
    else:
        draw_all(folder, kind="png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
