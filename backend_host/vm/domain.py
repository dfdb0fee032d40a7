"""`fairgv-host attach` and `detach`: puts the shared memory device into a libvirt domain and takes it out again.

The persistent definition comes first, as it always works. A running domain gets the device at once where its guest has room for it
(`plug.py`); else the device comes at the next start, and the answer says why, and what would help.

Who makes the region's file, and what happens to it, is told in `region_file.py`, and in `access.py` what QEMU needs to open it. Here it is
made before the guest can see the device; `before_plug` lets the daemon initialise it at that moment. The file must be initialised again after
each stop, crash and reset.

A domain with the device can neither be migrated nor saved: QEMU refuses, as memory shared with the host cannot move, and says that the device
is in its peer mode.

Wrong when: a definition is edited by hand while it is attached so that its UUID changes: the device then belongs to
nobody.
"""

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from backend_host.entitlement import PLAIN, Changes, Entitlement
from backend_host.sizes import format_size
from backend_host.vm.access import check_locked_memory, label_region
from backend_host.vm.connection import connected, load_libvirt, qemu_owner
from backend_host.vm.domain_xml import (
    NAMESPACE,
    PREFIX,
    DomainXml,
    Settings,
    check_region_size,
    device_xml,
    without_empty_metadata,
)
from backend_host.vm.doorbell import Doorbells
from backend_host.vm.errors import VmError
from backend_host.vm.plug import lasting_slot, plug, unplug
from backend_host.vm.region_file import RegionOwner, prepare_region_file, region_name, region_path, remove_region_file

TakesEffect = Literal["now", "next start"]


@dataclass(frozen=True)
class Attachment:
    """A domain and its vGPU. `takes_effect` is 'now' when the guest has (or, after detach, has lost) the device already.

    `run_id` is another after each start, and -1 while the domain is off; `is_paused` tells that its vCPUs stand still. `owner` is as whom QEMU
    opens the region's file: hand it to `prepare_region_file`, and `label`, SELinux's, to `label_region`. `server` is where QEMU looks for its
    ivshmem server when the device has a doorbell; there is no file then. `memory_socket` is where QEMU listens for the peer of a device
    `fairgv-memory`, and `pinned_bytes` how much that may add, None: as configured. `has_own_scheduling`: the definition says how its vCPUs are
    scheduled.
    `explanation` is a sentence for the operator when something is left to say, else empty.
    """

    domain: str
    uuid: str
    shm_name: str
    region_bytes: int
    entitlement: Entitlement
    is_running: bool
    is_paused: bool
    run_id: int
    takes_effect: TakesEffect
    owner: RegionOwner
    server: Path | None = None
    label: str | None = None
    memory_socket: Path | None = None
    pinned_bytes: int | None = None
    has_own_scheduling: bool = False
    explanation: str = ""


@dataclass(frozen=True)
class LibvirtDomains:
    """The domains of one libvirt instance. `unsaid` is what a domain has of which its definition says nothing. `before_plug` gets each region's
    file before a guest can see it; `before_change` the domain's UUID and what its definition is to say, which it may refuse; `before_unplug`
    the UUID while its guest can still be told that the device goes. `doorbells`: devices are attached with one.
    """

    connection_uri: str
    unsaid: Entitlement
    before_plug: Callable[[Path], None] = lambda _path: None
    before_change: Callable[[str, Entitlement], None] = lambda _uuid, _entitlement: None
    before_unplug: Callable[[str], None] = lambda _uuid: None
    doorbells: Doorbells | None = None

    def attach(self, name: str, entitlement: Entitlement, region_bytes: int) -> Attachment:
        """See `attach` of this module."""
        return attach(
            self.connection_uri,
            name,
            entitlement,
            region_bytes,
            before_plug=self.before_plug,
            doorbells=self.doorbells,
        )

    def change(self, name: str, changes: Changes) -> tuple[Attachment, bool]:
        """See `change` of this module."""
        return change(self.connection_uri, name, changes, self.unsaid, before_change=self.before_change)

    def detach(self, name: str) -> Attachment:
        """See `detach` of this module."""
        return detach(self.connection_uri, name, before_unplug=self.before_unplug)


def attach(
    connection_uri: str,
    name: str,
    entitlement: Entitlement,
    region_bytes: int,
    *,
    before_plug: Callable[[Path], None] = lambda _path: None,
    doorbells: Doorbells | None = None,
) -> Attachment:
    """Puts device and settings into the domain's persistent definition, and into the running domain where that works. With `doorbells` the
    device gets a doorbell, and its server is started.

    Either all of the persistent part is done or none of it. Raises VmError with what stands in the way.
    """
    settings = Settings(entitlement, None if doorbells is None else region_bytes)
    check_region_size(region_bytes)
    with connected(connection_uri) as connection:
        domain = _find_domain(connection, name)
        definition = _check_attachable(domain)
        check_locked_memory(definition, region_bytes)
        if doorbells is not None:
            definition.check_atomics()
        shm_name = region_name(definition.uuid)
        owner = qemu_owner(connection, definition)
        server = None
        if doorbells is None:
            path = prepare_region_file(shm_name, region_bytes, owner)
        else:
            doorbells.start(shm_name, region_bytes, owner)
            path = server = doorbells.socket_path(shm_name)
        try:
            label_region(path, DomainXml(domain.XMLDesc()).label("selinux") if domain.isActive() else None)
            before_plug(region_path(shm_name))
            _define_device(domain, definition, settings, region_bytes, server)
        except BaseException:
            remove_region_file(shm_name)
            if doorbells is not None:
                doorbells.end(shm_name)
            raise
        explanation = plug(domain, shm_name, region_bytes, server) if domain.isActive() else ""
        return _attachment(connection, domain, explanation, entitlement)


def unsaid_of(connection_uri: str, name: str, unsaid: Entitlement) -> Entitlement:
    """What the domain is to have of which a command says nothing: its flavor's, else `unsaid`. Raises VmError."""
    with connected(connection_uri) as connection:
        return _lasting_definition(_find_domain(connection, name)).unsaid(unsaid)


def change(
    connection_uri: str,
    name: str,
    changes: Changes,
    unsaid: Entitlement = PLAIN,
    *,
    before_change: Callable[[str, Entitlement], None] = lambda _uuid, _entitlement: None,
) -> tuple[Attachment, bool]:
    """Another entitlement in the domain's metadata, from which what `changes` and the metadata leave out follows `unsaid`; and whether the
    metadata says another one now. Raises VmError, and what `before_change` does: then all is as it was."""
    libvirt = load_libvirt()
    with connected(connection_uri) as connection:
        domain = _find_domain(connection, name)
        definition = _lasting_definition(domain)
        if definition.our_device() is None:
            raise VmError(_not_attached(name))
        before = definition.settings(unsaid)
        settings = dataclasses.replace(before, entitlement=before.entitlement.changed(changes))
        before_change(definition.uuid, settings.entitlement)
        where = libvirt.VIR_DOMAIN_AFFECT_CONFIG if domain.isPersistent() else libvirt.VIR_DOMAIN_AFFECT_LIVE
        is_changed = not definition.says(settings)
        if is_changed:
            domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, settings.to_xml(), PREFIX, NAMESPACE, where)
        return _attachment(connection, domain, "", unsaid), is_changed


def detach(connection_uri: str, name: str, *, before_unplug: Callable[[str], None] = lambda _uuid: None) -> Attachment:
    """Takes device and settings out of the definition, which is then as it was, and out of the running domain where it
    lets go.

    The region's file goes at once: a guest that still has the device keeps the memory until it is shut down, and nobody
    else can reach that memory any more. Raises VmError.
    """
    libvirt = load_libvirt()
    with connected(connection_uri) as connection:
        domain = _find_domain(connection, name)
        definition = _lasting_definition(domain)
        if (shm_name := definition.shm_name()) is None and not _has_metadata(domain):
            raise VmError(_not_attached(name))
        if domain.isPersistent():
            if (device := definition.our_device()) is not None:
                domain.detachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
            _remove_metadata(connection, domain)
        before_unplug(definition.uuid)
        explanation = unplug(domain)
        shm_name = shm_name or region_name(definition.uuid)
        remove_region_file(shm_name)
        return _attachment(connection, domain, explanation, PLAIN, gone=definition, shm_name=shm_name)


@dataclass(frozen=True)
class Sight:
    """What one look at a domain found. `attachment` is None when its definition has no device of ours, or one that cannot be served: `trouble`
    then says why. `holds_device`: the running guest has one, whatever the definition says by now. `state` is in virsh's words.
    """

    uuid: str
    name: str
    is_running: bool
    holds_device: bool
    attachment: Attachment | None
    trouble: str = ""
    state: str = ""


def look_at_all(connection_uri: str, unsaid: Entitlement = PLAIN) -> list[Sight]:
    """All domains of the instance, by name. What a definition leaves out of the entitlement is as in `unsaid`. Raises VmError."""
    with connected(connection_uri) as connection:
        found: list[tuple[Any, DomainXml]] = []
        sights: list[Sight] = []
        for domain in connection.listAllDomains():
            with _or_unknown(connection, domain, sights):
                found.append((domain, _lasting_definition(domain)))
        names = Counter(name for _, definition in found for name in definition.shm_names())
        for domain, definition in found:
            with _or_unknown(connection, domain, sights):
                sights.append(_sight(connection, domain, definition, names, unsaid))
        return sorted(sights, key=lambda sight: sight.name)


@contextlib.contextmanager
def _or_unknown(connection: Any, domain: Any, sights: list[Sight]) -> Iterator[None]:
    """A domain that is gone meanwhile, or is not for us to see, is none. One that libvirt does not tell of for another reason keeps what it
    has. A libvirtd that ends now says nothing of any: else its end would end vGPUs."""
    libvirt = load_libvirt()
    try:
        yield
    except libvirt.libvirtError as error:
        if error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_ACCESS_DENIED):
            return
        if not connection.isAlive():
            raise
        name, why = domain.name(), error.get_error_message()
        trouble = f"libvirt does not tell what domain {name} has: {why}"
        sights.append(Sight(domain.UUIDString(), name, True, True, None, trouble))


def _sight(connection: Any, domain: Any, definition: DomainXml, names: Counter[str], unsaid: Entitlement) -> Sight:
    is_running = bool(domain.isActive())
    holds_device = is_running and DomainXml(domain.XMLDesc()).our_device() is not None
    attachment, trouble = None, ""
    try:
        if (name := definition.shm_name()) is not None:
            definition.check_architecture()
            definition.check_device()
            if names[name] > 1:
                raise VmError(
                    f"several domains have the device {name}, and would read each other's memory: give each its own name"
                )
            attachment = _attachment(connection, domain, "", unsaid)
    except VmError as error:
        trouble = str(error)
    return Sight(
        definition.uuid, definition.name, is_running, holds_device, attachment, trouble, _state_of(domain.state()[0])
    )


def _state_of(state: int) -> str:
    libvirt = load_libvirt()
    words = {
        libvirt.VIR_DOMAIN_RUNNING: "running",
        libvirt.VIR_DOMAIN_BLOCKED: "idle",
        libvirt.VIR_DOMAIN_PAUSED: "paused",
        libvirt.VIR_DOMAIN_SHUTDOWN: "in shutdown",
        libvirt.VIR_DOMAIN_SHUTOFF: "shut off",
        libvirt.VIR_DOMAIN_CRASHED: "crashed",
        libvirt.VIR_DOMAIN_PMSUSPENDED: "pmsuspended",
    }
    return words.get(state, "no state")


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
    name = domain.name()
    if not domain.isPersistent():
        raise VmError(f"domain {name} is transient, so nothing would remember its vGPU: virsh define it first")
    definition = _lasting_definition(domain)
    definition.check_architecture()
    if definition.our_device() is not None:
        size = format_size(definition.region_bytes() or 0)
        raise VmError(f"domain {name} is attached already (region {size}): fairgv-host detach {name} first")
    if domain.isActive() and DomainXml(domain.XMLDesc()).our_device():
        raise VmError(f"domain {name} still holds the device it was detached from: shut it down first")
    return definition


def _lasting_definition(domain: Any) -> DomainXml:
    """What the domain has at its next start; of a transient one, which has none, what it has now."""
    libvirt = load_libvirt()
    return DomainXml(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE if domain.isPersistent() else 0))


def _define_device(
    domain: Any, definition: DomainXml, settings: Settings, region_bytes: int, server: Path | None
) -> None:
    libvirt = load_libvirt()
    slot = lasting_slot(definition, region_bytes)
    device = device_xml(region_name(definition.uuid), region_bytes, slot, server)
    domain.attachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
    try:
        element = libvirt.VIR_DOMAIN_METADATA_ELEMENT
        domain.setMetadata(element, settings.to_xml(), PREFIX, NAMESPACE, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
    except libvirt.libvirtError:
        domain.detachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
        raise


def _remove_metadata(connection: Any, domain: Any) -> None:
    libvirt = load_libvirt()
    if not _has_metadata(domain):
        return
    element = libvirt.VIR_DOMAIN_METADATA_ELEMENT
    domain.setMetadata(element, None, PREFIX, NAMESPACE, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
    text = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)
    if (restored := without_empty_metadata(text)) != text:
        connection.defineXML(restored)


def _has_metadata(domain: Any) -> bool:
    libvirt = load_libvirt()
    flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG if domain.isPersistent() else libvirt.VIR_DOMAIN_AFFECT_LIVE
    try:
        return bool(domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, NAMESPACE, flags))
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN_METADATA:
            return False
        raise


def _attachment(
    connection: Any,
    domain: Any,
    explanation: str,
    unsaid: Entitlement,
    *,
    gone: DomainXml | None = None,
    shm_name: str | None = None,
) -> Attachment:
    """`gone` is the definition as it was before a detach, None for a domain that has the device."""
    libvirt = load_libvirt()
    lasting = gone or _lasting_definition(domain)
    running = DomainXml(domain.XMLDesc()) if domain.isActive() else None
    has_device = running is not None and running.our_device() is not None
    device = running if running is not None and has_device and gone is None else lasting
    state, _reason = domain.state()
    try:
        settings = lasting.settings(unsaid)
    except VmError:
        if gone is None:
            raise
        settings = Settings()  # of a definition that was damaged, and is being cleared away
    return Attachment(
        domain=domain.name(),
        uuid=lasting.uuid,
        shm_name=shm_name or device.shm_name() or region_name(lasting.uuid),
        region_bytes=device.region_bytes() or lasting.region_bytes() or 0,
        entitlement=settings.entitlement,
        is_running=running is not None,
        is_paused=state in (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PMSUSPENDED),
        run_id=domain.ID(),
        takes_effect="now" if has_device == (gone is None) else "next start",
        owner=qemu_owner(connection, running or lasting),
        server=device.server(),
        label=running.label("selinux") if running is not None else None,
        memory_socket=(running or lasting).memory_socket(),
        pinned_bytes=settings.pinned_bytes,
        has_own_scheduling=(running or lasting).has_fixed_vcpu_scheduling(),
        explanation=explanation,
    )


__all__ = [
    "Attachment",
    "LibvirtDomains",
    "RegionOwner",
    "Sight",
    "TakesEffect",
    "attach",
    "change",
    "detach",
    "look_at_all",
    "prepare_region_file",
    "region_path",
    "remove_region_file",
]
