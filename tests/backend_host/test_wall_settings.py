"""`[walls]` of the configuration: what is read, what is refused and named, what reaches the daemon's process."""

from pathlib import Path

import pytest

from backend_host.config import Config, load_config
from backend_host.errors import ConfigError
from backend_host.walls.settings import PLAIN, WALLS, WallSettings


def read(tmp_path: Path, text: str) -> WallSettings:
    file = tmp_path / "config.toml"
    file.write_text(f"[walls]\n{text}\n")
    return load_config(file, state_dir=tmp_path).walls


def test_all_keys(tmp_path: Path) -> None:
    text = 'users = "5000-5001"\ncache_dir = "/c"\ncache = "2G"\nmemory = "1G"\nprocesses = 7\nallow_missing = ["net"]'
    text += '\ncache_sum = "3G"\ncache_free = "5M"'
    found = read(tmp_path, text)
    assert found == WallSettings("5000-5001", "/c", 2 << 30, 1 << 30, 7, ("net",), 3 << 30, 5 << 20)
    assert (found.first_uid, found.last_uid, found.cache_path) == (5000, 5001, Path("/c"))


def test_nothing_said(tmp_path: Path) -> None:
    assert read(tmp_path, "") == PLAIN
    assert PLAIN.allow_missing == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('user = "5000-5001"', "unknown key 'user'"),
        ('memory_bytes = "1G"', "unknown key 'memory_bytes'"),
        ('users = "0-100"', "users must be"),
        ('users = "999-2000"', "users must be"),
        ('users = "5001-5000"', "users must be"),
        ('users = "5000"', "users must be"),
        ('users = "5000-4294967295"', "users must be"),
        ("users = 5000", "users must be"),
        ("cache_dir = 5", "cache_dir must be"),
        ('memory = "0"', "memory must be"),
        ('cache = "0"', "cache must be"),
        ('cache_sum = "0"', "cache_sum must be"),
        ('cache_free = "2048T"', "cache_free must be"),
        ('memory = "much"', "much"),
        ("processes = 0", "processes must be"),
        ("processes = true", "processes must be"),
        ("processes = 1.5", "processes must be"),
        ('allow_missing = "net"', "allow_missing must be a list"),
        ('allow_missing = ["nets"]', "no wall 'nets'"),
        ("allow_missing = [1]", "no wall '1'"),
    ],
)
def test_what_makes_no_sense_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"config\.toml") as refused:
        read(tmp_path, text)
    assert said in str(refused.value)


def test_no_user_of_the_system_is_a_tenant() -> None:
    """Not root, no service, no ordinary user, not nobody, and none that systemd gives to containers and services."""
    tenants = range(PLAIN.first_uid, PLAIN.last_uid + 1)
    assert not {0, 999, 1000, 60000, 61184, 65519, 65534, 524288, 1879048191} & set(tenants)
    assert len(tenants) == 65536


def test_walls_reach_the_daemons_process(tmp_path: Path) -> None:
    config = Config(state_dir=tmp_path, walls=PLAIN.without(("net", "cgroup")))
    assert Config.from_json(config.to_json()).walls == config.walls
    assert config.walls.allow_missing == ("net", "cgroup")


def test_a_wall_that_is_none_cannot_be_excused() -> None:
    with pytest.raises(ConfigError, match="no wall 'nets'") as refused:
        PLAIN.without(("nets",))
    assert all(wall in str(refused.value) for wall in WALLS)


def test_compiled_code_of_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of one that is in no file of users."""
    monkeypatch.setattr("os.geteuid", lambda: 2_000_000_017)
    monkeypatch.setattr("os.getuid", lambda: 2_000_000_017)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        ConfigError, match=r"^this user has no home: name a folder for compiled code by XDG_CACHE_HOME, or"
    ):
        _ = WallSettings().cache_path
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert WallSettings().cache_path == Path("/elsewhere/fairgv/tenants")
