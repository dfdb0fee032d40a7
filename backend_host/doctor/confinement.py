"""Whether QEMU may open a region where AppArmor or SELinux confines it (docs/libvirt.md)."""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from backend_host.doctor.verdict import Verdict, failed, passed, warned
from backend_host.vm.access import SELINUX_ATTRIBUTE, SELINUX_STATE
from backend_host.vm.region_file import SHARED_MEMORY_FOLDER

_APPARMOR_STATE = Path("/sys/module/apparmor/parameters/enabled")
_LOCAL_RULES = Path("/etc/apparmor.d/local/abstractions/libvirt-qemu")
_RULES = (Path("/etc/apparmor.d/abstractions/libvirt-qemu"), _LOCAL_RULES)
_RULE = "/dev/shm/fairgv-* rw,"
_ALLOWS = re.compile(r"^\s*(owner\s+)?/dev/shm/(fairgv-)?\*+\s+r?wk?,", re.MULTILINE)
_TYPE = "svirt_image_t"


@dataclass(frozen=True)
class AppArmorReading:
    """`rules` are those that libvirt's profiles of all domains take in."""

    is_enabled: bool
    rules: str


def read_apparmor() -> AppArmorReading:
    """As the kernel and the files of libvirt's package say."""
    with contextlib.suppress(OSError):
        if _APPARMOR_STATE.read_text().startswith("Y"):
            texts = [path.read_text(errors="replace") for path in _RULES if path.is_file()]
            return AppArmorReading(True, "\n".join(texts))
    return AppArmorReading(False, "")


def apparmor(reading: AppArmorReading) -> Verdict:
    """Only a region that comes to a running domain needs a rule."""
    if not reading.is_enabled:
        return passed("apparmor", "does not confine QEMU here")
    if _ALLOWS.search(reading.rules):
        return passed("apparmor", "lets QEMU open regions at any time")
    text = "lets QEMU open the region that its domain started with, and none that is attached while it runs"
    return warned("apparmor", text, f"'{_RULE}' in {_LOCAL_RULES}, before domains start")


@dataclass(frozen=True)
class SelinuxReading:
    """`labels` of the regions that are there, by path; empty where one has none."""

    is_there: bool
    is_enforcing: bool = False
    is_root: bool = True
    labels: Mapping[str, str] | None = None


def read_selinux(regions: Iterable[str]) -> SelinuxReading:
    """`regions` of all domains, by the name of their file."""
    try:
        is_enforcing = SELINUX_STATE.read_text().strip() == "1"
    except OSError:
        return SelinuxReading(False)
    paths = [path for name in sorted(regions) if (path := SHARED_MEMORY_FOLDER / name).exists()]
    return SelinuxReading(True, is_enforcing, os.geteuid() == 0, {str(path): _label(path) for path in paths})


def _label(path: Path) -> str:
    try:
        return os.getxattr(path, SELINUX_ATTRIBUTE, follow_symlinks=False).decode(errors="replace").rstrip("\0")
    except OSError:
        return ""


def selinux(reading: SelinuxReading) -> Verdict:
    """QEMU opens what has the label of an image. The daemon gives it to regions, as root."""
    if not reading.is_there:
        return passed("selinux", "does not confine QEMU here")
    wrong = [path for path, label in (reading.labels or {}).items() if _TYPE not in label.split(":")]
    if wrong and reading.is_enforcing:
        text = f"QEMU may not open {', '.join(wrong)}: the label is not {_TYPE}"
        return failed("selinux", text, f"chcon -t {_TYPE} {' '.join(wrong)}")
    if not reading.is_enforcing:
        return passed("selinux", "is permissive: it denies nothing")
    if not reading.is_root:
        return failed("selinux", "enforces, and only root may label regions", "run fairgv-host as root, unconfined")
    text = f"enforces; regions are labelled {_TYPE}. FairGV was not tried under it"
    return warned("selinux", text, "where a domain is denied something: ausearch -m avc")
