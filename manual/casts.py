"""Recordings of a terminal, played on their page of the site by asciinema's player. On a forge they are links to a file.

The recording stands in the page itself: a browser fetches nothing for a page that is a file.

Wrong when: two stand on one page. Their elements would have one name.
"""

import json
import posixpath
import re
from collections.abc import Callable

PLAYER = ("asciinema-player.min.js", "asciinema-player.css")
_LINK = re.compile(r"^\[[^\]\n]+\]\((\S+\.cast)\)$", re.MULTILINE)
"""A link that has a line to itself."""
_SETTINGS = {"poster": "npt:59:59", "fit": "width", "idleTimeLimit": 1}
"""Before it is played it shows its end; where nothing happens it does not wait for longer than a second."""


def played(text: str, place: str, read: Callable[[str], str]) -> str:
    """The text of a page of the site, with a player in place of each link to a recording. `read`: a file of docs/."""
    folder = posixpath.dirname(place)
    script, style = (posixpath.relpath(f"assets/{name}", folder or ".") for name in PLAYER)

    def player(found: re.Match[str]) -> str:
        cast = read(posixpath.normpath(posixpath.join(folder, found[1])))
        source = json.dumps({"data": cast}).replace("</", "<\\/")
        return (  # in one block, whose inside Markdown leaves as it is
            f'<div><link rel="stylesheet" href="{style}"><div id="cast"></div><script src="{script}"></script>'
            f'<script>AsciinemaPlayer.create({source}, document.getElementById("cast"), {json.dumps(_SETTINGS)})</script></div>'
        )

    return _LINK.sub(player, text)
