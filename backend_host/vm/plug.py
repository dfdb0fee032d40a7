"""Plugs the shared memory device into a running domain, and out again.

What a guest needs for it, found out with QEMU 7.2 and Linux 6.1 inside the guest (libvirt reports success either way):

* Machine type pc: a slot on the root bus, where any is hot-pluggable, and addresses for the BAR. Above the guest's memory QEMU offers devices
  2 GiB unless the definition says otherwise (`<pcihole64>`); below there may be more, which the guest's firmware decides, so it is not counted.
* Machine type q35: the root bus takes nothing. A free `pcie-root-port` takes the device; its window is set when the guest boots and Linux does
  not enlarge it. QEMU's own reserve is 2 MiB, so the definition has to ask for more (`pref64-reserve`, docs/libvirt.md). Behind a
  `pcie-to-pci-bridge` there is no such reserve.

A device whose BAR finds no addresses is of no use to the guest and looks well from outside, so a region that may not fit is not plugged.

Taking out needs the guest: libvirt waits for it for five seconds and then says success too; whether it happened is seen in the definition.

Wrong when: the guest's other devices have used up the window (pc). Its kernel then says "can't assign", and its programs find no device.
"""

from pathlib import Path
from typing import Any

from backend_host.sizes import format_size
from backend_host.vm.access import denial_remedy
from backend_host.vm.connection import load_libvirt
from backend_host.vm.domain_xml import DomainXml, PciSlot, device_xml, free_slot

_RESTART = "shut it down and start it again"


class _NoRoomError(Exception):
    """The running guest has no place for the device; the text says why, and what to do."""


def plug(domain: Any, name: str, region_bytes: int, server: Path | None = None) -> str:
    """Empty when the running guest has the device now, else a sentence why it gets it at the next start only."""
    libvirt = load_libvirt()
    later = f"attached; it takes effect at the next start of {domain.name()}, because"
    running = DomainXml(domain.XMLDesc())
    try:
        device = device_xml(name, region_bytes, _place(running, region_bytes), server)
        domain.attachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    except _NoRoomError as reason:
        return f"{later} {reason}"
    except libvirt.libvirtError as error:
        remedy = denial_remedy(running) if "ermission denied" in str(error) else ""
        return f"{later} the running domain refused the device ({error.get_error_message()}): {remedy or _RESTART}"
    return ""


def lasting_slot(definition: DomainXml, region_bytes: int) -> PciSlot | None:
    """Where the device goes in a definition; None: wherever libvirt finds room. A port with room for it lets it be taken out of the running
    guest, too; the root bus of q35 does not.
    """
    if not definition.has_pci_express_root():
        return None
    return _fitting_port(definition, region_bytes) or free_slot(definition)


def unplug(domain: Any) -> str:
    """Empty when no running guest has the device, else a sentence why it keeps it for now."""
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


def _place(running: DomainXml, region_bytes: int) -> PciSlot | None:
    """None: wherever libvirt finds room."""
    if running.has_pci_express_root():
        return _root_port(running, region_bytes)
    if region_bytes > running.hole64_bytes():
        raise _NoRoomError(
            f"a running guest of machine type {running.machine()} has {format_size(running.hole64_bytes())} of addresses for devices, and the "
            f"region needs {format_size(region_bytes)}: {_RESTART}, or choose a smaller --region"
        )
    return None


def _fitting_port(definition: DomainXml, region_bytes: int) -> PciSlot | None:
    fitting = [bus for bus, reserve_bytes in definition.root_ports() if reserve_bytes >= region_bytes]
    return PciSlot(fitting[0], 0) if fitting else None


def _root_port(running: DomainXml, region_bytes: int) -> PciSlot:
    if (slot := _fitting_port(running, region_bytes)) is not None:
        return slot
    ports = running.root_ports()
    machine = f"a running guest of machine type {running.machine()} takes the device at a free pcie-root-port"
    if not ports:
        raise _NoRoomError(
            f"{machine} only, and it has none: {_RESTART}, or see docs/libvirt.md for a port that is kept free"
        )
    most_bytes = max(reserve_bytes for _, reserve_bytes in ports)
    found = f"reserves {format_size(most_bytes)}" if most_bytes else "reserves none"
    raise _NoRoomError(
        f"{machine} whose window has {format_size(region_bytes)} in reserve, and its free port {found}: {_RESTART}, or set pref64-reserve "
        "(docs/libvirt.md)"
    )
