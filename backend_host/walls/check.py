"""Which walls this host can have, found by putting each up: at the daemon's start, and for `fairgv-host doctor`."""

import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator

from backend_host.errors import LastingError
from backend_host.walls import cgroups
from backend_host.walls.root import PACKAGE_ROOT, Root, root_of_python
from backend_host.walls.settings import WALLS, Finding, WallSettings
from backend_host.walls.start import NAMESPACES, Walls
from backend_host.worker._worker import lib

_NOTHING = (sys.executable, "-I", "-S", "-c", "")
"""A program that ends at once, of what workers run."""
_TRUE = ("true",)
"""A program of the system, which any user may run."""
_REMEDIES = {
    "user": "as root, user ids in [walls] that this system has (in a container those of /proc/self/uid_map); as another user, "
    "sysctl user.max_user_namespaces=10000, and where they exist kernel.unprivileged_userns_clone=1 and "
    "kernel.apparmor_restrict_unprivileged_userns=0; or run it as root",
    "mount": "run fairgv-host as root with all capabilities, on Linux 5.12 or newer",
    "pid": "run fairgv-host as root with all capabilities",
    "ipc": "run fairgv-host as root with all capabilities",
    "net": "run fairgv-host as root with all capabilities",
    "cgroup": "run fairgv-host as root, or as an ordinary user by: systemd-run --user --scope -p Delegate=yes fairgv-host start",
    "landlock": "a kernel with CONFIG_SECURITY_LANDLOCK, 6.12 or newer, and landlock in its parameter lsm=",
    "filter": "a kernel with CONFIG_SECCOMP_FILTER",
}
_LEAST_LANDLOCK = 6
"""The version since which it keeps signals and sockets in."""

log = logging.getLogger("fairgv.walls")


def check(settings: WallSettings) -> tuple[Finding, ...]:
    """Tries each wall; in the order of WALLS."""
    found = dict(_reasons(settings))
    return tuple(Finding(wall, found[wall], _REMEDIES[wall] if found[wall] else "") for wall in WALLS)


def walls_of_host(settings: WallSettings, *, is_lenient: bool = False) -> frozenset[str]:
    """The names of the walls that workers get. LastingError for one that is missing and was not excused; `is_lenient` excuses all, and the log
    says which."""
    missing = [finding for finding in check(settings) if finding.reason]
    for finding in missing:
        text = f"the wall {finding.wall!r} around workers is not to be had: {finding.reason}"
        if finding.wall in settings.allow_missing or is_lenient:
            log.warning("%s", text)
        else:
            raise LastingError(
                f"{text}. Remedy: {finding.remedy}. Or start without it: --allow-missing-wall {finding.wall}, "
                f'or allow_missing = ["{finding.wall}"] in [walls]; docs/walls.md says what that costs'
            )
    return frozenset(WALLS) - {finding.wall for finding in missing}


def _reasons(settings: WallSettings) -> Iterator[tuple[str, str]]:
    user = _reason_of_user(settings)
    yield "user", user
    base = frozenset[str]() if user and os.geteuid() != 0 else frozenset({"user"})
    yield from _reasons_of_namespaces(base, settings)
    try:
        cgroups.find()
        yield "cgroup", ""
    except cgroups.NoCgroupsError as error:
        yield "cgroup", str(error)
    version = lib.fgw_walls_landlock_version()
    yield "landlock", "" if version >= _LEAST_LANDLOCK else f"the kernel has version {version} of it"
    yield "filter", "" if os.path.exists("/proc/sys/kernel/seccomp") else "the kernel has none"  # noqa: PTH110


def _reasons_of_namespaces(base: frozenset[str], settings: WallSettings) -> Iterator[tuple[str, str]]:
    """Of all together, as workers have them; where that fails, each by itself tells which."""
    if not _try(Walls(base | NAMESPACES.keys(), settings), root_of_python()):
        yield from dict.fromkeys(NAMESPACES, "").items()
        return
    alone = {wall: _try(Walls(base | {wall}, settings), Root()) for wall in NAMESPACES if wall != "mount"}
    yield from alone.items()
    # A worker's /proc is that of its namespace of processes.
    names = base | {"mount", "pid"} - {wall for wall in alone if alone[wall]}
    yield "mount", _try(Walls(names, settings), root_of_python())


def _try(walls: Walls, root: Root) -> str:
    try:
        child = walls.start(_NOTHING, {"PATH": os.defpath}, root)
    except OSError as error:
        return str(error)
    status = child.wait()
    child.close()
    return "" if status == 0 else f"a program behind it ended with status {status}"


def _reason_of_user(settings: WallSettings) -> str:
    if os.geteuid() != 0:
        return _try(Walls(frozenset({"user"}), settings), Root())
    for path in (PACKAGE_ROOT / "backend_host/worker/main.py", PACKAGE_ROOT / "backend_host"):
        if not path.stat().st_mode & stat.S_IROTH:
            return f"users other than root may not read {path}; chmod -R o+rX helps"
    return next(filter(None, map(_reason_not_to_become, (settings.first_uid, settings.last_uid))), "")


def _reason_not_to_become(uid: int) -> str:
    """Where root is that of a container, it may have few users beside it."""
    try:
        subprocess.run(_TRUE, check=True, user=uid, group=uid, extra_groups=())
    except (OSError, subprocess.SubprocessError) as error:
        return f"no process can become user {uid}: {error}"
    return ""
