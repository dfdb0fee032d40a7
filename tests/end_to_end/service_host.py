"""A daemon as a service: with a configuration of its own, and users by group. Users and groups are the kernel's: programs here run as ids that
this machine gives to nobody.
"""

import grp
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from backend_host.cli import host_command
from backend_host.config import PACKAGE_ROOT, load_as_said
from backend_host.ipc import Connection
from backend_host.launching import start_in_background
from tests.end_to_end.host import WALLS, Host, own_device

REGION_BYTES = 16 << 20
USER, OTHER, STRANGER = 70_001, 70_002, 70_003
IS_ROOT_NEEDED = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def groups() -> tuple[str, str]:
    """Two groups of this machine, which stand for fairgv and fairgv-admin."""
    first, second, *_ = [entry for entry in grp.getgrall() if entry.gr_gid not in (0, *os.getgroups())]
    return first.gr_name, second.gr_name


GROUP, ADMIN_GROUP = groups()


class Service:
    """A daemon with a configuration of its own, in a folder that everybody may pass."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "config.toml"
        self.kept = folder / "vgpus.d"
        self.kept.mkdir()
        self.state_dir = folder / "state"
        self.host = Host(self.state_dir, "soft")

    def write(self, text: str = "", users_text: str = "") -> None:
        users = f'[users]\ngroup = "{GROUP}"\nadmin_group = "{ADMIN_GROUP}"\n'
        walls = f'[walls]\ncache_dir = "{WALLS.cache_dir}"\n'
        self.file.write_text(f'adopt = "attached"\nnr_warm_workers = 0\n{text}\n{walls}{users}{users_text}')

    def start(self) -> None:
        with pytest.MonkeyPatch.context() as environment:
            for name, value in own_device(self.state_dir).items():
                environment.setenv(name, value)
            config = load_as_said(self.file, WALLS.allow_missing, state_dir=self.state_dir, device="soft")
            start_in_background(config)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return host_command(self.state_dir, *arguments)

    def vgpus(self) -> dict[str, Any]:
        return {vgpu["name"]: vgpu for vgpu in self.host.status()["vgpus"]}

    def connect(self) -> Connection:
        return Connection(self.state_dir / "control.sock")


def as_user(code: str, uid: int, groups: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs code as that user in these groups. It imports first: this machine's Python may lie where no user looks."""
    gids = [grp.getgrnam(name).gr_gid for name in groups]
    return subprocess.run(
        [sys.executable, "-c", code.replace("BECOME()", BECOME.format(uid=uid, gids=gids)), *arguments],
        env={**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


BECOME = (
    "os.setgroups({gids}); os.setgid({uid}); os.setuid({uid}); ctypes.CDLL(None).prctl(4, 1)  # of a dumpable process"
)
ASK = """
import ctypes, json, os, sys
from pathlib import Path
from backend_host.errors import FairGVError
from backend_host.ipc import Connection
BECOME()
answers = []
connection = Connection(Path(sys.argv[1]))
for request in json.loads(sys.argv[2]):
    try:
        answers.append(connection.ask(request.pop("op"), **request))
    except FairGVError as error:
        answers.append({"error": str(error)})
print(json.dumps(answers))
"""
HOLD = """
import ctypes, os, sys
from pathlib import Path
from backend_host.errors import FairGVError
from backend_host.ipc import Connection
BECOME()
held = [Connection(Path(sys.argv[1])) for _ in range(int(sys.argv[2]))]
held[-2].ask("status")
try:
    held[-1].ask("status")
except FairGVError as error:
    print(error)
"""
RUN = """
import ctypes, os, shutil, sys
from backend_host import run
BECOME()
sys.exit(run.main(sys.argv[1:]))
"""
COMMAND = """
import ctypes, os, shutil, sys
from backend_host import cli
BECOME()
sys.exit(cli.main(sys.argv[1:]))
"""


def ask_as(service: Service, uid: int, groups: Sequence[str], *requests: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the daemon answers a user on one connection: an answer, or an error, for each request."""
    result = as_user(ASK, uid, groups, str(service.state_dir / "control.sock"), json.dumps(requests))
    assert result.returncode == 0, result.stderr
    answers: list[dict[str, Any]] = json.loads(result.stdout)
    return answers
