"""Draws docs/pictures from the JSON files in benchmarks/results: `python -m benchmarks.pictures`.

Each picture keeps a digest of the document that it was made of, by which `python -m benchmarks.results --check` finds one that is stale. Its
texts stay texts, in whatever sans-serif font the reader has.
"""

import hashlib
import io
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend_host.config import PACKAGE_ROOT
from benchmarks.document import Document, records
from benchmarks.due import draw_due
from benchmarks.experiments import EXPERIMENTS
from benchmarks.newest import merged
from benchmarks.promises import RESULTS

PICTURES = PACKAGE_ROOT / "docs/pictures"
MAKER = "python -m benchmarks.pictures"
"""As pictures name it, by which they are told from others."""


@dataclass(frozen=True)
class Theme:
    """Colours: of the page, of texts, of frames and lines in the background, and of the lines that matter, in turn."""

    page: str
    ink: str
    faint: str
    lines: tuple[str, ...]

    def settings(self) -> Any:
        """Of matplotlib, by name. With these the same document gives the same bytes."""
        from cycler import cycler  # noqa: PLC0415 - of matplotlib, an optional dependency

        inks = ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor")
        faints = ("axes.edgecolor", "xtick.color", "ytick.color", "grid.color")
        pages = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
        return {
            **dict.fromkeys(inks, self.ink),
            **dict.fromkeys(faints, self.faint),
            **dict.fromkeys(pages, self.page),
            "axes.prop_cycle": cycler(color=self.lines),
            **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
            **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
            "axes.grid.axis": "y",
            "grid.linewidth": 0.6,
            "font.family": "sans-serif",
            "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
            "font.size": 10,
            "figure.constrained_layout.w_pad": 0.12,  # the reader's font may be wider
            "svg.fonttype": "none",
            "svg.hashsalt": "fairgv",
        }


THEMES: Mapping[str, Theme] = {
    "light": Theme("#ffffff", "#1f2328", "#d1d9e0", ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#9a6700")),
    "dark": Theme("#0d1117", "#e6edf3", "#3d444d", ("#58a6ff", "#f0883e", "#3fb950", "#bc8cff", "#f778ba", "#d29922")),
}


@dataclass(frozen=True)
class Picture:
    """
    Of an experiment's documents, by default its plot; `size` in inches; `text` says what is to be seen.

    With `is_themed` there is one for dark pages, too.
    """

    name: str
    experiment: str
    size: tuple[float, float]
    text: str
    is_themed: bool = False
    draw: Callable[[Document, Any], None] | None = None

    def files(self, folder: Path) -> dict[Path, Theme]:
        """By their paths."""
        if self.is_themed:
            return {folder / f"{self.name}-{theme}.svg": colours for theme, colours in THEMES.items()}
        return {folder / f"{self.name}.svg": THEMES["light"]}

    def on_page(self) -> str:
        """For a page of docs."""
        if not self.is_themed:
            return f"![{self.text}](pictures/{self.name}.svg)\n"
        dark = f'<source media="(prefers-color-scheme: dark)" srcset="pictures/{self.name}-dark.svg">'
        return f'<picture>{dark}<img alt="{self.text}" src="pictures/{self.name}-light.svg"></picture>\n'


def _draw_costs(document: Document, figure: Any) -> None:
    EXPERIMENTS["slicing"].plot({**document, "records": records(document, "cost")}, figure)


ALL = (
    Picture(
        "shares",
        "shares-over-time",
        (8.4, 3.8),
        "Parts of the GPU's time of three guests, and a fourth",
        is_themed=True,
    ),
    Picture("due", "mmr", (8.4, 5.6), "What each guest gets over its due, by program and system", draw=draw_due),
    Picture("overhead", "overhead", (8.4, 3.8), "Time over native of twelve programs, and of kernels by their length"),
    Picture("mixed", "mixed", (8.4, 3.4), "Run time beside a background of kernels, by their length, over that alone"),
    Picture(
        "slicing", "slicing", (8.4, 3.2), "Slowdown of a large kernel, by the blocks of its parts", draw=_draw_costs
    ),
    Picture("hand-overs", "accounting", (8.4, 3.6), "How gaps at hand-overs are distributed, by the length of kernels"),
    Picture("allocation", "allocation", (8.4, 3.4), "Time to get memory and give it back, by its size"),
)


def source(picture: Picture, results: Path = RESULTS) -> Document | None:
    """What a picture is made of: the newest of a GPU, or where there is none, of softgpu."""
    documents: list[Document] = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    mine = [document for document in merged(documents) if document["experiment"] == picture.experiment]
    return max(mine, key=lambda document: (document["device"] != "softgpu", document["date"]), default=None)


def digest(document: Document) -> str:
    """Of all that it says."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def drawn(picture: Picture, document: Document, theme: Theme) -> str:
    """The picture, as SVG. ImportError without matplotlib."""
    import matplotlib  # noqa: PLC0415 - an optional dependency
    from matplotlib import pyplot  # noqa: PLC0415

    matplotlib.use("Agg")
    with matplotlib.rc_context(theme.settings()):
        figure = pyplot.figure(figsize=picture.size, layout="constrained")
        try:
            (picture.draw or EXPERIMENTS[picture.experiment].plot)(document, figure)
            figure.set_size_inches(picture.size)
            text = io.StringIO()
            said = {"Date": None, "Creator": MAKER, "Identifier": digest(document)}
            figure.savefig(text, format="svg", metadata=said)
        finally:
            pyplot.close(figure)
    return text.getvalue()


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


def draw_all(folder: Path = PICTURES, results: Path = RESULTS) -> None:
    """Those that there is a document for."""
    folder.mkdir(parents=True, exist_ok=True)
    for picture in ALL:
        document = source(picture, results)
        if document is None:
            print(f"{picture.name}: there is no document of {picture.experiment} in {results}", file=sys.stderr)
            continue
        for path, theme in picture.files(folder).items():
            path.write_text(drawn(picture, document, theme))


if __name__ == "__main__":
    draw_all()
