"""docs/trouble.md names messages that there are: each part of one, between its `...`, is in the source.

Wrong when: a part is the text of something else. They are long enough for that to be unlikely.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_docs import DOCS, ROOT

_JOINED = re.compile(r'"\s*\n\s*f?"')
"""Where a text goes on in the next line."""
_HEADS = ("line", "reason", "message")
"""Of tables whose first column has messages."""


def messages(page: str) -> Iterator[str]:
    """Those in the first column of the page's tables of messages."""
    head = ""
    for before, line in zip(["", *page.splitlines()], page.splitlines(), strict=False):
        if line.startswith("|") and not before.startswith("|"):
            head = line.split("|")[1].strip()
        found = re.match(r"\| `([^`]+)` \|", line)
        if found and head in _HEADS:
            yield found[1]


def source(folders: tuple[str, ...]) -> str:
    """All texts of the programs that say something, each in one line."""
    paths = (path for folder in folders for path in sorted((ROOT / folder).rglob("*")))
    return "\n".join(_JOINED.sub("", path.read_text()) for path in paths if path.suffix in (".py", ".c"))


@pytest.fixture(scope="module")
def said() -> str:
    return source(("backend_host", "frontend_guest", "ivshmem", "softgpu"))


@pytest.mark.parametrize("message", [*messages((DOCS / "trouble.md").read_text())])
def test_messages_are_in_the_source(said: str, message: str) -> None:
    parts = [part.strip() for part in message.split("...")]
    assert [part for part in parts if part not in said] == []


def test_messages_are_found(tmp_path: Path) -> None:
    page = "| line | why |\n|---|---|\n| `one ... two` | `three` |\n\n| CUDA error | why |\n|---|---|\n| `four` | |\n"
    assert list(messages(page)) == ["one ... two"]
    (tmp_path / "a.c").write_text('say("one "\n    "two");')
    assert "one two" in source((str(tmp_path),))
    assert len(list(messages((DOCS / "trouble.md").read_text()))) > 50
