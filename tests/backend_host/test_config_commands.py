"""`fairgv-host config`: every wrong key of a file is named, and what is shown is a file that gives the same configuration."""

import dataclasses
import json
from pathlib import Path

import pytest

from backend_host import config as configuration
from backend_host.cli import main
from backend_host.config import RULES, Config, load_config, problems
from backend_host.config_keys import keys, toml, written
from backend_host.device_settings import KEYS
from backend_host.entitlement import Entitlement
from backend_host.errors import ConfigError
from backend_host.limits import Limits
from backend_host.walls.settings import WallSettings

WRONG = {
    "devise = 'soft'": "unknown key 'devise'; known are: adopt,",
    "device = 'quantum'": "device must be one of auto, cuda, soft, not 'quantum'",
    "policy = 'strict'": "strict is a policy of the simulator only",
    "slice_ms = 'long'": "slice_ms must be a number of milliseconds, not 'long'",
    "region_bytes = 'large'": "region_bytes must be a size, such as 512M or 2G, not 'large'",
    f"pinned_bytes = '{400 * '9'}'": "pinned_bytes must be a size",
    "run_region_bytes = '65M'": "run_region_bytes must be 0, or a power of two from 16M to 64G, not 68157440",
    "nr_warm_workers = 1.5": "nr_warm_workers must be from 0 to 64, not 1.5",
    "watchdog_s = -2": "watchdog_s must be from 0, for never, to 4294967295, or -1 for the device's own, not -2",
    "trusted_guests = 1": "trusted_guests must be true or false, not 1",
    "state_dir = 5": "state_dir must be a path, not 5",
    "cuda_library = 5": "cuda_library must be a text, not 5",
}
WRONG_IN_TABLES = {
    "[vgpu]\nweight = 0": "[vgpu] weight: a weight is a whole number from 1 to 10000, not 0",
    "wait = 3": "unknown key 'wait' in [vgpu]; known are: class, gpu, limit, memory_bytes, most, qos, request, space, weight",
    "[limits]\nclients = -1": "[limits] clients must be a whole number from 0",
    "image_bytes = 'much'": "[limits] image_bytes must be a size",
    "[walls]\nmemory = '0'": "[walls] memory must be from 1 byte to 1024T, not 0 bytes",
    "users = '3'": "[walls] users must be FIRST-LAST",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fairgv.toml"


def test_every_wrong_key_is_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    everything = {**WRONG, **WRONG_IN_TABLES}
    file.write_text("\n".join(["quota_max_ms = 7", *everything]))
    assert main(["config", "check", str(file)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(everything)
    for sentence in everything.values():
        assert len([line for line in lines if line.startswith(f"{file}: {sentence}")]) == 1, sentence


@pytest.mark.parametrize("text", [*WRONG, "[vgpu]\nrequest = 50\nlimit = 40", "vgpu = 3"])
def test_what_check_refuses_stops_the_start(file: Path, text: str) -> None:
    file.write_text(text)
    assert len(problems(file)) == 1
    with pytest.raises(ConfigError):
        load_config(file)


def test_a_right_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("quota_max_ms = 7\n[vgpu]\nweight = 2\nrequest = 50\nlimit = 60\n")
    assert main(["config", "check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: all 4 keys are right\n"
    file.write_text("quota_max_ms = 7\n")
    assert main(["config", "check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: its one key is right\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("device = ", "Invalid value"),
        ('device = "soft"\ndevice = "cuda"', "Cannot overwrite a value"),
        ("\xff", "no character of UTF-8"),
        ("[vgpu]\n[vgpu]", "Cannot declare [vgpu] twice"),
        ('[gpu."0"]\n[gpu."0"]', "Cannot declare [gpu.0] twice"),
    ],
)
def test_what_is_no_toml(file: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(text.encode("latin-1"))
    assert main(["config", "check", str(file)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(file) in line
    assert said in line


def test_a_file_that_never_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "/dev/zero"]) == 1
    assert "longer than 1 MiB" in capsys.readouterr().err


def test_files_that_go_with_it_are_checked(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file.parent / "vgpus.d").mkdir()
    kept, token = file.parent / "vgpus.d" / "web.toml", file.parent / "token"
    file.write_text(f'web = "127.0.0.1:9401"\nweb_token_file = "{token}"\n')
    for text, why in (
        ("weight = 0", f"{kept}: weight: a weight is"),
        ("[[", f"{kept}: "),
        ("weight = 2", f"web_token_file: cannot read {token}: No such file"),
    ):
        kept.write_text(text)
        assert main(["config", "check", str(file)]) == 1
        assert capsys.readouterr().err.startswith(why)
    token.write_text("0123456789abcdef")
    token.chmod(0o600)
    assert main(["config", "check", str(file)]) == 0


def test_the_systems_file_is_read_where_it_is(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(configuration, "SYSTEM_FILE", file)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert main(["config", "show"]) == 0
    assert "# file: none" in capsys.readouterr().out
    file.write_text('quota = "bursts"')
    assert main(["config", "show"]) == 0
    output = capsys.readouterr().out
    assert f"# file: {file}" in output
    assert 'quota = "bursts"          # file\n' in output


def test_where_each_value_comes_from(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text('device = "soft"\nslice_ms = 5\n[vgpu]\nweight = 3\n[limits]\n')
    options = ["--config", str(file), "--slice-ms", "6.5", "--trusted-guests", "--allow-missing-wall", "net"]
    options += ["--web", "127.0.0.1:9401"]
    assert main(["--state-dir", "/run/elsewhere", "config", "show", "--json", *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == str(file)
    by_option = {
        "state_dir": "/run/elsewhere",
        "slice_ms": 6.5,
        "trusted_guests": True,
        "web": "127.0.0.1:9401",
        "walls.allow_missing": ["net"],
    }
    in_file = {"device": "soft", "vgpu.weight": 3}
    found = told["keys"]
    assert {key: each["value"] for key, each in found.items() if each["from"] == "option"} == by_option
    assert {key: each["value"] for key, each in found.items() if each["from"] == "file"} == in_file
    assert found["region_bytes"] == {"value": 256 << 20, "from": "default"}


def test_what_is_shown_is_a_file_of_the_same_configuration(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = dataclasses.replace(
        Config(),
        state_dir=Path('/run/\u00e4 "quoted" \\ \U0001f600 \x7f\n'),
        slice_ns=6_500_000,
        region_bytes=64 << 20,
        pinned_bytes=1000,
        trusted_guests=True,
        vgpu=Entitlement(3, 1 << 30, "GPU-5c", 12.5, 50.0),
        limits=Limits(clients=3, image_bytes=1 << 20),
        walls=WallSettings("5000-6000", "/c", 1 << 20, 3 << 30, 7, ("net", "pid")),
    )
    values = written(config)
    outside = [f"{key} = {toml(value)}\n" for key, value in values.items() if "." not in key]
    inside = [f"{key} = {toml(value)}\n" for key, value in values.items() if "." in key]
    file.write_text("".join(outside + inside))
    assert dataclasses.replace(load_config(file), file="") == config
    assert main(["config", "show", "--config", str(file)]) == 0
    file.write_text(capsys.readouterr().out)
    assert dataclasses.replace(load_config(file), file="") == config


def test_every_key_is_told_of() -> None:
    told = {f"{key.table}.{key.name}".lstrip("."): key for key in keys()}
    of_one_device = {f"gpu.{key}" for key in KEYS}
    assert told.keys() == written(Config()).keys() | of_one_device
    assert all(key.meaning and key.kind and key.default for key in told.values())
    assert told["slice_ms"].kind == "milliseconds"
    assert told["region_bytes"].default == '"256M"'
    assert told["walls.memory"].kind == "size"


def test_rules_are_of_fields_and_allow_the_defaults() -> None:
    assert all(rule.allows(getattr(Config(), field)) for field, rule in RULES.items())
