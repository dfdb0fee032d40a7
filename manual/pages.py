"""Manual pages in the language of man(7).

Wrong when: argparse changes how a parser holds its options; argparse-manpage follows it, so both are named with ranges in pyproject.toml.
"""

import argparse
import importlib.metadata
import re

from argparse_manpage.compat import get_reproducible_date
from argparse_manpage.manpage import Manpage

from backend_host import config_keys
from backend_host.config import SYSTEM_FILE
from backend_host.config_keys import HEADS, TABLES, Key
from manual.commands import Command, below

TITLE = "FairGV"
_OURS = re.compile(r"\.(TH|SH|SS|TP|PP|B|RS|RE|nf|fi)\b|\.$")
"""Lines that are meant as requests. Another one that looks like a request is text."""
ABOUT_FILE = f"""\
The configuration of FairGV's daemon, a file in TOML. fairgv-host start reads {SYSTEM_FILE} if it is there, or the file that --config
names. Options of the command win over the file, and what neither says is as below.

A size is a number of bytes, or a text that ends in K, M, G or T, powers of 1024: "256M". An unknown key stops the start and is named;
fairgv-host config check names all that is wrong with a file, fairgv-host config show prints what is in force."""


def of_command(command: Command) -> str:
    """The page of a command, in section 1."""
    parser = command.parser()
    for each in below(parser):
        if each is not parser and each.epilog:  # which the library leaves out
            each.description, each.epilog = "\n\n".join(filter(None, (each.description, each.epilog))), None
    for group in parser._action_groups:
        if any(isinstance(action, argparse._SubParsersAction) for action in group._group_actions):
            group.title = "commands"
    notes, parser.epilog = parser.epilog, None
    page = Manpage(parser, format="single-commands-section")
    page.description, page.manual, page.source = command.summary, TITLE, _source()
    page.add_section("getting help", "=", r"\fB\-h\fR, \fB\-\-help\fR, also of each command, tells its options.")
    if notes:
        page.add_section("notes", "=", text(notes))
    page.add_section("see also", "=", escaped(", ".join(command.see_also)))
    return guarded(str(page))


def of_configuration() -> str:
    """The page of the configuration file, in section 5."""
    keys = list(config_keys.keys())
    lines = [
        f'.TH FAIRGV.TOML "5" "{get_reproducible_date()}" "{_source()}" "{TITLE}"',
        ".SH NAME",
        escaped("fairgv.toml - configuration of FairGV's daemon"),
        ".SH DESCRIPTION",
        text(ABOUT_FILE),
        ".SH KEYS",
        *(_entry(key) for key in keys if not key.table),
    ]
    for table in TABLES:
        lines += [f".SH TABLE [{HEADS.get(table, table)}]", text(config_keys.about(table))]
        lines += [_entry(key) for key in keys if key.table == table]
    lines += [".SH EXAMPLE", ".nf", *map(escaped, EXAMPLE.splitlines()), ".fi"]
    lines += [".SH FILES", escaped(str(SYSTEM_FILE)), ".SH SEE ALSO", escaped("fairgv-host(1), fairgv-run(1)")]
    return guarded("\n".join(lines) + "\n")


EXAMPLE = """\
device = "cuda"
slice_ms = 10
region_bytes = "1G"

[vgpu]
weight = 2
memory_bytes = "8G"

[walls]
memory = "8G"
"""


def _entry(key: Key) -> str:
    """Of one key: name, kind and default in the first line, then what it means and what it may be."""
    head = rf"\fB{escaped(key.name)}\fR ({escaped(key.kind)}; default {escaped(key.default)})"
    meaning = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", escaped(sentence(key.meaning)))
    allowed = [escaped(f"Allowed: {key.allowed}.")] if key.allowed else []
    return "\n".join([".TP", head, meaning, *allowed])


def sentence(words: str) -> str:
    """With a capital and a full stop."""
    return f"{words[0].upper()}{words[1:].rstrip('.')}."


def escaped(words: str) -> str:
    """Text as text: no escape begins in it, and a dash can be copied as one."""
    return words.replace("\\", r"\e").replace("-", r"\-")


def text(words: str) -> str:
    """Paragraphs; lines that are indented stay as they are."""
    lines: list[str] = []
    is_kept = False
    for line in words.strip("\n").splitlines():
        if line.startswith(" ") != is_kept:
            is_kept = not is_kept
            lines.append(".nf" if is_kept else ".fi")
        lines.append(escaped(line) if line.strip() else ".PP")
    return "\n".join([*lines, ".fi"] if is_kept else lines)


def guarded(page: str) -> str:
    """A dot or an apostrophe that begins a line of text is no request."""
    lines = page.splitlines()
    return (
        "\n".join(rf"\&{line}" if line[:1] in (".", "'") and not _OURS.match(line) else line for line in lines) + "\n"
    )


def _source() -> str:
    return f"{TITLE} {importlib.metadata.version('fairgv')}"
