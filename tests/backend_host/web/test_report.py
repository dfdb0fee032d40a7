"""The page as one file: it is whole, runs nothing but the page's own scripts, and is written as a whole or not at all."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from backend_host.errors import FairGVError
from backend_host.web.files import SCRIPTS, STYLES, text_of
from backend_host.web.report import page_of, write
from tests.backend_host.web.played import Played, Tenant

HOSTILE = "</script><script>alert(1)</script><!--"


def page(name: str = "one") -> tuple[str, dict[str, object]]:
    played = Played([Tenant(name, lambda second: 0.5)])
    teller = played.teller()
    played.play(teller, 11)
    return page_of(teller.document()), teller.document()


def test_it_has_all_files_and_names_each_by_its_hash() -> None:
    text, _ = page()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    for name in (*STYLES, *SCRIPTS):
        assert text_of(name) in text
        assert f"'sha256-{base64.b64encode(hashlib.sha256(text_of(name).encode()).digest()).decode()}'" in policy[1]
    assert "'self'" not in policy[1]
    assert " src=" not in text
    assert 'rel="stylesheet"' not in text
    assert "connect-src" not in policy[1], "nothing is asked of anybody: default-src is 'none'"


def test_what_is_told_stands_in_it() -> None:
    text, document = page()
    found = re.search(r'<script type="application/json" id="document">(.*)</script>', text)
    assert found is not None
    assert json.loads(found[1]) == document


@pytest.mark.parametrize("name", [HOSTILE, "\ud800", "\u2028"])
def test_no_name_ends_the_element_that_it_stands_in(name: str) -> None:
    text, _ = page(name)
    assert text.count("</script>") == len(SCRIPTS) + 1
    assert HOSTILE not in text
    text.encode()


def test_none_of_the_files_ends_its_element() -> None:
    assert not any("</style" in text_of(name) for name in STYLES)
    assert not any("</script" in text_of(name) for name in SCRIPTS)


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    _, document = page()
    write(tmp_path / "report.html", document)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(FairGVError, match=r"cannot write .*none/report.html: No such file"):
        write(tmp_path / "none/report.html", document)
    (tmp_path / "folder").mkdir()
    with pytest.raises(FairGVError, match=r"cannot write .*folder: Is a directory"):
        write(tmp_path / "folder", document)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "report.html"]
