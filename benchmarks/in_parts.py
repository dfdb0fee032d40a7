"""An experiment of several parts, as documents show it: a sheet, figures and a panel for each part that was measured."""

from typing import Any, ClassVar

from benchmarks.document import Document
from benchmarks.errors import NotMeasurableError
from benchmarks.experiment import Experiment
from benchmarks.part import Part
from benchmarks.sheet import Sheet
from benchmarks.style import head

PANEL_INCHES = (8, 4.6)


class ExperimentInParts(Experiment):
    """What it measures, and in which order, is its own affair."""

    parts: ClassVar[tuple[Part, ...]]
    title: ClassVar[str]
    """Of its picture, where no part has a finding."""

    def sheets(self, document: Document) -> list[Sheet]:
        """One for each part that was measured."""
        return [sheet for part in self.parts if (sheet := part.sheet(document)) is not None]

    def figures(self, document: Document) -> dict[str, float]:
        """Of all parts; their names begin with the part's."""
        return {name: figure for part in self.parts for name, figure in part.figures(document).items()}

    def plot(self, document: Document, figure: Any) -> None:
        """A panel for each part that was measured, with its finding; the first one's is the picture's."""
        measured = [part for part in self.parts if part.sheet(document) is not None]
        if not measured:
            raise NotMeasurableError("nothing was measured")
        figure.set_size_inches(PANEL_INCHES[0], PANEL_INCHES[1] * len(measured))
        told: list[str] = []
        for axes, part in zip(figure.subplots(len(measured), 1, squeeze=False)[:, 0], measured, strict=True):
            if finding := part.draw(axes, document):
                axes.set_title(finding if told else "", fontsize="small")
                told.append(finding)
        head(figure, told[0] if told else self.title, document)
