"""How many of what a vGPU may have: as the configuration says it, and as it is held to it."""

import dataclasses
from pathlib import Path

import pytest

from backend_host.config import Config, load_config
from backend_host.errors import ConfigError
from backend_host.limits import Limits


def test_limits_stand_in_a_table(tmp_path: Path) -> None:
    path = tmp_path / "fairgv.toml"
    path.write_text("[limits]\nclients = 3\nstreams = 0\nimage_bytes = '1.5G'\n")
    config = load_config(path)
    assert config.limits == dataclasses.replace(Limits(), clients=3, streams=0, image_bytes=3 << 29)
    assert Config.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[limits]\nevents = 3",
            r"fairgv.toml: unknown key 'events' in \[limits\]; known are: clients, contexts, image_bytes, modules, streams",
        ),
        (
            "[limits]\nclients = -1",
            r"\[limits\] clients must be a whole number from 0, for no limit, to 1099511627775, not -1",
        ),
        ("[limits]\nimage_bytes = 'much'", r"\[limits\] image_bytes must be a size, such as 512M or 2G, not 'much'"),
        ("[limits]\nclients = true", "clients must be a whole number"),
        ("limits = 3", "limits must be a table, not 3"),
    ],
)
def test_what_is_no_limit_stops_the_start(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "fairgv.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_config(path)
