"""What `--help` prints, of every command: it fits a terminal of 80 columns."""

import pytest

from manual.commands import COMMANDS, Command, below

WIDTH = 80


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_no_line_is_wider_than_a_terminal(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    for parser in below(command.parser()):
        assert [line for line in parser.format_help().splitlines() if len(line) > WIDTH] == [], parser.prog
