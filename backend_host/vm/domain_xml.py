"""What FairGV puts into a domain's definition, and what it reads from one. Pure text: no libvirt here.

The device is named after the domain's UUID; weight, quota and region size stand in the domain's metadata under a
namespace of ours, where libvirt keeps them without understanding them. So a daemon that starts anew finds everything in
the definitions alone.

On a PCI Express root (machine type q35) libvirt would put the device, which is conventional PCI, behind a bridge it
adds: controllers that stay when the device goes, and a bridge whose window may be too small for the region. So the
device gets an explicit slot on the root itself, which QEMU allows for a device that is there at the start.
"""

import re
from dataclasses import dataclass
from xml.etree import ElementTree

from backend_host.vm.errors import VmError
from backend_host.vm.region_file import region_name

NAMESPACE = "https://fairgv.dev/xmlns/domain/1"
PREFIX = "fairgv"

# Slots 0 and 0x1f are the chipset's own; the low ones are where libvirt puts its controllers.
_CANDIDATE_SLOTS = range(0x1D, 0x02, -1)


@dataclass(frozen=True)
class Settings:
    """What the metadata keeps. `memory_bytes` is the quota of device memory; None: no quota."""

    weight: int
    memory_bytes: int | None
    region_bytes: int

    def to_xml(self) -> str:
        """The metadata element, without a prefix: libvirt adds it."""
        memory = "" if self.memory_bytes is None else f" memory_bytes='{self.memory_bytes}'"
        return f"<vgpu weight='{self.weight}'{memory} region_bytes='{self.region_bytes}'/>"

    @classmethod
    def from_xml(cls, text: str) -> "Settings":
        """Reads what `to_xml` wrote. Raises VmError when somebody edited it into something else."""
        try:
            attributes = ElementTree.fromstring(text).attrib
            memory = attributes.get("memory_bytes")
            found = cls(int(attributes["weight"]), int(memory) if memory else None, int(attributes["region_bytes"]))
        except (ElementTree.ParseError, KeyError, ValueError) as error:
            raise VmError(
                f"FairGV's metadata of the domain is damaged ({error}): detach and attach it again"
            ) from error
        check_settings(found)
        return found


def check_settings(settings: Settings) -> None:
    """Raises VmError for what neither the scheduler nor a PCI BAR can be."""
    if settings.weight < 1:
        raise VmError(f"a weight is a whole number from 1 on, not {settings.weight}")
    if settings.memory_bytes is not None and settings.memory_bytes <= 0:
        raise VmError(f"a memory quota is more than {settings.memory_bytes} bytes: leave --memory out for no quota")
    size = settings.region_bytes
    if size < 1 << 20 or size & (size - 1):
        raise VmError(
            f"a region is a PCI BAR, so its size is a power of two from 1 MiB on, not {size} bytes: try --region 64M"
        )


def device_xml(name: str, region_bytes: int, slot: int | None = None) -> str:
    """The device, at a slot of PCI bus 0 when one is given, else where libvirt finds room."""
    address = f"<address type='pci' domain='0' bus='0' slot='{slot:#x}' function='0'/>" if slot is not None else ""
    size = f"<size unit='M'>{region_bytes >> 20}</size>"
    return f"<shmem name='{name}'><model type='ivshmem-plain'/>{size}{address}</shmem>"


class DomainXml:
    """Reads one domain definition as libvirt gives it."""

    def __init__(self, text: str) -> None:
        self._root = ElementTree.fromstring(text)
        self.uuid = self._root.findtext("uuid", "")
        self.name = self._root.findtext("name", "")

    def region_bytes(self) -> int | None:
        """Size of our device in this definition, which libvirt gives in MiB; None when it has none."""
        device = self._our_element()
        return None if device is None else int(device.findtext("size", "0")) << 20

    def our_device(self) -> str | None:
        """Our device as it stands, address and alias included, which names it without a doubt."""
        device = self._our_element()
        return None if device is None else ElementTree.tostring(device, encoding="unicode")

    def machine(self) -> str:
        """For example pc-q35-7.2."""
        return self._type_attribute("machine")

    def has_pci_express_root(self) -> bool:
        """Whether bus 0 takes no device while the domain runs. Raises VmError when there is no PCI bus at all."""
        for controller in self._root.iterfind("devices/controller[@type='pci'][@index='0']"):
            return controller.get("model") == "pcie-root"
        raise VmError(f"machine type {self.machine()} has no PCI bus for the shared memory device: use q35 or pc")

    def check_architecture(self) -> None:
        """Raises VmError for a guest that could not run the guest library."""
        if (architecture := self._type_attribute("arch")) != "x86_64":
            raise VmError(f"domain {self.name} is {architecture}, and guests of FairGV are x86_64")

    def used_slots(self) -> set[int]:
        """Slots of PCI bus 0 that a device of this definition holds."""
        return {
            int(address.get("slot", "0"), 0)
            for address in self._root.iterfind("devices//address[@type='pci']")
            if int(address.get("bus", "0"), 0) == 0 and int(address.get("domain", "0"), 0) == 0
        }

    def static_owner(self) -> str | None:
        """`user:group` when the definition itself says as whom QEMU runs."""
        return self._root.findtext("seclabel[@model='dac'][@type='static']/label")

    def domain_type(self) -> str:
        """kvm or qemu."""
        return self._root.get("type", "")

    def _our_element(self) -> ElementTree.Element | None:
        for device in self._root.iterfind("devices/shmem"):
            if device.get("name") == region_name(self.uuid):
                return device
        return None

    def _type_attribute(self, name: str) -> str:
        element = self._root.find("os/type")
        return element.get(name, "") if element is not None else ""


def free_slot(*definitions: DomainXml) -> int:
    """A slot of PCI bus 0 that is free in each of the definitions. Raises VmError when there is none."""
    used = set().union(*(definition.used_slots() for definition in definitions))
    for slot in _CANDIDATE_SLOTS:
        if slot not in used:
            return slot
    raise VmError(f"PCI bus 0 of domain {definitions[0].name} has no free slot: remove a device from it")


def default_owner(capabilities: str, domain_type: str) -> str | None:
    """`user:group` that the instance runs QEMU as unless a domain says otherwise; None for an instance that is not
    privileged.
    """
    host = ElementTree.fromstring(capabilities).find("host")
    for model in host.iterfind("secmodel") if host is not None else ():
        if model.findtext("model") == "dac":
            return model.findtext(f"baselabel[@type='{domain_type}']")
    return None


def without_empty_metadata(text: str) -> str:
    """libvirt leaves an empty element behind when the last metadata goes; the definition shall be as it was."""
    return re.sub(r"\n\s*<metadata\s*/>", "", text, count=1)
