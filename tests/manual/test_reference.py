"""Pages of the reference: nothing of the parsers and of the configuration is missing, and text is no markup."""

import argparse

import pytest

from backend_host.config import Config
from backend_host.config_keys import written
from manual import reference
from manual.commands import COMMANDS, Command, below, options


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_and_option_is_told_of(command: Command) -> None:
    page = reference.of_command(command)
    for parser in below(command.parser()):
        heading = f"# {parser.prog}\n"
        assert heading in page
        section = page.partition(heading)[2].partition("\n#")[0]
        for action in options(parser):
            names = action.option_strings or [str(action.metavar or action.dest)]
            assert all(name in section for name in names), (parser.prog, names)
            if action.help and not isinstance(action, argparse._HelpAction):
                words = " ".join((action.help % {**vars(action), "prog": parser.prog}).split())
                assert reference.prose(words) in section


def test_every_key_of_the_configuration_is_told_of() -> None:
    sections = {part.partition("\n")[0]: part for part in reference.of_configuration().split("\n## ")}
    for key in written(Config()):
        table, _, name = key.rpartition(".")
        assert f"\n| `{name}` |" in sections[f"[{table}]" if table else "Keys"]


def test_rows_have_as_many_cells_as_their_head() -> None:
    for place, page in reference.pages():
        nr_cells = 0
        for line in page.splitlines():
            cells = line.replace("\\|", "").count("|") if line.startswith("|") else 0
            assert nr_cells in (0, cells) or cells == 0, (place, line)
            nr_cells = cells


def test_text_is_no_markup() -> None:
    assert reference.prose("a_b *c* <d> & [e](f) | `g|<h>`") == "a\\_b \\*c\\* &lt;d&gt; &amp; \\[e\\](f) \\| `g|<h>`"
