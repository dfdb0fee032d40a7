"""The files of the page, and what browsers may do with it: load what this server has, run the scripts that came as files, and no more.

Nothing in the page can run a script of its own, so a name that somebody chose stays text whatever is in it.
"""

from functools import cache
from pathlib import Path

STATIC = Path(__file__).with_name("static")
STYLES = ("uPlot.min.css", "page.css")
SCRIPTS = ("uPlot.iife.min.js", "theme.js", "data.js", "charts.js", "devices.js", "table.js", "page.js")
"""In the order of their loading."""
PAGE = "index.html"
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_NOTHING_ELSE = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
POLICY = f"{_NOTHING_ELSE}; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'"


def policy_of_report(style_hashes: list[str], script_hashes: list[str]) -> str:
    """For a page that has its files in it: those, and nothing else."""
    styles, scripts = (" ".join(f"'sha256-{each}'" for each in hashes) for hashes in (style_hashes, script_hashes))
    return f"{_NOTHING_ELSE}; script-src {scripts}; style-src {styles}"


@cache
def text_of(name: str) -> str:
    """Of one of the files."""
    return (STATIC / name).read_text()


def served() -> dict[str, tuple[str, bytes]]:
    """What each path of the page is answered with: its kind, and the bytes."""
    files = {f"/{name}": name for name in (*STYLES, *SCRIPTS)} | {"/": PAGE}
    return {
        path: (f"{_KINDS[Path(name).suffix]}; charset=utf-8", text_of(name).encode()) for path, name in files.items()
    }
