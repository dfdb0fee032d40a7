"""Roles and limits as rules: what each peer may ask, by groups that this host need not have."""

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from backend_host.config import load_as_said, load_config, read_again
from backend_host.entitlement import PLAIN, Entitlement
from backend_host.errors import ConfigError, RefusedError
from backend_host.ipc import Session, peer_groups
from backend_host.service.roles import Roles
from backend_host.service.user_limits import within_limits
from backend_host.service.user_settings import ORDINARY, UserSettings
from backend_host.state_dir import dir_of_commands

SEE, CHANGE, OTHER = 3001, 3002, 3003
STRANGER = 77_777
BOTH = Roles("fairgv", "fairgv-admin", SEE, CHANGE)


@pytest.mark.parametrize(
    ("roles", "uid", "groups", "sees", "changes", "is_limited"),
    [
        (BOTH, 0, {OTHER}, True, True, False),
        (BOTH, os.geteuid(), set(), True, True, False),
        (BOTH, STRANGER, {SEE}, True, False, True),
        (BOTH, STRANGER, {CHANGE}, True, True, False),
        (BOTH, STRANGER, {SEE, CHANGE}, True, True, False),
        (BOTH, STRANGER, {OTHER}, False, False, True),
        (BOTH, STRANGER, set(), False, False, True),
        (Roles("a", "b", SEE, None), STRANGER, {SEE}, True, False, True),
        (Roles("a", "b", None, CHANGE), STRANGER, {CHANGE}, True, True, False),
        (Roles("a", "b", None, CHANGE), STRANGER, {SEE}, False, False, True),
        (Roles("a", "b"), STRANGER, set(), True, False, False),
    ],
)
def test_who_may_what(roles: Roles, uid: int, groups: set[int], sees: bool, changes: bool, is_limited: bool) -> None:
    session = Session(uid, frozenset(groups))
    for check, may in ((roles.check_member, sees), (roles.check_admin, changes)):
        if may:
            check(session)
        else:
            with pytest.raises(RefusedError):
                check(session)
    assert roles.is_limited(session) == is_limited


def test_a_private_daemon_has_no_roles(tmp_path: Path) -> None:
    config = load_config(None, state_dir=tmp_path, users=UserSettings(group="root", admin_group="root"))
    assert Roles.of_host(config).are_on == (os.geteuid() == 0)
    assert not Roles.of_host(replace(config, is_private=True)).are_on


def test_the_kernel_tells_a_peer_s_groups() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_groups(ours) == {os.getegid(), *os.getgroups()}


def test_what_a_vgpu_gets_within_the_limits() -> None:
    settings = UserSettings(memory_bytes=8 << 30, weight=0, vgpus=3)
    first = within_limits(STRANGER, None, {"quota_bytes": 3 << 30}, Entitlement(2), [], settings)
    assert (first.weight, first.quota_bytes) == (2, 3 << 30)
    second = within_limits(STRANGER, f"{STRANGER}-x", {}, Entitlement(2), [first], settings)
    assert second.quota_bytes == 5 << 30
    with pytest.raises(RefusedError, match="of which 77777 has 0 B left"):
        within_limits(STRANGER, None, {"quota_bytes": 1 << 30}, Entitlement(2), [first, second], settings)
    assert within_limits(STRANGER, None, {}, PLAIN, [], ORDINARY) == PLAIN


def test_nobody_is_rid_of_the_limit_that_all_have() -> None:
    unsaid = Entitlement(limit=50)
    for limit in (100.0, 50.1):
        with pytest.raises(
            RefusedError,
            match=rf"--limit {limit:g}: a vGPU of 77777 may use 50 % of a GPU at most: .* to raise limit in \[vgpu\]",
        ):
            within_limits(STRANGER, None, {"limit": limit}, unsaid, [], ORDINARY)
    assert within_limits(STRANGER, None, {}, unsaid, [], ORDINARY).limit == 50
    for limit in (50.0, 20.0):
        assert within_limits(STRANGER, None, {"limit": limit}, unsaid, [], ORDINARY).limit == limit


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("wait = 1", r"unknown key 'wait' in \[users\]"),
        ("vgpus = -1", "vgpus must be a whole number from 0"),
        ("weight = true", "weight must be a whole number"),
        ("request = 200", "request: a request is a percentage"),
        ("memory_bytes = 'much'", "memory_bytes: a memory quota is a size"),
        ("group = 'no group'", "group must be the name of a group"),
    ],
)
def test_settings_that_make_no_sense(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"[users]\n{text}\n")
    with pytest.raises(ConfigError, match=sentence):
        load_config(file)


def test_what_the_command_said_wins_when_the_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('slice_ms = 3\nregion_bytes = "32M"\n')
    config = load_as_said(file, ["cgroup"], state_dir=tmp_path, slice_ns=7_000_000, device=None)
    file.write_text('slice_ms = 4\nregion_bytes = "64M"\ndevice = "soft"\n')
    again = read_again(config)
    assert (again.slice_ns, again.region_bytes, again.device) == (7_000_000, 64 << 20, "soft")
    assert again.walls == config.walls
    assert again.walls.allow_missing == ("cgroup",)
    file.unlink()
    with pytest.raises(ConfigError, match="cannot read"):
        read_again(config)
    with pytest.raises(ConfigError, match="without a file of settings"):
        read_again(load_as_said(None, state_dir=tmp_path))


def test_commands_look_for_the_system_s_daemon(tmp_path: Path) -> None:
    own, system = tmp_path / "own", tmp_path / "system"
    assert dir_of_commands(own, system) == own
    for folder in (system, own):
        folder.mkdir()
        (folder / "control.sock").touch()
        assert dir_of_commands(own, system) == folder
