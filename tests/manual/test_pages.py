"""Manual pages: groff has nothing to say about them, and nothing of the parsers and of the configuration is missing."""

import argparse
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from backend_host.config import Config, load_config
from backend_host.config_keys import written
from manual import pages
from manual.__main__ import main
from manual.commands import COMMANDS, Command, below, options

PAGES = {f"{command.name}.1": command for command in COMMANDS}
VIEWERS = (["man", "--warnings", "-l"], ["groff", "-ww", "-man", "-Kutf8", "-Tutf8"])


def plain(page: str) -> str:
    """The words of a page, without its requests and escapes."""
    return re.sub(r"\\(f.|,|/|&)", "", page).replace(r"\-", "-").replace(r"\e", "\\")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make man` writes."""
    folder = tmp_path_factory.mktemp("build")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("COLUMNS", "300")
        assert main(folder) == 0
    return folder


@pytest.mark.parametrize("name", [*(f"man1/{page}" for page in PAGES), "man5/fairgv.toml.5"])
def test_groff_warns_of_nothing(build: Path, name: str) -> None:
    viewer = next((viewer for viewer in VIEWERS if shutil.which(viewer[0])), None)
    if viewer is None:
        pytest.skip("neither man nor groff is installed: packages man-db and groff-base")
    environment = {**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
    shown = subprocess.run(
        [*viewer, build / "man" / name], env=environment, capture_output=True, text=True, check=False
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert Path(name).stem in shown.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_and_option_is_told_of(build: Path, command: Command) -> None:
    page = plain((build / "man/man1" / f"{command.name}.1").read_text())
    _, _, sections = page.partition(".SH DESCRIPTION")
    for parser in below(command.parser()):
        start = sections.find(f"\n.SS {parser.prog}\n") if parser.prog != command.name else 0
        assert start >= 0, parser.prog
        section = sections[start:]
        for action in options(parser):
            names = action.option_strings or [str(action.metavar or action.dest)]
            assert all(re.search(rf"(^|[ ,]){re.escape(name)}\b", section, re.MULTILINE) for name in names), names
            if action.help and not isinstance(action, argparse._HelpAction):
                words = " ".join((action.help % {**vars(action), "prog": parser.prog}).split())
                assert words in " ".join(section.split()), (parser.prog, names)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_what_stands_below_options_is_not_lost(build: Path, command: Command) -> None:
    page = " ".join(plain((build / "man/man1" / f"{command.name}.1").read_text()).replace(".PP", "").split())
    for parser in below(command.parser()):
        for line in filter(None, map(str.strip, (parser.epilog or "").splitlines())):
            assert " ".join(line.split()) in page


def test_every_key_of_the_configuration_is_told_of(build: Path) -> None:
    page = plain((build / "man/man5/fairgv.toml.5").read_text())
    tables = {section.partition("\n")[0]: section for section in page.split("\n.SH ")}
    for key in written(Config()):
        table, _, name = key.rpartition(".")
        section = tables[f"TABLE [{table}]" if table else "KEYS"]
        assert f"\n.TP\n{name} (" in section, key


def test_the_example_is_a_right_file(tmp_path: Path) -> None:
    file = tmp_path / "fairgv.toml"
    file.write_text(pages.EXAMPLE)
    assert load_config(file) != Config()


def test_text_is_no_request() -> None:
    assert pages.guarded(".SH NAME\n.so /etc/passwd\n'quoted'\n.5 is a number\n.TPX\n.PP\n.\n") == (
        ".SH NAME\n\\&.so /etc/passwd\n\\&'quoted'\n\\&.5 is a number\n\\&.TPX\n.PP\n.\n"
    )
    assert pages.text("a -b\n\nc\\d\n  kept\n  too\nend") == "a \\-b\n.PP\nc\\ed\n.nf\n  kept\n  too\n.fi\nend"
