"""Help, versions and tables of every command that cannot be written: one sentence; none where nobody reads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scheduler.test_version import MODULES, ROOT

SAID = {
    **{f"{program} {option}": [option] for program in MODULES for option in ("--help", "--version")},
    "fairgv-host attach": ["attach", "--help"],
    "fairgv-sim": ["--seconds", "0.01"],
    "fairgv-bench": ["decisions", "--decisions", "5", "--repetitions", "1"],
}


def command(said: str) -> list[str]:
    return [sys.executable, "-m", MODULES[said.split(maxsplit=1)[0]], *SAID[said]]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("said", SAID)
def test_a_full_disk_is_told(said: str, unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            command(said), stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT, env=environment
        )
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last == f"{said.split(maxsplit=1)[0]}: cannot write to standard output: No space left on device"
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("said", SAID)
def test_a_reader_that_has_gone_is_no_news(said: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    ended = subprocess.run(command(said), stdout=writes, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    os.close(writes)
    assert ended.returncode == 1
    assert not any(word in ended.stderr for word in ("Traceback", "Broken pipe", "cannot write"))


@pytest.mark.parametrize("said", ["fairgv-sim", "fairgv-bench"])
def test_standard_output_that_is_closed(said: str) -> None:
    ended = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command(said)], stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT
    )
    told = f"{said}: cannot write to standard output: it is closed\n"
    assert (ended.returncode, ended.stderr) == (1, told)
