"""The pages' links: each names a file that is there, and a heading that is on its page. Every page of docs/ has a line in docs/README.md.

Wrong when: a forge makes its anchors in another way than GitHub does, or a page says the same heading in a way that only Markdown's full
grammar finds. Ours are plain: `# Words` on a line of its own.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
_FENCE = re.compile(r"^ {0,3}(```|~~~).*?^ {0,3}\1\s*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)[^)]*\)")
_PICTURE = re.compile(r"<(?:img|source) [^>]*\b(?:src|srcset)=[\"']([^\"']+)[\"']")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_ID = re.compile(r"<[a-z]+ [^>]*\b(?:id|name)=[\"']([^\"']+)[\"']")
_ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:", re.IGNORECASE)


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return _FENCE.sub("", text)


def links(text: str) -> Iterator[str]:
    """What a page's links and pictures name, those on other hosts left out."""
    text = _CODE.sub("", prose(text))
    for target in (*_LINK.findall(text), *_PICTURE.findall(text)):
        if not _ELSEWHERE.match(target):
            yield target


def anchors(text: str) -> set[str]:
    """Of a page's headings, as GitHub makes them; a heading that is there again gets a number. Ids that HTML gives, too."""
    found: set[str] = set(_ID.findall(text))
    counts: dict[str, int] = {}
    for heading in _HEADING.findall(prose(text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = counts.get(slug, 0)
        counts[slug] = count + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found


def broken(page: Path) -> list[str]:
    """Links of a page that lead nowhere."""
    wrong = []
    for target in links(page.read_text()):
        path, _, anchor = target.partition("#")
        named = page.parent / path if path else page
        if not named.exists():
            wrong.append(f"{target}: no such file")
        elif anchor and anchor not in anchors(named.read_text()):
            wrong.append(f"{target}: no such heading")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_every_page_has_a_line_in_the_index() -> None:
    named = set(links((DOCS / "README.md").read_text()))
    assert [page.name for page in sorted(DOCS.glob("*.md")) if page.name not in {*named, "README.md"}] == []


@pytest.mark.parametrize("package", ["frontend_guest", "backend_host/worker"])
def test_the_floors_are_named_where_calls_are_looked_for(package: str) -> None:
    """In their order, the lowest first."""
    row = next(line for line in (DOCS / "README.md").read_text().splitlines() if f"| `{package}/FLOOR/NAME.c`" in line)
    named = re.findall(r"\w+", row.partition("floors ")[2].partition(".")[0])
    floors = tomllib.loads((ROOT / "tests/floors.toml").read_text())[package]["floors"]
    assert named == list(floors)


def test_what_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text('# Two words, `code`\n## Again\n## Again\n<a id="F4"></a>\n```\n# none\n```\n')
    page.write_text(
        "[a](other.md) [b](other.md#two-words-code) [c](other.md#again-1) [d](other.md#F4) [e](#none) [f](gone.md)\n"
        "[g](other.md#none) `[h](gone.md)` [i](https://example.org/x)\n```\n[j](gone.md)\n```\n![k](gone.png)\n"
    )
    assert broken(page) == [
        "#none: no such heading",
        "gone.md: no such file",
        "other.md#none: no such heading",
        "gone.png: no such file",
    ]
