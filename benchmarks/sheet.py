"""A table that knows no medium: shown on a terminal, or written into the page of results."""

from dataclasses import dataclass

from rich.table import Table


@dataclass(frozen=True)
class Sheet:
    """Cells as they are read. `notes` stand below it on a terminal, above it on a page."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def on_terminal(self) -> Table:
        """The first column is a name, the others are mostly figures."""
        table = Table(title=self.title, title_justify="left", caption=" ".join(self.notes), caption_justify="left")
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="right" if self._is_numeric(number) else "left")
        for row in self.rows:
            table.add_row(*row)
        return table

    def on_page(self) -> str:
        """Markdown, with the title, where there is one, as a heading of the third order."""
        marks = ("---:" if self._is_numeric(number) else "---" for number in range(len(self.columns)))
        lines = [f"### {self.title}", ""] if self.title else []
        if self.notes:
            lines += [" ".join(self.notes), ""]
        lines += [_line(self.columns), f"|{'|'.join(marks)}|", *map(_line, self.rows)]
        return "\n".join(lines) + "\n"

    def _is_numeric(self, number: int) -> bool:
        cells = [row[number] for row in self.rows if row[number] not in ("", "-")]
        return bool(cells) and all(cell[0].isdigit() or cell[0] in "+-<>" for cell in cells)


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
