"""Whether the daemon can serve libvirt's domains, and what runs beside it when they start and when the host shuts down."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend_host.doctor.verdict import Verdict, failed, passed, warned
from backend_host.vm.bindings import how_to_get
from backend_host.vm.connection import connected, qemu_owner
from backend_host.vm.domain_xml import DomainXml
from backend_host.vm.errors import NoPermissionError, VmError
from backend_host.vm.region_file import RegionOwner

_HOOKS = Path("/etc/libvirt/hooks")
_HOOK_NAMES = ("daemon", "qemu")
_GUESTS_SCRIPTS = (Path("/usr/lib/libvirt/libvirt-guests.sh"), Path("/usr/libexec/libvirt-guests.sh"))
_GUESTS_SETTINGS = (Path("/etc/default/libvirt-guests"), Path("/etc/sysconfig/libvirt-guests"))
_GUESTS_WANTED = ("etc/systemd/system/*.wants/libvirt-guests.service", "etc/rc[2-5].d/S*libvirt-guests")


@dataclass(frozen=True)
class LibvirtReading:
    """`trouble` says why libvirt does not serve us, empty when it does. `regions` are those of all domains, by their shared memory's name, with
    a size in bytes; those with a doorbell are left out, as their memory lies elsewhere."""

    uri: str
    trouble: str = ""
    is_missing: bool = False
    """Our end: the module for Python."""
    is_denied: bool = False
    version: int = 0
    nr_domains: int = 0
    regions: Mapping[str, int] | None = None
    qemu: RegionOwner | None = None
    """As whom QEMU runs unless a domain says otherwise."""
    us: int = 0
    groups: frozenset[int] = frozenset()


def read_libvirt(uri: str) -> LibvirtReading:
    """Connects as the daemon does, and looks at all definitions."""
    try:
        with connected(uri) as connection:
            definitions = [_definition(domain) for domain in connection.listAllDomains()]
            regions = dict(filter(None, map(_region, definitions)))
            return LibvirtReading(
                uri,
                version=connection.getLibVersion(),
                nr_domains=len(definitions),
                regions=regions,
                qemu=qemu_owner(connection, DomainXml("<domain type='kvm'/>")),
                us=os.geteuid(),
                groups=frozenset({os.getegid(), *os.getgroups()}),
            )
    except VmError as error:
        cause = error.__cause__ or error
        return LibvirtReading(uri, str(cause), isinstance(cause, ImportError), isinstance(error, NoPermissionError))


def _definition(domain: Any) -> DomainXml:
    return DomainXml(domain.XMLDesc())


def _region(definition: DomainXml) -> tuple[str, int] | None:
    name = definition.shm_name()
    if name is None or definition.server() is not None:
        return None
    return name, definition.region_bytes() or 0


def libvirt(reading: LibvirtReading) -> Verdict:
    """Without it no domain is served; programs under fairgv-run are."""
    qemu = reading.qemu
    if qemu is not None and reading.us not in (0, qemu.uid) and qemu.gid not in reading.groups:
        text = f"QEMU runs as user {qemu.uid}, and could not open regions of user {reading.us}"
        return failed("libvirt", text, f"run fairgv-host as root, as that user, or in group {qemu.gid}")
    if not reading.trouble:
        numbers = (reading.version // 1_000_000, reading.version // 1000 % 1000, reading.version % 1000)
        version = ".".join(map(str, numbers))
        text = f"libvirt {version} at {reading.uri}, domains: {reading.nr_domains}, with a region: {len(reading.regions or ())}"
        return passed("libvirt", text)
    text = f"domains at {reading.uri} are not served: {reading.trouble}"
    if reading.is_missing:
        return failed("libvirt", text, how_to_get())
    if reading.is_denied:
        return failed("libvirt", text, "run as root, or: sudo usermod -aG libvirt $USER, then log in again")
    remedy = "install libvirt and start it (systemctl enable --now libvirtd), or name another as libvirt_uri"
    return failed("libvirt", text, remedy)


@dataclass(frozen=True)
class Hook:
    """A script that libvirt runs when a domain starts or ends."""

    path: str
    is_executable: bool


def read_hooks(folder: Path = _HOOKS) -> Sequence[Hook]:
    """The scripts of QEMU's driver and of libvirtd, and those in their folders."""
    found = (path for name in _HOOK_NAMES for path in (folder / name, *sorted((folder / f"{name}.d").glob("*"))))
    return [Hook(str(path), os.access(path, os.X_OK)) for path in found if path.is_file()]


def hooks(reading: Sequence[Hook]) -> Verdict:
    """FairGV hears of domains from libvirt itself."""
    idle = [hook.path for hook in reading if not hook.is_executable]
    if idle:
        return warned(
            "libvirt hooks", f"libvirt does not run {', '.join(idle)}", f"chmod +x {' '.join(idle)}, or remove it"
        )
    if reading:
        paths = ", ".join(hook.path for hook in reading)
        return passed("libvirt hooks", f"FairGV needs none; a domain starts only if these let it: {paths}")
    return passed("libvirt hooks", "none, and FairGV needs none")


@dataclass(frozen=True)
class GuestsReading:
    """What libvirt-guests does with running domains when the host shuts down: suspend, shutdown, or nothing that was found."""

    is_enabled: bool
    on_shutdown: str


def read_guests(root: Path = Path("/")) -> GuestsReading:
    """The script has the default, the settings have what goes over it."""
    files = [root / path.relative_to("/") for path in (*_GUESTS_SCRIPTS, *_GUESTS_SETTINGS)]
    values = [value for path in files if path.is_file() for value in _values(path)]
    is_enabled = any(path for pattern in _GUESTS_WANTED for path in root.glob(pattern))
    return GuestsReading(is_enabled, values[-1] if values else "")


def _values(path: Path) -> Iterator[str]:
    """An assignment that is indented is one branch's of the script."""
    found = re.findall(r"^ON_SHUTDOWN=[\"']?(\w+)", path.read_text(errors="replace"), re.MULTILINE)
    yield from found


def guests(reading: GuestsReading) -> Verdict:
    """A domain with a vGPU cannot be saved: what it shares with the host, and has on the GPU, cannot leave the host."""
    if not reading.is_enabled:
        return passed("libvirt-guests", "is not enabled")
    if reading.on_shutdown == "shutdown":
        return passed("libvirt-guests", "shuts domains down with the host")
    text = "would save domains when the host shuts down, which fails for those with a vGPU"
    return warned("libvirt-guests", text, f"ON_SHUTDOWN=shutdown in {_GUESTS_SETTINGS[0]}, or {_GUESTS_SETTINGS[1]}")
