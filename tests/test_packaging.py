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
    units = [tmp_path / unit.name for unit in UNITS.iterdir() if unit.suffix in (".service", ".socket")]
    for unit in units:
        text = (UNITS / unit.name).read_text()
        for name in ("fairgv-host", "nvidia-modprobe"):
            text = text.replace(f"/usr/bin/{name}", str(command))
        unit.write_text(text)
    result = read_by_systemd("verify", "--man=no", *units)
    assert (result.stdout + result.stderr, result.returncode) == ("", 0)


def test_the_nodes_of_all_gpus_are_made_before_the_daemon_starts(tmp_path: Path) -> None:
    """Those that are not there then it may not open: what DeviceAllow names is looked up as its unit starts."""
    daemon = (UNITS / "fairgv.service").read_text()
    for key in ("Wants", "After"):
        assert re.search(rf"^{key}=.*\bfairgv-nvidia.service\b", daemon, re.MULTILINE)
    for minor in (0, 11):
        gpu = tmp_path / f"gpus/0000:{minor:02x}:00.0"
        gpu.mkdir(parents=True)
        (gpu / "information").write_text(f"Model: \t\t NVIDIA H200\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n")
    found = re.search(r"^ExecStart=-/bin/sh -c '(.*)'$", (UNITS / "fairgv-nvidia.service").read_text(), re.MULTILINE)
    assert found is not None
    script = found[1].replace("$$", "$").replace("/proc/driver/nvidia", str(tmp_path))
    script = script.replace("exec nvidia-modprobe", "exec echo")
    said = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout == "-u -c=0 -c=11\n"


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
