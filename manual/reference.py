"""The site's pages about commands and the configuration, in Markdown, made from the parsers and declarations as manual pages are."""

import argparse
import itertools
import re
from collections.abc import Iterable, Iterator

from backend_host import config_keys
from backend_host.config_keys import HEADS, TABLES, Key
from manual.commands import COMMANDS, Command, options
from manual.pages import ABOUT_FILE, EXAMPLE, sentence

FOLDER = "reference"
_CODE_OR_SPECIAL = re.compile(r"`[^`]*`|[\\`*_|<>&\[\]]")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def pages() -> Iterator[tuple[str, str]]:
    """Place in the site, and text, of each."""
    yield f"{FOLDER}/index.md", _index()
    for command in COMMANDS:
        yield f"{FOLDER}/{command.name}.md", of_command(command)
    yield f"{FOLDER}/configuration.md", of_configuration()


def _index() -> str:
    rows = [(f"[{command.name}]({command.name}.md)", command.summary) for command in COMMANDS]
    rows += [
        ("[fairgv.toml](configuration.md)", "every key of the configuration"),
        ("[metrics](../metrics.md#all-of-them)", "every metric that Prometheus is told"),
        ("[JSON](../json.md)", "every key that `--json` prints"),
        ("[calls](../coverage.md)", "every call of CUDA's driver, and how it is answered"),
    ]
    return "\n".join(["# Reference", "", *_table(("page", "tells"), rows), ""])


def of_command(command: Command) -> str:
    """The page of a command: itself, then each command below it."""
    return "\n".join([f"# {command.name}", *_section(command.parser(), sentence(command.summary), 1)]) + "\n"


def _section(parser: argparse.ArgumentParser, summary: str, depth: int) -> Iterator[str]:
    """What one parser says; its commands follow, each below a heading of its own."""
    yield from ("", *_paragraphs(parser.description or summary))
    yield from ("```", *_usage(parser), "```", "")
    rows = [(_code(_invocation(parser, action)), prose(_help(parser, action))) for action in options(parser)]
    yield from (*_table(("option", "what"), rows), "")
    yield from _paragraphs(parser.epilog or "")
    for action in parser._actions:  # argparse has no other way to them
        if isinstance(action, argparse._SubParsersAction):
            told = {each.dest: sentence(each.help or each.dest) for each in action._choices_actions}
            for name, below in action.choices.items():
                yield f"{'#' * min(depth + 1, 6)} {below.prog}"
                yield from _section(below, told[name], depth + 1)


def _usage(parser: argparse.ArgumentParser) -> list[str]:
    formatter = argparse.HelpFormatter(parser.prog, width=84)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    return formatter.format_help().strip().splitlines()


def _invocation(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._format_action_invocation(action)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return " ".join(parser._get_formatter()._expand_help(action).split()) if action.help else ""


def of_configuration() -> str:
    """The page of the configuration file: keys outside tables, then those of each table."""
    keys = list(config_keys.keys())
    lines = ["# The configuration", "", *_paragraphs(ABOUT_FILE), "```toml", *EXAMPLE.splitlines(), "```", ""]
    lines += ["## Keys", "", *_keys(key for key in keys if not key.table), ""]
    for table in TABLES:
        lines += [f"## [{HEADS.get(table, table)}]", "", prose(config_keys.about(table)), ""]
        lines += [*_keys(key for key in keys if key.table == table), ""]
    return "\n".join(lines)


def _keys(keys: Iterable[Key]) -> list[str]:
    rows = [(_code(key.name), key.kind, _code(key.default), prose(_meaning(key))) for key in keys]
    return _table(("key", "kind", "default", "what"), rows)


def _meaning(key: Key) -> str:
    return sentence(key.meaning) + (f" Allowed: {key.allowed}." if key.allowed else "")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """None where there are no rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *lines] if lines else []


def _paragraphs(words: str) -> Iterator[str]:
    """Text as paragraphs, each with an empty line behind it; lines that are indented stay as they are."""
    for paragraph in re.split(r"\n\s*\n", words.strip("\n")):
        for is_kept, group in itertools.groupby(paragraph.splitlines(), key=lambda line: line.startswith(" ")):
            lines = list(group)
            yield from ("```", *lines, "```", "") if is_kept else (*map(prose, lines), "")


def _code(words: str) -> str:
    return f"`{words}`" if words else ""


def prose(words: str) -> str:
    """Text as text: of Markdown only code between backquotes means something."""
    return _CODE_OR_SPECIAL.sub(lambda found: _plain(found[0]), words)


def _plain(part: str) -> str:
    return part if len(part) > 1 else _ENTITIES.get(part, f"\\{part}")
