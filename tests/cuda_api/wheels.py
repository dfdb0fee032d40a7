"""NVIDIA's libraries for tests, from PyPI wheels, unpacked under build/runtimes without being installed.

Pinned versions are fetched once. Without a network the first fetch fails, and so does the test that asked: a proof that
was not made must not look like one that was.
"""

import fcntl
import functools
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "runtimes"


@functools.cache
def unpacked(distribution: str, version: str | None) -> Path:
    """The folder of the wheel's content. `version` None: the newest there is, asked for once in a session."""
    name = f"{distribution}-{version or 'newest'}"
    target = FOLDER / name
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if version is None or not target.exists():
            _fetch(distribution if version is None else f"{distribution}=={version}", target)
    return target


def library(folder: Path, pattern: str) -> Path:
    """The one file of that name in the wheel."""
    found = sorted(folder.glob(f"nvidia/*/lib/{pattern}"))
    assert len(found) == 1, f"{folder} has {len(found)} files {pattern}"
    return found[0]


def _fetch(requirement: str, target: Path) -> None:
    unfinished = target.with_name(target.name + ".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    wheels = unfinished / "wheel"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--platform", "manylinux2014_x86_64", "--dest", str(wheels), requirement]
    subprocess.run(command, check=True)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unfinished)
    shutil.rmtree(wheels)
    shutil.rmtree(target, ignore_errors=True)
    unfinished.rename(target)
