"""Whether QEMU may use a region: security labels, and the limit of locked memory.

Tried where noted, else as the projects document it:

* SELinux: QEMU runs as svirt_t and opens what has its image label. libvirt labels disks, and no shared memory, so the file that we make gets
  the label here: without categories while the domain is off, since libvirt draws those at each start, and with the domain's own once it runs,
  so that no other QEMU can open it from then on.
* AppArmor (tried: Debian 12, libvirt 9.0): libvirt writes a profile at each start that names the shared memory of the definition, so a start
  needs nothing. It is not written anew for shared memory that is plugged while the domain runs; QEMU is then denied it.
* A domain whose memory is locked, by its definition or for a device passed through, locks the region as well: it counts against
  `<hard_limit>`, or against what libvirt grants, which is the guest's memory and 1 GiB.
"""

import os
from pathlib import Path

from backend_host.sizes import format_size
from backend_host.vm.domain_xml import DomainXml
from backend_host.vm.errors import VmError

SELINUX_STATE = Path("/sys/fs/selinux/enforce")
SELINUX_ATTRIBUTE = "security.selinux"
_LABEL_OF_IMAGES = "system_u:object_r:svirt_image_t:s0"
_GRANTED_BEYOND_MEMORY_BYTES = 1 << 30


def label_region(path: Path, own: str | None) -> None:
    """Gives the region's file the label under which QEMU may open it; does nothing where no SELinux is.

    `own` is the label that libvirt gave the running domain's files, None while it is off. Raises VmError.
    """
    if not SELINUX_STATE.exists():
        return
    label = own or _LABEL_OF_IMAGES
    try:
        os.setxattr(path, SELINUX_ATTRIBUTE, label.encode() + b"\0", follow_symlinks=False)
    except OSError as error:
        raise VmError(
            f"{path} cannot be given the SELinux label {label} ({error.strerror}), without which QEMU may not open it: run "
            "fairgv-host as root, unconfined"
        ) from error


def check_locked_memory(definition: DomainXml, region_bytes: int) -> None:
    """Raises VmError when QEMU would have to lock more memory than it may."""
    is_locked, limit_bytes = definition.locked_limit()
    if not is_locked:
        return
    needed_bytes = definition.memory_bytes() + region_bytes
    granted_bytes = definition.memory_bytes() + _GRANTED_BEYOND_MEMORY_BYTES if limit_bytes is None else limit_bytes
    if needed_bytes > granted_bytes:
        remedy = f"<memtune><hard_limit unit='MiB'>{(needed_bytes >> 20) + 1024}</hard_limit></memtune>"
        raise VmError(
            f"the memory of domain {definition.name} is locked, and with the region that is {format_size(needed_bytes)}, where "
            f"{format_size(granted_bytes)} may be: choose a smaller --region, or put {remedy} into its definition"
        )


def denial_remedy(running: DomainXml) -> str:
    """What to do when QEMU of that running domain was denied the region's file; empty when no confinement explains it."""
    if running.label("apparmor"):
        return (
            "AppArmor's profile of the running domain does not name the region: shut it down and start it again, which renews the profile, or "
            "allow '/dev/shm/fairgv-* rw,' in /etc/apparmor.d/local/abstractions/libvirt-qemu"
        )
    if running.label("selinux"):
        return "SELinux denied it: see ausearch -m avc"
    return ""
