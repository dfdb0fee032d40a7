"""`fairgv-host attach` and `detach`: puts the shared memory device into a libvirt domain and takes it out again.

The persistent definition comes first, as it always works. A running domain gets the device at once where that really
works: on machine type pc. On q35 the root bus takes nothing while the guest runs, and behind a bridge the region's BAR
stays unassigned although libvirt reports success; there the device comes at the next start, and the answer says so.

Who makes the region's file, and what happens to it, is told in `region_file.py`. Here it is made before the guest can
see the device; `before_plug` lets the daemon initialise it at that moment. The file must be initialised again after
each stop, crash and reset.

A domain with the device can neither be migrated nor saved (QEMU refuses): memory shared with the host cannot move.

Wrong when: a definition is edited by hand while it is attached so that its UUID changes: the device then belongs to
nobody.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from backend_host.sizes import format_size
from backend_host.vm.connection import connected, load_libvirt, qemu_owner
from backend_host.vm.domain_xml import (
    NAMESPACE,
    PREFIX,
    DomainXml,
    Settings,
    check_settings,
    device_xml,
    free_slot,
    without_empty_metadata,
)
from backend_host.vm.errors import VmError
from backend_host.vm.region_file import RegionOwner, prepare_region_file, region_name, region_path, remove_region_file

TakesEffect = Literal["now", "next start"]


@dataclass(frozen=True)
class Attachment:
    """A domain and its vGPU. `takes_effect` is 'now' when the guest has (or, after detach, has lost) the device
    already.

    `owner` is as whom QEMU opens the region's file: hand it to `prepare_region_file`. `explanation` is a sentence for
    the operator when something is left to say, else empty.
    """

    domain: str
    uuid: str
    shm_name: str
    region_bytes: int
    weight: int
    memory_bytes: int | None
    is_running: bool
    takes_effect: TakesEffect
    owner: RegionOwner
    explanation: str = ""


@dataclass(frozen=True)
class LibvirtDomains:
    """The domains of one libvirt instance. `before_plug` gets each region's file before a guest can see it."""

    connection_uri: str
    before_plug: Callable[[Path], None] = lambda _path: None

    def attach(self, name: str, weight: int, memory_bytes: int | None, region_bytes: int) -> Attachment:
        """See `attach` of this module."""
        return attach(self.connection_uri, name, weight, memory_bytes, region_bytes, before_plug=self.before_plug)

    def change(self, name: str, weight: int | None, memory_bytes: int | None) -> Attachment:
        """See `change` of this module."""
        return change(self.connection_uri, name, weight, memory_bytes)

    def detach(self, name: str) -> Attachment:
        """See `detach` of this module."""
        return detach(self.connection_uri, name)

    def attached_domains(self) -> list[Attachment]:
        """See `attached_domains` of this module."""
        return attached_domains(self.connection_uri)


def attach(
    connection_uri: str,
    name: str,
    weight: int,
    memory_bytes: int | None,
    region_bytes: int,
    *,
    before_plug: Callable[[Path], None] = lambda _path: None,
) -> Attachment:
    """Puts device and settings into the domain's persistent definition, and into the running domain where that works.

    Either all of the persistent part is done or none of it. Raises VmError with what stands in the way.
    """
    settings = Settings(weight, memory_bytes, region_bytes)
    check_settings(settings)
    with connected(connection_uri) as connection:
        domain = _find_domain(connection, name)
        definition = _check_attachable(domain)
        shm_name = region_name(definition.uuid)
        path = prepare_region_file(shm_name, region_bytes, qemu_owner(connection, definition))
        try:
            before_plug(path)
            _define_device(domain, definition, settings)
        except BaseException:
            remove_region_file(shm_name)
            raise
        explanation = _plug_now(domain, definition, settings) if domain.isActive() else ""
        return _attachment(connection, domain, settings, explanation)


def change(connection_uri: str, name: str, weight: int | None, memory_bytes: int | None) -> Attachment:
    """Another weight or quota in the domain's metadata; None leaves as it is, a quota of 0 takes it away. Raises VmError."""
    libvirt = load_libvirt()
    with connected(connection_uri) as connection:
        domain = _find_domain(connection, name)
        before = _read_settings(domain)
        if before is None:
            raise VmError(_not_attached(name))
        quota_bytes = before.memory_bytes if memory_bytes is None else memory_bytes or None
        settings = Settings(before.weight if weight is None else weight, quota_bytes, before.region_bytes)
        check_settings(settings)
        element = libvirt.VIR_DOMAIN_METADATA_ELEMENT
        domain.setMetadata(element, settings.to_xml(), PREFIX, NAMESPACE, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
        return _attachment(connection, domain, settings, "")


def detach(connection_uri: str, name: str) -> Attachment:
    """Takes device and settings out of the definition, which is then as it was, and out of the running domain where it
    lets go.

    The region's file goes at once: a guest that still has the device keeps the memory until it is shut down, and nobody
    else can reach that memory any more. Raises VmError.
    """
    libvirt = load_libvirt()
    with connected(connection_uri) as connection:
        domain = _find_domain(connection, name)
        settings = _read_settings(domain)
        configured = DomainXml(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
        if settings is None and configured.our_device() is None:
            raise VmError(_not_attached(name))
        settings = settings or Settings(1, None, configured.region_bytes() or 0)
        if (device := configured.our_device()) is not None:
            domain.detachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
        _remove_metadata(connection, domain)
        explanation = _unplug_now(domain)
        remove_region_file(region_name(configured.uuid))
        return _attachment(connection, domain, settings, explanation, is_wanted=False)


def attached_domains(connection_uri: str) -> list[Attachment]:
    """All domains of the instance that carry our metadata, running or not, by name."""
    with connected(connection_uri) as connection:
        found = [(domain, _read_settings(domain)) for domain in connection.listAllDomains()]
        attachments = [_attachment(connection, domain, settings, "") for domain, settings in found if settings]
        return sorted(attachments, key=lambda attachment: attachment.domain)


def is_paused(connection_uri: str, name: str) -> bool:
    """Whether the domain's vCPUs stand still for now (suspended, or asleep), so that no silence of its guest means
    anything.
    """
    libvirt = load_libvirt()
    with connected(connection_uri) as connection:
        state, _reason = _find_domain(connection, name).state()
        return state in (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PMSUSPENDED)


def _not_attached(name: str) -> str:
    return f"domain {name} is not attached: fairgv-host list shows those that are"


def _find_domain(connection: Any, name: str) -> Any:
    libvirt = load_libvirt()
    try:
        return connection.lookupByName(name)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
            raise
        known = ", ".join(sorted(domain.name() for domain in connection.listAllDomains())[:10]) or "none at all"
        raise VmError(
            f"there is no domain {name} at {connection.getURI()} (there: {known}): see virsh list --all"
        ) from error


def _check_attachable(domain: Any) -> DomainXml:
    libvirt = load_libvirt()
    name = domain.name()
    if not domain.isPersistent():
        raise VmError(f"domain {name} is transient, so nothing would remember its vGPU: virsh define it first")
    definition = DomainXml(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    definition.check_architecture()
    settings = _read_settings(domain)
    if settings or definition.our_device():
        size = format_size(settings.region_bytes if settings else definition.region_bytes() or 0)
        raise VmError(f"domain {name} is attached already (region {size}): fairgv-host detach {name} first")
    if domain.isActive() and DomainXml(domain.XMLDesc()).our_device():
        raise VmError(f"domain {name} still holds the device it was detached from: shut it down first")
    return definition


def _define_device(domain: Any, definition: DomainXml, settings: Settings) -> None:
    libvirt = load_libvirt()
    slot = free_slot(definition) if definition.has_pci_express_root() else None
    device = device_xml(region_name(definition.uuid), settings.region_bytes, slot)
    domain.attachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
    try:
        element = libvirt.VIR_DOMAIN_METADATA_ELEMENT
        domain.setMetadata(element, settings.to_xml(), PREFIX, NAMESPACE, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
    except libvirt.libvirtError:
        domain.detachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
        raise


def _plug_now(domain: Any, definition: DomainXml, settings: Settings) -> str:
    """Empty when the running guest has the device now, else why it gets it at the next start only."""
    libvirt = load_libvirt()
    later = f"attached; it takes effect at the next start of {domain.name()}, because"
    remedy = "shut it down and start it again"
    if definition.has_pci_express_root():
        return f"{later} machine type {definition.machine()} takes no such device while it runs: {remedy}"
    device = device_xml(region_name(definition.uuid), settings.region_bytes)
    try:
        domain.attachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    except libvirt.libvirtError as error:
        return f"{later} the running domain refused the device ({error.get_error_message()}): {remedy}"
    return ""


def _unplug_now(domain: Any) -> str:
    """Empty when no running guest has the device, else why it keeps it for now."""
    libvirt = load_libvirt()
    kept = f"detached; the running {domain.name()} keeps the device until it is shut down, because"
    if not domain.isActive() or (device := DomainXml(domain.XMLDesc()).our_device()) is None:
        return ""
    try:
        domain.detachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    except libvirt.libvirtError as error:
        return f"{kept} it cannot be taken out ({error.get_error_message()})"
    if DomainXml(domain.XMLDesc()).our_device() is not None:
        return f"{kept} the guest has not let go of it"
    return ""


def _remove_metadata(connection: Any, domain: Any) -> None:
    libvirt = load_libvirt()
    if _read_settings(domain) is None:
        return
    element = libvirt.VIR_DOMAIN_METADATA_ELEMENT
    domain.setMetadata(element, None, PREFIX, NAMESPACE, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
    text = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)
    if (restored := without_empty_metadata(text)) != text:
        connection.defineXML(restored)


def _read_settings(domain: Any) -> Settings | None:
    libvirt = load_libvirt()
    flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG if domain.isPersistent() else libvirt.VIR_DOMAIN_AFFECT_LIVE
    try:
        return Settings.from_xml(domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, NAMESPACE, flags))
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN_METADATA:
            return None
        raise


def _attachment(
    connection: Any, domain: Any, settings: Settings, explanation: str, *, is_wanted: bool = True
) -> Attachment:
    is_running = bool(domain.isActive())
    current = DomainXml(domain.XMLDesc())
    has_device = is_running and current.our_device() is not None
    uuid = domain.UUIDString()
    return Attachment(
        domain=domain.name(),
        uuid=uuid,
        shm_name=region_name(uuid),
        region_bytes=settings.region_bytes,
        weight=settings.weight,
        memory_bytes=settings.memory_bytes,
        is_running=is_running,
        takes_effect="now" if has_device == is_wanted else "next start",
        owner=qemu_owner(connection, current),
        explanation=explanation,
    )


__all__ = [
    "Attachment",
    "LibvirtDomains",
    "RegionOwner",
    "TakesEffect",
    "attach",
    "attached_domains",
    "change",
    "detach",
    "is_paused",
    "prepare_region_file",
    "region_path",
    "remove_region_file",
]
