"""The walls around workers, and what they need of the host: cgroups, and user ids for tenants (docs/walls.md)."""

import contextlib
import os
import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend_host.doctor.verdict import Verdict, failed, passed, warned
from backend_host.walls.cgroups import CONTROLLERS, mounts
from backend_host.walls.check import check
from backend_host.walls.settings import Finding, WallSettings

_SUBORDINATE = (Path("/etc/subuid"), Path("/etc/subgid"))
Range = tuple[int, int]
"""First and last, included."""


def read_walls(settings: WallSettings) -> Sequence[Finding]:
    """Puts each up."""
    return check(settings)


def wall(finding: Finding, excused: Sequence[str]) -> Verdict:
    """One of them. `start` refuses where it is missing, and is not excused."""
    name = f"wall {finding.wall}"
    if not finding.reason:
        return passed(name, "is to be had")
    if finding.wall in excused:
        return warned(name, f"is missing, as the configuration allows: {finding.reason}", finding.remedy)
    return failed(
        name,
        f"is missing: {finding.reason}",
        f"{finding.remedy}; or start without it: --allow-missing-wall {finding.wall}",
    )


@dataclass(frozen=True)
class CgroupReading:
    """The controllers of each version that are mounted."""

    version2: frozenset[str] = frozenset()
    version1: frozenset[str] = frozenset()


def read_cgroups() -> CgroupReading:
    """As they are mounted. Whether groups can be made is the wall's to say."""
    version2: set[str] = set()
    version1: set[str] = set()
    for kind, folder, options in mounts():
        if kind == "cgroup2":
            with contextlib.suppress(OSError):
                version2 |= set((folder / "cgroup.controllers").read_text().split())
        else:
            version1 |= set(options)
    return CgroupReading(frozenset(version2), frozenset(version1))


def cgroups(reading: CgroupReading, excused: Sequence[str]) -> Verdict:
    """All controllers of one version are needed, and the wall `cgroup` falls without."""
    needed = set(CONTROLLERS)
    names = ", ".join(CONTROLLERS)
    if needed <= reading.version2:
        return passed("cgroups", f"version 2 has {names}")
    if needed <= reading.version1:
        return passed("cgroups", f"version 1 has {names}; version 2 does not, and is not needed")
    lacking = ", ".join(sorted(needed - reading.version2))
    remedy = "systemd.unified_cgroup_hierarchy=1 on the kernel's command line, and no cgroup_disable="
    verdict = warned if "cgroup" in excused else failed
    return verdict("cgroups", f"version 2 lacks {lacking}, and version 1 has not all of {names}", remedy)


@dataclass(frozen=True)
class TenantsReading:
    """`taken` are users of this host in the range, `subordinate` ranges that others may have, by file; `mapped` are the ids that this user
    namespace has."""

    is_root: bool
    own: Range
    taken: Mapping[str, int]
    subordinate: Mapping[str, Sequence[Range]]
    mapped: Sequence[Range]
    nr_folders: int = 0


def read_tenants(settings: WallSettings) -> TenantsReading:
    """As the user database and /etc/subuid have it."""
    own = (settings.first_uid, settings.last_uid)
    taken = {user.pw_name: user.pw_uid for user in pwd.getpwall() if own[0] <= user.pw_uid <= own[1]}
    files = [path for path in _SUBORDINATE if path.is_file()]
    subordinate = {str(path): subordinate_ranges(path.read_text(errors="replace")) for path in files}
    mapped = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    nr_folders = 0
    with contextlib.suppress(OSError):
        nr_folders = sum(own[0] <= path.lstat().st_uid <= own[1] for path in settings.cache_path.iterdir())
    ranges = [(first, first + count - 1) for first, _, count in mapped]
    return TenantsReading(os.geteuid() == 0, own, taken, subordinate, ranges, nr_folders)


def subordinate_ranges(text: str) -> Sequence[Range]:
    """Of /etc/subuid: lines `name:first:count`."""
    found = re.findall(r"^[^#:\n]*:(\d+):(\d+)\s*$", text, re.MULTILINE)
    return [(int(first), int(first) + int(count) - 1) for first, count in found if int(count)]


def tenants(reading: TenantsReading, excused: Sequence[str]) -> Verdict:
    """Each tenant is a user of its own, whom nobody else may be."""
    check_name, (first, last) = "tenants' users", reading.own
    if not reading.is_root:
        return passed(check_name, "a daemon of this user needs none: its workers stay this user")
    verdict = warned if "user" in excused else failed
    name, remedy = f"{first}-{last}", "another range as users in [walls]"
    if reading.taken:
        taken = ", ".join(f"{user} ({uid})" for user, uid in reading.taken.items())
        return verdict(check_name, f"of {name} some are users of this host: {taken}", remedy)
    if not any(low <= first and last <= high for low, high in reading.mapped):
        text = f"{name} are not all ids of this user namespace"
        return verdict(check_name, text, "ids of /proc/self/uid_map as users in [walls]")
    files = [
        file
        for file, ranges in reading.subordinate.items()
        if any(low <= last and first <= high for low, high in ranges)
    ]
    if files:
        text = f"of {name} some may be given to containers by {', '.join(files)}"
        return verdict(check_name, text, remedy)
    nr_ids = last - first + 1
    if reading.nr_folders >= nr_ids:
        text = f"all {nr_ids} are given away: a new tenant takes the user of the one that was quiet longest"
        return warned(check_name, text, "a larger range as users in [walls]")
    return passed(check_name, f"{name}, {reading.nr_folders} of {nr_ids} given away")
