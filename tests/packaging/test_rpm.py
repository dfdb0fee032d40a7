"""The .rpm that `make rpm` made: what it has, needs, offers and does, and rpm puts it into an empty root, where its files are root's.

Its scripts are run by no rpm here, but by sh, with recorders in place of what they call: they take a root of its own kind.
"""

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from backend_host.config import PACKAGE_ROOT

VERSION = tomllib.loads((PACKAGE_ROOT / "pyproject.toml").read_text())["project"]["version"]
RPM = PACKAGE_ROOT / f"build/packages/fairgv-host-{VERSION}-1.x86_64.rpm"
SPEC = PACKAGE_ROOT / "packaging/rpm/fairgv-host.spec"
COMMANDS = ("fairgv-host", "fairgv-run", "fairgv-sim")
FOLDERS = ("/usr/lib/fairgv", "/usr/share/doc/fairgv-host", "/usr/share/fairgv")
FILES = {
    "/etc/fairgv",
    "/etc/fairgv/config.toml",
    "/usr/lib/systemd/system/fairgv-nvidia.service",
    "/usr/lib/systemd/system/fairgv.service",
    "/usr/lib/systemd/system/fairgv.socket",
    "/usr/lib/sysusers.d/fairgv.conf",
    "/usr/share/man/man5/fairgv.toml.5.gz",
    *(f"/usr/bin/{name}" for name in COMMANDS),
    *(f"/usr/share/bash-completion/completions/{name}" for name in COMMANDS),
    *(f"/usr/share/fish/vendor_completions.d/{name}.fish" for name in COMMANDS),
    *(f"/usr/share/man/man1/{name}.1.gz" for name in COMMANDS),
    *(f"/usr/share/zsh/site-functions/_{name}" for name in COMMANDS),
}
"""All outside of FOLDERS."""
pytestmark = [pytest.mark.package, pytest.mark.skipif(not RPM.exists(), reason="make rpm has made none")]


def asked(*options: str) -> list[str]:
    """Lines of what rpm says of the package."""
    done = subprocess.run(["rpm", "-qp", *options, RPM], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_what_is_where() -> None:
    names = set(asked("--list"))
    assert {name for name in names if not name.startswith(FOLDERS)} == FILES
    assert "/usr/lib/fairgv/.venv/bin/python" in names
    assert "/usr/share/doc/fairgv-host/LICENSE" in names
    assert asked("--configfiles") == ["/etc/fairgv/config.toml"]


def test_the_guest_s_library_is_offered_to_nobody() -> None:
    """Another package would take it for NVIDIA's driver."""
    names = {line.split("(")[0].split()[0] for line in asked("--provides")}
    assert names == {"config", "fairgv-host"}


def test_what_it_needs() -> None:
    needs = asked("--requires")
    assert {"/usr/bin/python3.11", "systemd"} <= set(needs)
    assert any(line.startswith("libc.so.6(GLIBC_") for line in needs)
    assert [line for line in needs if "libcuda" in line or "nvidia" in line or "dist(" in line] == []
    assert asked("--conflicts") == ["fairgv-guest"]


def script(name: str) -> str:
    """One of the spec's."""
    lines = SPEC.read_text().partition(f"%{name}\n")[2].splitlines()
    end = next((number for number, line in enumerate(lines) if line.startswith("%")), len(lines))
    return "\n".join(lines[:end])


def test_its_scripts_are_the_spec_s_and_posix() -> None:
    said = "\n".join(asked("--scripts"))
    for name in ("post", "preun", "postun", "posttrans"):
        text = script(name)
        assert text.splitlines()[0] in said
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (1, 1)])
def test_without_its_groups_nothing_is_installed(tmp_path: Path, status: int, expected: int) -> None:
    for name, its_status in (("systemd-sysusers", status), ("systemctl", 1)):
        tool = tmp_path / name
        tool.write_text(f'#!/bin/sh\necho "{name} $*" >>"$CALLS"\nexit {its_status}\n')
        tool.chmod(0o755)
    calls = tmp_path / "calls"
    environment = {"PATH": str(tmp_path), "CALLS": str(calls)}
    done = subprocess.run(["/bin/sh", "-c", script("post"), "sh", "1"], env=environment, check=False)
    assert done.returncode == expected
    assert calls.read_text().splitlines()[0] == "systemd-sysusers fairgv.conf"


@pytest.mark.skipif(os.geteuid() != 0, reason="rpm installs as root alone")
def test_rpm_puts_it_there_and_takes_it_away(tmp_path: Path) -> None:
    rpm = ["rpm", "--root", str(tmp_path / "root"), "--force-debian"]
    subprocess.run([*rpm, "--install", "--nodeps", "--noscripts", RPM], check=True)
    root = tmp_path / "root"
    daemon = root / "usr/bin/fairgv-host"
    assert (daemon.stat().st_uid, daemon.stat().st_mode & 0o777) == (0, 0o755)
    assert str((root / "usr/lib/fairgv/.venv/bin/python").readlink()) == "../../../../bin/python3.11"
    verified = subprocess.run(
        [*rpm, "--verify", "--nodeps", "fairgv-host"], capture_output=True, text=True, check=False
    )
    assert (verified.stdout, verified.returncode) == ("", 0)
    (root / "etc/fairgv/config.toml").write_text("nr_warm_workers = 2\n")
    subprocess.run([*rpm, "--erase", "--noscripts", "fairgv-host"], check=True, capture_output=True)
    assert not (root / "usr/lib/fairgv").exists()
    assert (root / "etc/fairgv/config.toml.rpmsave").read_text() == "nr_warm_workers = 2\n"
