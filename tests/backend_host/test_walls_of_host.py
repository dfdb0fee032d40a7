"""Which walls a host can have: what `doctor`, `start` and `status` say where one is missing for real, and what an ordinary user gets."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from backend_host.config import PACKAGE_ROOT
from backend_host.walls.settings import PLAIN, WALLS
from tests.backend_host.escapes import path
from tests.backend_host.walled import captives
from tests.backend_host.worker_harness import walls_here

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a host that lacks something"),
    pytest.mark.skipif(
        walls_here() != frozenset(WALLS), reason="this machine has not all walls; see: fairgv-host doctor"
    ),
]

NOBODY = 65534
HOST = (sys.executable, "-m", "backend_host.cli")
AS_NOBODY = (
    "setpriv",
    f"--reuid={NOBODY}",
    f"--regid={NOBODY}",
    "--clear-groups",
    "--bounding-set=-all",
    "--inh-caps=-all",
)
IN_A_CONTAINER = ("unshare", "--user", "--map-root-user")


def run(*command: str, before: Sequence[str] = (), **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT), **more}
    return subprocess.run([*before, *command], env=environment, capture_output=True, text=True, check=False)


def missing(answer: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Walls that `doctor --json` found missing, with what it said of each."""
    checks = json.loads(answer.stdout)
    assert answer.returncode == any(check["state"] == "fail" for check in checks)
    walls = {name: check for check in checks if (name := check["check"].removeprefix("wall ")) != check["check"]}
    assert list(walls) == list(WALLS)
    return {wall: f"{check['state']}: {check['text']}" for wall, check in walls.items() if check["state"] != "pass"}


def test_doctor_where_all_are_to_be_had() -> None:
    answer = run(*HOST, "doctor", "--json")
    assert missing(answer) == {}
    text = run(*HOST, "doctor").stdout
    assert all(wall in text for wall in WALLS)


@pytest.mark.parametrize(
    ("namespace", "walls"), [("net", {"net"}), ("ipc", {"ipc"}), ("mnt", {"mount"}), ("pid", {"pid", "mount"})]
)
def test_doctor_where_namespaces_are_used_up(namespace: str, walls: set[str]) -> None:
    """In a user namespace, where root is as in a container: without the tenants' users, and with 0 more namespaces of a kind."""
    script = f'echo 0 >/proc/sys/user/max_{namespace}_namespaces; exec "$@"'
    answer = run(*HOST, "doctor", "--json", before=(*IN_A_CONTAINER, "sh", "-c", script, "sh"))
    found = missing(answer)
    assert answer.returncode == 1
    assert found.keys() == walls | {"user"}
    assert "no process can become user" in found["user"]


def test_start_is_refused_and_excused(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[walls]\nallow_missing = ["user"]\n')
    told = (*HOST, "--state-dir", str(tmp_path / "state"))
    refused = run(*told, "start", "--device", "soft", before=IN_A_CONTAINER)
    assert refused.returncode == 1
    assert "'user'" in refused.stderr
    assert "Remedy: " in refused.stderr
    assert "--allow-missing-wall user" in refused.stderr
    excused = run(*HOST, "doctor", "--json", "--config", str(config), before=IN_A_CONTAINER)
    (said,) = missing(excused).items()
    assert said[0] == "user"
    assert said[1].startswith("warn: is missing, as the configuration allows")


@pytest.fixture
def nobody() -> Iterator[tuple[Path, tuple[str, ...]]]:
    """A home of an ordinary user's, and what makes a command that user's.

    In a mount namespace where folders above this Python are open to all, for on some machines they are not.
    """
    with tempfile.TemporaryDirectory(prefix="fairgv-nobody-", dir="/tmp") as name:
        home = Path(name, "home")
        home.mkdir()
        Path(name).chmod(0o755)
        os.chown(home, NOBODY, NOBODY)
        yield home, ("unshare", "--mount", "sh", "-ec", opening(Path(sys.executable).resolve(), name), "sh", *AS_NOBODY)


def opening(python: Path, spare: str) -> str:
    closed = [folder for folder in python.parents if not folder.stat().st_mode & 0o001]
    if not closed:
        return 'exec "$@"'
    below = closed[0] / python.relative_to(closed[0]).parts[0]
    return (
        f"mkdir -p {spare}/kept; mount --bind {below} {spare}/kept; mount -t tmpfs -o mode=755 none {closed[-1]}; "
        f'mkdir -p {below}; mount --bind {spare}/kept {below}; exec "$@"'
    )


def test_an_ordinary_users_daemon(nobody: tuple[Path, tuple[str, ...]]) -> None:
    """All walls but the cgroup, which nobody has given it: refused, and had without."""
    home, before = nobody
    mine = {"HOME": str(home), "FAIRGV_SOFTGPU_STATE": str(home / "device")}
    told = (*HOST, "--state-dir", str(home / "state"))
    found = run(*HOST, "doctor", "--json", before=before, **mine)
    assert (found.returncode, set(missing(found))) == (1, {"cgroup"})
    refused = run(*told, "start", "--device", "soft", before=before, **mine)
    assert refused.returncode == 1
    assert "systemd-run --user --scope" in refused.stderr
    started = run(*told, "start", "--device", "soft", "--allow-missing-wall", "cgroup", before=before, **mine)
    assert started.returncode == 0, started.stderr
    try:
        status = json.loads(run(*told, "status", "--json", before=before, **mine).stdout)
        assert status["gpus"][0]["walls"] == [wall for wall in WALLS if wall != "cgroup"]
        assert "cgroup" in run(*told, "status", before=before, **mine).stdout
        answer = run(*guest("--state-dir", str(home / "state")), before=before, **mine)
        assert answer.returncode == 0, answer.stderr
    finally:
        run(*told, "stop", before=before, **mine)


def guest(*options: str) -> tuple[str, ...]:
    program = PACKAGE_ROOT / "build" / "programs" / "vector_add"
    return (sys.executable, "-m", "backend_host.run", *options, "--", str(program))


def test_an_ordinary_users_private_daemon(nobody: tuple[Path, tuple[str, ...]]) -> None:
    home, before = nobody
    mine = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "FAIRGV_SOFTGPU_STATE": str(home / "device")}
    answer = run(*guest(), before=before, **mine)
    assert answer.returncode == 0, answer.stderr
    assert "PASS" in answer.stdout


def test_a_closed_folder_above_is_no_hindrance(taken_over: Path) -> None:
    """Above Python, our packages or the device library: the worker reads them, as its tenant's user, where that user may not go outside."""
    above = taken_over.parent / "closed"
    above.mkdir(mode=0o700, exist_ok=True)
    inside = above / "open"
    inside.mkdir(mode=0o755, exist_ok=True)
    built = inside / taken_over.name
    built.write_bytes(taken_over.read_bytes())
    built.chmod(0o755)
    with captives(built, "soft", 1) as (own,):
        for what in (built, Path(sys.executable).resolve(), PACKAGE_ROOT / "backend_host/worker/main.py"):
            assert own.attack(path(str(what))).errno is None
        assert own.attack(path(str(above / "other"))).errno is not None
    with subprocess.Popen(
        ["cat", built], user=PLAIN.first_uid, group=PLAIN.first_uid, extra_groups=(), stderr=subprocess.DEVNULL
    ) as outside:
        assert outside.wait() != 0
