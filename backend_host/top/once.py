"""`top --once`: one screen as text, of two looks."""

import time

from rich.cells import cell_len
from rich.console import Console, Group

from backend_host import output
from backend_host.top import drawing
from backend_host.top.asking import Asker
from backend_host.top.figures import Looks

_WHOLE_LINE = 80


def show_once(asker: Asker, seconds: float) -> None:
    """Where there is no terminal, no name is cut."""
    looks = Looks()
    looks.add(asker.ask("status"))
    time.sleep(seconds)
    figures = looks.add(asker.ask("status"))
    width, most_name = Console().width, drawing.MOST_NAME
    if not output.is_terminal():
        most_name = max([0, *(cell_len(row.name) for row in figures.vgpus)])
        width = max(_WHOLE_LINE, width) + most_name
    output.show(Group(*drawing.once(figures, width, most_name)))
