"""The units of packaging/systemd: systemd finds nothing in them, they are as hardened as is told, and name what is there.

No systemd runs here: it is asked to read the files. That the daemon does its work with the system calls and capabilities of the unit is held
by tests/end_to_end/test_unit.py.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from backend_host.service.failing import GIVE_UP_STATUS, MOST_TRIES

ROOT = Path(__file__).resolve().parents[1]
UNITS = ROOT / "packaging" / "systemd"
MOST_EXPOSED = 4.0
analyze = shutil.which("systemd-analyze")
pytestmark = pytest.mark.skipif(analyze is None, reason="there is no systemd-analyze")


def read_by_systemd(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert analyze is not None
    return subprocess.run([analyze, *arguments], capture_output=True, text=True, check=False, timeout=100)


def test_systemd_finds_nothing(tmp_path: Path) -> None:
    """With the command in the place where the tests have one."""
    command = tmp_path / "fairgv-host"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    for unit in UNITS.glob("fairgv.*"):
        (tmp_path / unit.name).write_text(unit.read_text().replace("/usr/bin/fairgv-host", str(command)))
    result = read_by_systemd("verify", "--man=no", tmp_path / "fairgv.service", tmp_path / "fairgv.socket")
    assert (result.stdout + result.stderr, result.returncode) == ("", 0)


def test_a_mistake_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "fairgv.service").write_text("[Service]\nExecStart=/bin/true\nKeepOnRunning=yes\n")
    result = read_by_systemd("verify", "--man=no", tmp_path / "fairgv.service")
    assert "KeepOnRunning" in result.stderr


def test_starts_that_fail_end() -> None:
    """By what the daemon says of them; those that fail before it can say anything, by a limit that is as high."""
    unit = dict(
        line.split("=", 1) for line in (UNITS / "fairgv.service").read_text().splitlines() if line[:1].isupper()
    )
    assert unit["Restart"] == "on-failure"
    assert str(GIVE_UP_STATUS) in unit["RestartPreventExitStatus"].split()
    assert not {str(GIVE_UP_STATUS), "1"} & {
        *unit["SuccessExitStatus"].split(),
        *unit["RestartForceExitStatus"].split(),
    }
    assert int(unit["StartLimitBurst"]) == MOST_TRIES


def test_it_is_hardened() -> None:
    result = read_by_systemd("security", "--offline=true", UNITS / "fairgv.service")
    found = re.search(r"Overall exposure level for fairgv.service: (\d+\.\d)", result.stdout)
    assert found is not None, result.stdout + result.stderr
    assert float(found[1]) <= MOST_EXPOSED


def test_each_option_that_is_left_out_is_told_of() -> None:
    result = read_by_systemd("security", "--offline=true", UNITS / "fairgv.service")
    left_out = set(re.findall(r"^✗ (\w+)=", result.stdout, re.MULTILINE))
    text = (UNITS / "fairgv.service").read_text()
    told = {word for line in text.splitlines() if line.startswith("#") for word in re.findall(r"\w+", line)}
    assert left_out - told == set()
    assert "PrivateDevices" in left_out
