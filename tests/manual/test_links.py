"""Links of pages in the site: to pages they stay links, to other files they are the files' names."""

from pathlib import Path

import pytest

from manual.links import OUTSIDE, anchor, for_site, place_of, source_of
from tests.test_docs import PAGES, ROOT, anchors, links


@pytest.mark.parametrize(
    ("place", "text", "there"),
    [
        ("vm.md", "[a](region.md#heap)", "[a](region.md#heap)"),
        ("vm.md", "[a](lab/waiting.md) ![b](pictures/top.svg)", "[a](lab/waiting.md) ![b](pictures/top.svg)"),
        ("vm.md", "[a](../README.md), [b](../SPECIFICATION.md#F4)", "[a](fairgv.md), [b](specification.md#F4)"),
        ("lab/shares.md", "[a](../../SPECIFICATION.md)", "[a](../specification.md)"),
        ("lab/shares.md", "[a](../fairness.md)", "[a](../fairness.md)"),
        ("fairgv.md", "[a](docs/vm.md) [b](LICENSE)", "[a](vm.md) b (`LICENSE`)"),
        ("qemu.md", "[a](../docs/vm.md)", "[a](vm.md)"),
        ("vm.md", "[device.h](../ivshmem/device.h)", "`ivshmem/device.h`"),
        ("vm.md", "[`device.h`](../ivshmem/device.h#x)", "`ivshmem/device.h`"),
        ("vm.md", "[A test](../tests/test_x.py) holds it", "A test (`tests/test_x.py`) holds it"),
        ("vm.md", "[a](https://example.org/x) [b](#here)", "[a](https://example.org/x) [b](#here)"),
        ("vm.md", "`[a](../x.py)`", "`[a](../x.py)`"),
        ("vm.md", "```\n[a](../x.py)\n```\n[b](../b)", "```\n[a](../x.py)\n```\n`b`"),
        ("vm.md", "`one\ntwo` [b](../b) `c`", "`one\ntwo` `b` `c`"),
        ("fairgv.md", '<img src="docs/pictures/a.svg">', '<img src="pictures/a.svg">'),
        ("fairgv.md", '<source srcset="docs/pictures/a.svg">', '<source srcset="pictures/a.svg">'),
    ],
)
def test_where_a_link_leads(place: str, text: str, there: str) -> None:
    assert for_site(text, place) == there


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_of_a_page_leaves_the_site(page: Path) -> None:
    place = place_of(str(page.relative_to(ROOT)))
    if place is None:
        pytest.skip("it is no page of the site")
    text = for_site((ROOT / source_of(place)).read_text(), place)
    climbs = "../" * (place.count("/") + 1)
    assert [link for link in links(text) if link.startswith(climbs)] == []


def test_pages_outside_docs_are_there() -> None:
    assert [path for path in OUTSIDE if not (ROOT / path).is_file()] == []


def test_anchors_are_those_of_the_forge() -> None:
    headings = ("Words, and `code`", "fairgv-memory: on request", "What is left?", "A  gap")
    assert {anchor(heading.replace("`", "")) for heading in headings} == anchors(
        "\n".join(f"# {each}" for each in headings)
    )
