"""Settings: what is accepted, and that everything else is refused by name."""

from pathlib import Path

import pytest

from backend_host.config import Config, load_config
from backend_host.entitlement import PLAIN, Entitlement
from backend_host.errors import ConfigError


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "fairgv.toml"
    path.write_text(text)
    return path


def test_file_over_defaults_and_options_over_file(tmp_path: Path) -> None:
    path = write(tmp_path, 'device = "soft"\nslice_ms = 6.5\nregion_bytes = "64M"\nnr_warm_workers = 2\n')
    config = load_config(path, device="cuda", policy=None)
    assert config.device == "cuda"
    assert config.slice_ns == 6_500_000
    assert config.region_bytes == 64 << 20
    assert config.nr_warm_workers == 2
    assert config.policy == Config().policy


def test_paths_are_paths(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, 'state_dir = "/run/elsewhere"\n'))
    assert config.socket_path == Path("/run/elsewhere/control.sock")


def test_what_a_vgpu_has_when_nobody_says_anything(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, '[vgpu]\nweight = 2\nmemory_bytes = "1.5G"\n'))
    assert config.vgpu == Entitlement(2, 3 << 29)
    assert Config.from_json(config.to_json()) == config
    assert load_config(None).vgpu == PLAIN


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[vgpu]\nwait = 2", r"unknown key 'wait' in \[vgpu\]; known are: .*memory_bytes.*weight"),
        ("[vgpu]\nweight = 0", r"fairgv.toml: \[vgpu\] weight: a weight is a whole number from 1 to 10000, not 0"),
        ("[vgpu]\nmemory_bytes = 'much'", "memory_bytes: a memory quota is .*, not 'much'"),
        ("vgpu = 2", "vgpu must be a table, not 2"),
        ("devise = 'soft'", "devise"),
        ("slice_ns = 5", "slice_ns"),
        ("device = 'quantum'", "quantum"),
        ("policy = 'fastest'", "fastest"),
        ("policy = 'strict'", "^strict is a policy of the simulator only: see fairgv-sim --policy strict$"),
        (
            "policy = 'credit-poll'",
            "^credit-poll is a policy of the simulator only: see fairgv-sim --policy credit-poll$",
        ),
        ("region_bytes = '65M'", "power of two"),
        ("region_bytes = '1M'", "16M"),
        ("slice_ms = 0.1", "slice_ms"),
        ("slice_ms = 1e300", r"slice_ms must be 0, for the device's own, or from 1 to 60000: .*, not 1e\+300$"),
        ("device_memory_bytes = '2048T'", "device_memory_bytes must be 0, for all there is, or from 64M to 1024T, not"),
        ("nr_warm_workers = 'two'", "nr_warm_workers"),
        ("metrics = '0.0.0.0:9400'", "metrics: others would reach '0.0.0.0:9400'.* Serve 127.0.0.1:9400"),
        ("metrics = 9400", "metrics must be a text, not 9400"),
        ("metrics_file = '/var/lib/fairgv.txt'", "metrics_file must be a path that ends in .prom"),
        ("device = ", "fairgv.toml"),
    ],
)
def test_refusals_name_the_culprit(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load_config(write(tmp_path, text))


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "fairgv.toml"
    path.write_bytes(b"weight = 1\n\xff")
    with pytest.raises(ConfigError, match=r"fairgv.toml is no TOML: byte 11 begins no character of UTF-8$"):
        load_config(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        load_config(tmp_path / "nowhere.toml")


def test_a_yes_or_no_is_neither_a_number_nor_the_other_way_round(tmp_path: Path) -> None:
    path = tmp_path / "fairgv.toml"
    path.write_text("trusted_guests = true\n")
    assert load_config(path).trusted_guests
    for text, kind in (("trusted_guests = 1", "true or false"), ("watchdog_s = true", "from 0, for never,")):
        path.write_text(text + "\n")
        with pytest.raises(ConfigError, match=f"must be {kind}"):
            load_config(path)


def test_turns_by_bursts(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, 'quota = "bursts"\nquota_max_ms = 50\n'))
    assert (config.quota, config.quota_max_ms) == ("bursts", 50)
    assert load_config(None).quota == "slice"
    for text, key in (
        ('quota = "kernels"', "quota must be one of slice, bursts"),
        ("quota_max_ms = 0", "quota_max_ms"),
    ):
        with pytest.raises(ConfigError, match=key):
            load_config(write(tmp_path, text))
