"""The recording in docs/start.md: it is of a run that went well, small enough for a page, and the site plays it.

`make cast` makes it anew. Wrong when: what `make demo` prints is another today; nobody compares.
"""

import json
import re
from itertools import pairwise

import pytest

from manual.casts import PLAYER, played
from tests.test_docs import DOCS, ROOT

CAST = DOCS / "pictures/demo.cast"
MOST_BYTES = 300_000
_DATA = re.compile(r"AsciinemaPlayer\.create\((.*?), document\.getElementById")


def data(page: str) -> str:
    """What the player in a page is given."""
    [found] = _DATA.findall(page)
    return str(json.loads(found)["data"])


def test_it_is_of_a_run_that_went_well() -> None:
    header, *events = map(json.loads, CAST.read_text().splitlines())
    assert (header["version"], header["width"]) == (2, 80)
    assert len(CAST.read_bytes()) < MOST_BYTES
    assert all(one[0] <= other[0] for one, other in pairwise(events))
    said = "".join(text for _, kind, text in events if kind == "o")
    assert said.startswith("$ make demo\r\n")
    assert "PASS" in said
    assert "FAIL" not in said
    assert "Shares follow the weights" in said
    assert str(ROOT) not in said, "it is of no machine in particular"


def test_a_link_with_a_line_to_itself_is_played() -> None:
    text = "one\n\n[a](pictures/x.cast)\n\ntwo [b](pictures/x.cast)\n\n[c](pictures/x.svg)\n"
    read = {"pictures/x.cast": '{"version": 2}\n[0.1, "o", "\\u001b[1m</script>&amp;"]\n'}
    page = played(text, "start.md", read.__getitem__)
    assert data(page) == read["pictures/x.cast"]
    assert page.count("</script>") == 2, "that of the recording ends nothing"
    assert page.startswith("one\n\n<div>")
    assert page.endswith("</div>\n\ntwo [b](pictures/x.cast)\n\n[c](pictures/x.svg)\n")


@pytest.mark.parametrize(("place", "climb"), [("start.md", ""), ("lab/x.md", "../")])
def test_pages_of_all_folders_find_player_and_recording(place: str, climb: str) -> None:
    page = played(f"[a]({climb}pictures/x.cast)", place, {"pictures/x.cast": "it"}.__getitem__)
    assert data(page) == "it"
    assert all(f'"{climb}assets/{name}"' in page for name in PLAYER)
    assert all((ROOT / "manual/static" / name).exists() for name in PLAYER)
