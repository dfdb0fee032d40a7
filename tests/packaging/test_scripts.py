"""The maintainer scripts of the host's package: which helpers they call, and that no daemon that fails to start fails an installation.

The helpers are recorders here; test_package.py has dpkg run the scripts with the true ones.
"""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "packaging/debian"
HELPERS = ("deb-systemd-helper", "deb-systemd-invoke", "systemctl", "systemd-sysusers", "fairgv-host", "rm")
UNITS = "fairgv.socket fairgv.service"
HAS_SYSTEMD = Path("/run/systemd/system").is_dir()
WITH_SYSTEMD = ("systemctl", "deb-systemd-invoke", "fairgv-host")


def run(script: str, *arguments: str, folder: Path, failing: str = "") -> tuple[int, list[str]]:
    """Its status, and what it called. It finds no other program than the recorders."""
    tools = folder / "tools"
    tools.mkdir()
    for name in HELPERS:
        tool = tools / name
        tool.write_text(f'#!/bin/sh\necho "{name} $*" >>"$CALLS"\nexit {int(name == failing)}\n')
        tool.chmod(0o755)
    calls = folder / "calls"
    calls.touch()
    environment = {"PATH": str(tools), "CALLS": str(calls)}
    done = subprocess.run(["/bin/sh", SCRIPTS / script, *arguments], env=environment, check=False, timeout=60)
    return done.returncode, calls.read_text().splitlines()


def expected(*calls: str) -> list[str]:
    """Without those that are only made where systemd runs."""
    return [call for call in calls if HAS_SYSTEMD or not call.startswith(WITH_SYSTEMD)]


def enabling() -> list[str]:
    return [
        f"deb-systemd-helper {call} {unit}"
        for unit in UNITS.split()
        for call in ("unmask", "--quiet was-enabled", "enable")
    ]


@pytest.mark.parametrize("script", ["postinst", "prerm", "postrm"])
def test_scripts_are_posix(script: str) -> None:
    assert (SCRIPTS / script).read_text().startswith("#!/bin/sh\n")
    subprocess.run(["sh", "-n", SCRIPTS / script], check=True)
    assert (SCRIPTS / script).stat().st_mode & 0o111


@pytest.mark.parametrize(
    ("before", "starts"),
    [("", f"deb-systemd-invoke start {UNITS}"), ("0.0.9", "deb-systemd-invoke restart fairgv.service")],
)
def test_groups_first_then_units_then_the_daemon(tmp_path: Path, before: str, starts: str) -> None:
    status, calls = run("postinst", "configure", before, folder=tmp_path)
    assert status == 0
    reads = "systemctl --system daemon-reload"
    assert calls == expected("systemd-sysusers fairgv.conf", *enabling(), reads, starts)


def test_units_that_an_administrator_disabled_stay_so(tmp_path: Path) -> None:
    status, calls = run("postinst", "configure", "0.0.9", folder=tmp_path, failing="deb-systemd-helper")
    assert status == 0
    assert [call for call in calls if " enable " in call] == []
    assert [call for call in calls if "update-state" in call] == [
        f"deb-systemd-helper update-state {unit}" for unit in UNITS.split()
    ]


@pytest.mark.parametrize("failing", ["deb-systemd-invoke", "systemctl", "fairgv-host"])
@pytest.mark.parametrize(
    "call", [("postinst", "configure", ""), ("prerm", "remove"), ("postrm", "remove"), ("postrm", "purge")]
)
def test_what_systemd_refuses_fails_nothing(tmp_path: Path, failing: str, call: tuple[str, ...]) -> None:
    assert run(*call, folder=tmp_path, failing=failing)[0] == 0


def test_without_its_groups_nothing_is_installed(tmp_path: Path) -> None:
    status, calls = run("postinst", "configure", "", folder=tmp_path, failing="systemd-sysusers")
    assert status != 0
    assert calls == ["systemd-sysusers fairgv.conf"]


@pytest.mark.parametrize("argument", ["abort-upgrade", "abort-remove"])
def test_nothing_is_configured_when_a_change_is_given_up(tmp_path: Path, argument: str) -> None:
    assert run("postinst", argument, "0.0.9", folder=tmp_path) == (0, [])


def test_an_upgrade_stops_nothing_before_the_new_files_are_there(tmp_path: Path) -> None:
    assert run("prerm", "upgrade", "0.2.0", folder=tmp_path) == (0, [])


def test_a_removal_ends_programs_the_daemon_and_its_socket(tmp_path: Path) -> None:
    calls = expected("fairgv-host stop", f"deb-systemd-invoke stop {UNITS}")
    assert run("prerm", "remove", folder=tmp_path) == (0, calls)


def test_a_removal_keeps_and_a_purge_forgets(tmp_path: Path) -> None:
    (tmp_path / "remove").mkdir()
    (tmp_path / "purge").mkdir()
    reads = "systemctl --system daemon-reload"
    removed = run("postrm", "remove", folder=tmp_path / "remove")
    assert removed == (0, expected(reads, f"deb-systemd-helper mask {UNITS}"))
    status, calls = run("postrm", "purge", folder=tmp_path / "purge")
    assert status == 0
    forgets = [f"deb-systemd-helper {call} {UNITS}" for call in ("purge", "unmask")]
    assert calls == expected(reads, *forgets, "rm -rf /var/cache/fairgv")
