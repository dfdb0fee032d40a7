"""Paragraphs of `--help`: filled to the width, each by itself, with examples as they are."""

import argparse

from hypothesis import given
from hypothesis import strategies as some

from scheduler.help_text import Paragraphs, filled

TEXT = """\
One that is as wide as our sources are, and wider than a terminal.
And goes on.

first: an item
of two lines.
second (--option): no more than
note: this is none.

    an example --that is --wider than=the --rest of=it
The end.
"""


def test_paragraphs_and_items_are_filled_and_examples_kept() -> None:
    assert list(filled(TEXT, 40)) == [
        "One that is as wide as our sources are,",
        "and wider than a terminal. And goes on.",
        "",
        "first: an item of two lines.",
        "second (--option): no more than note:",
        "this is none.",
        "",
        "    an example --that is --wider than=the --rest of=it",
        "The end.",
    ]


@given(some.lists(some.sampled_from(["word.", "item: a", "* b", "", "  kept"]), max_size=12), some.integers(10, 80))
def test_no_word_is_lost(lines: list[str], width: int) -> None:
    found = list(filled("\n".join(lines), width))
    assert " ".join(found).split() == " ".join(lines).split()
    assert all(len(line) <= width for line in found)


def test_the_terminal_says_how_wide() -> None:
    parser = argparse.ArgumentParser(
        prog="x", description=TEXT, epilog="  kept", formatter_class=lambda prog: Paragraphs(prog, width=40)
    )
    assert "\n".join(filled(TEXT, 40)) in parser.format_help()
    assert parser.format_help().endswith("\n  kept\n")
