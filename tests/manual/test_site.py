"""The site of docs/: every page is in its navigation, it builds without a warning, and reading it asks no host for anything.

Wrong when: a script asks for something only once a reader does what no test here does. The browser is asked to search, no more.
"""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from manual.links import OUTSIDE
from manual.reference import pages
from tests.backend_host.web import browser
from tests.test_docs import DOCS, ROOT

_LOADS = re.compile(
    r"<(?:script|img|source|iframe|link|video|audio|embed|object)\b[^>]*\b(?:src|srcset|href|data)=[\"']?(?:https?:)?//[^>]*>"
    r"|(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\s]*",
    re.IGNORECASE,
)
needs_mkdocs = pytest.mark.skipif(
    find_spec("mkdocs") is None or find_spec("material") is None, reason="mkdocs is not installed: make docs brings it"
)


def navigation() -> list[str]:
    """The pages that mkdocs.yml names, in their order."""
    _, _, nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    return re.findall(r"([\w./-]+\.md)$", nav, re.MULTILINE)


def loads(text: str) -> list[str]:
    """What a reader's browser would get from another host."""
    return [found[0] for found in _LOADS.finditer(text)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` makes."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "WARNING -" not in built.stderr
    return folder


def test_every_page_is_in_the_navigation_once() -> None:
    there = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")]
    assert sorted(navigation()) == sorted([*there, *OUTSIDE.values(), *(place for place, _ in pages())])


def test_what_would_be_found() -> None:
    assert (
        len(
            loads(
                '<script src="https://a/x.js"></script><link rel=x href=//a/y.css> url("http://a/z") @import "https://a"'
            )
        )
        == 4
    )
    assert loads('<a href="https://a/">a</a><img src="a.svg"> <svg xmlns="http://www.w3.org/2000/svg"> url(#a)') == []


@needs_mkdocs
def test_nothing_is_asked_of_another_host(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css", ".svg")]
    assert len(files) > len(navigation())
    assert {str(path.relative_to(site)): found for path in files if (found := loads(path.read_text()))} == {}


@needs_mkdocs
def test_the_build_leaves_nothing_in_the_tree(site: Path) -> None:
    assert not (DOCS / "reference").exists()
    assert (site / "reference/fairgv-host.html").exists()


@needs_mkdocs
@browser.needs_browser
def test_the_search_finds_things_in_files(site: Path) -> None:
    with browser.started() as started, browser.opened(started, (site / "index.html").as_uri()) as visit:
        visit.page.fill("[data-md-component=search-query]", "pcie-root-port")
        visit.page.wait_for_selector(".md-search-result__link[href*='libvirt.html']", state="attached")
        assert [url for url in visit.requests if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
        assert visit.complaints == []


@needs_mkdocs
@browser.needs_browser
def test_the_recording_is_played_from_a_file(site: Path) -> None:
    """Before somebody plays it, its end is shown."""
    with browser.started() as started, browser.opened(started, (site / "start.html").as_uri()) as visit:
        visit.page.wait_for_function(
            "document.querySelector('.ap-term')?.innerText.includes('Shares follow the weights')"
        )
        assert [url for url in visit.requests if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
        assert visit.complaints == []
