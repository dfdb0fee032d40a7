"""How `--help` shows descriptions of several paragraphs: argparse alone either joins all of them, or keeps lines as wide as our sources are.

It stands here as VersionAction does. Wrong when: a list's item is no `word: ...` or `* ...` behind a full stop. It joins the item before it.
"""

import argparse
import re
import textwrap
from collections.abc import Iterator

_ITEM = re.compile(r"\* |[\w-]+( \(\S+\))?: ")


class Paragraphs(argparse.HelpFormatter):
    """Fills each paragraph to the terminal's width. Lines that are indented, as examples are, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(f"{indent}{line}".rstrip() for line in filled(text, width))


def filled(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width` letters, but for those that are indented and words that are wider."""
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    paragraph: list[str] = []
    for line in text.strip("\n").splitlines():
        is_kept = not line.strip() or line.startswith(" ")
        if is_kept or (paragraph and paragraph[-1].endswith(".") and _ITEM.match(line)):
            yield from wrapper.wrap(" ".join(paragraph))
            paragraph = []
        if is_kept:
            yield line
        else:
            paragraph.append(line)
    yield from wrapper.wrap(" ".join(paragraph))
