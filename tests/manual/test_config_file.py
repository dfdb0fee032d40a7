"""The configuration file that packages install: it changes nothing, and each of its keys can be taken as it stands."""

import re
import tomllib
from pathlib import Path

from backend_host import config_keys
from backend_host.config import load_config, problems, read_file
from manual.config_file import OF_INSTALLATION, config_file

KEYS = re.compile(r"^#(\w+ = .*)$", re.MULTILINE)


def test_as_it_is_it_sets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(config_file())
    assert read_file(path).keys == frozenset()
    assert config_keys.written(load_config(path)) == config_keys.written(load_config(None))


def test_every_key_is_there_with_its_default(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(KEYS.sub(r"\1", config_file()))
    assert problems(path) == []
    here = config_keys.written(load_config(None)) | OF_INSTALLATION
    assert read_file(path).keys == here.keys()
    assert config_keys.written(load_config(path)) == here


def test_it_is_prose_below_tables() -> None:
    text = config_file()
    assert set(tomllib.loads(text)) == set(config_keys.TABLES)
    assert max(map(len, text.splitlines())) <= 144
    assert all(line.startswith(("#", "[")) for line in text.splitlines() if line)
