"""What FairGV puts into a domain's definition, and what it reads from one. Pure text: no libvirt here.

The device is what makes a domain ours: a `<shmem>` whose name begins with `fairgv-`. Ours is named after the domain's UUID; whoever writes a
definition by hand may choose the rest of the name, as long as no other domain has it. Weight and quota stand in the domain's metadata under
a namespace of ours, where libvirt keeps them without understanding them; where that is absent, a flavor of Nova may say them; what is not said
is as configured. So a daemon that starts anew finds everything in the definitions alone.

On a PCI Express root (machine type q35) libvirt would put the device, which is conventional PCI, behind a bridge it
adds: controllers that stay when the device goes, and a bridge whose window may be too small for the region. So the
device gets an explicit slot on the root itself, which QEMU allows for a device that is there at the start.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

from backend_host.config import MAX_REGION_BYTES
from backend_host.entitlement import PLAIN, Entitlement, EntitlementError, read_changes
from backend_host.errors import ConfigError
from backend_host.sizes import parse_size
from backend_host.vm.errors import VmError
from backend_host.vm.nova import flavor_changes
from backend_host.vm.region_file import REGION_PREFIX, region_name
from ivshmem.bells import NR_GUEST_BELLS

NAMESPACE = "https://fairgv.dev/xmlns/domain/1"
PREFIX = "fairgv"
_QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"

# Slots 0 and 0x1f are the chipset's own; the low ones are where libvirt puts its controllers.
_CANDIDATE_SLOTS = range(0x1D, 0x02, -1)
MODELS = ("ivshmem-plain", "ivshmem-doorbell")
MEMORY_DEVICE = "fairgv-memory"
_TAKEN_PREFIX = "fairgv-softgpu"
_PC_HOLE64_BYTES = 2 << 30
"""QEMU's own choice for machine type pc: the addresses above the guest's memory that PCI devices may have."""
_UNITS = {"b": 1, "bytes": 1, "kib": 1 << 10, "k": 1 << 10, "mib": 1 << 20, "m": 1 << 20, "gib": 1 << 30, "g": 1 << 30}


@dataclass(frozen=True)
class Settings:
    """What the metadata keeps. `region_bytes` is the size of a region with a doorbell, whose device element has no place for it; None for
    others. `pinned_bytes`: how much a device `fairgv-memory` may add to the region; None: what the daemon's configuration says."""

    entitlement: Entitlement = PLAIN
    region_bytes: int | None = None
    pinned_bytes: int | None = None

    def to_xml(self) -> str:
        """The metadata element, without a prefix: libvirt adds it."""
        return _empty("vgpu", self.attributes())

    def attributes(self) -> dict[str, str]:
        """Of that element."""
        sizes = {"region_bytes": self.region_bytes, "pinned_bytes": self.pinned_bytes}
        values = self.entitlement.written() | {name: size for name, size in sizes.items() if size is not None}
        return {name: str(value) for name, value in values.items()}

    @classmethod
    def from_xml(cls, text: str, unsaid: Entitlement) -> "Settings":
        """Reads what `to_xml`, or a person, wrote; what it leaves out is as in `unsaid`. Raises VmError for what is neither."""
        try:
            attributes = ElementTree.fromstring(text).attrib
            sizes = [int(size) if (size := attributes.get(name)) else None for name in ("region_bytes", "pinned_bytes")]
            found = cls(unsaid.changed(read_changes(attributes)), *sizes)
        except (ElementTree.ParseError, ValueError, ConfigError) as error:
            raise VmError(
                f"FairGV's metadata of the domain is damaged ({error}): correct it, or detach and attach it again"
            ) from error
        if found.pinned_bytes is not None and found.pinned_bytes < 0:
            raise VmError(f"a limit of pinned memory is not less than nothing: {found.pinned_bytes}")
        return found


def check_region_size(size: int) -> None:
    """Raises VmError for what a PCI BAR of ours cannot be."""
    if not 1 << 20 <= size <= MAX_REGION_BYTES or size & (size - 1):
        raise VmError(
            f"a region is a PCI BAR, so its size is a power of two from 1 MiB to {MAX_REGION_BYTES >> 30} GiB, not {size} bytes: "
            "try --region 64M"
        )


@dataclass(frozen=True)
class PciSlot:
    """Where a device goes: `bus` 0 is the root."""

    bus: int
    slot: int

    def to_xml(self) -> str:
        """The device's address element."""
        return f"<address type='pci' domain='0' bus='{self.bus}' slot='{self.slot:#x}' function='0'/>"


def device_xml(name: str, region_bytes: int, slot: PciSlot | None = None, server: Path | None = None) -> str:
    """The device, at a slot when one is given, else where libvirt finds room. `server`: with a doorbell, and this is its server's socket."""
    address = slot.to_xml() if slot is not None else ""
    if server is None:
        size = f"<size unit='M'>{region_bytes >> 20}</size>"
        return f"<shmem name='{name}'><model type='ivshmem-plain'/>{size}{address}</shmem>"
    bells = f"{_empty('server', {'path': server})}<msi vectors='{NR_GUEST_BELLS}' ioeventfd='on'/>"
    return f"<shmem name='{name}'><model type='ivshmem-doorbell'/>{bells}{address}</shmem>"


def _empty(tag: str, attributes: Mapping[str, object]) -> str:
    """An element with nothing in it."""
    values = {name: str(value) for name, value in attributes.items()}
    return ElementTree.tostring(ElementTree.Element(tag, values), encoding="unicode")


class DomainXml:
    """Reads one domain definition as libvirt gives it."""

    def __init__(self, text: str) -> None:
        self._root = ElementTree.fromstring(text)
        self.uuid = self._root.findtext("uuid", "")
        self.name = self._root.findtext("name", "")

    def region_bytes(self) -> int | None:
        """Size of our device in this definition; None when it has none. Raises VmError when the settings that have it are damaged."""
        device = self._our_element()
        if device is None:
            return None
        return _bytes_of(device.find("size")) if self.server() is None else self.settings().region_bytes or 0

    def shm_name(self) -> str | None:
        """The name of our device, which is that of its shared memory; None when there is none."""
        device = self._our_element()
        return None if device is None else device.get("name")

    def server(self) -> Path | None:
        """The socket of our device's ivshmem server; None when it has no doorbell."""
        device = self._our_element()
        element = device.find("server") if device is not None else None
        return None if element is None else Path(element.get("path", ""))

    def shm_names(self) -> list[str]:
        """Of all devices that are FairGV's by their name."""
        return [name for device in self._root.iterfind("devices/shmem") if _is_ours(name := device.get("name", ""))]

    def memory_socket(self) -> Path | None:
        """Where QEMU listens for the peer of a device `fairgv-memory`, which `<qemu:commandline>` holds with its character device; None when
        there is no such device, or its other end is not to connect to."""
        arguments = [element.get("value", "") for element in self._root.iterfind(f"{_QEMU}commandline/{_QEMU}arg")]
        options = [(option, _properties(value)) for option, value in pairwise(arguments)]
        for option, device in options:
            if option == "-device" and device.get("") == MEMORY_DEVICE:
                for other, chardev in options:
                    is_its = other == "-chardev" and "chardev" in device and chardev.get("id") == device["chardev"]
                    if is_its and chardev.get("") == "socket" and chardev.get("server") in ("on", "yes", ""):
                        return Path(path) if (path := chardev.get("path")) else None
        return None

    def check_device(self) -> None:
        """Raises VmError when our device, written by hand perhaps, is not one that can be served."""
        device = self._our_element()
        assert device is not None
        name = device.get("name", "")
        model = device.find("model")
        found = model.get("type", "") if model is not None else ""
        if name.startswith(_TAKEN_PREFIX):
            raise VmError(f"device {name} of domain {self.name} has a name of the software device's: give it another")
        if found not in MODELS:
            raise VmError(
                f"device {name} of domain {self.name} is of model {found or 'unknown'}: make it ivshmem-plain or ivshmem-doorbell"
            )
        if device.get("role") == "master":
            raise VmError(
                f"device {name} of domain {self.name} has the role master, with which the domain could be saved and moved away from "
                "its GPU: leave the role out"
            )
        if found == "ivshmem-doorbell" and self.server() is None:
            raise VmError(
                f"device {name} of domain {self.name} has a doorbell and no server: give it a <server path='...'/>, or make it ivshmem-plain"
            )
        if self.server() is not None and self.settings().region_bytes is None:
            raise VmError(
                f"device {name} of domain {self.name} has a doorbell, and nothing says how large its region is: put "
                f"<{PREFIX}:vgpu xmlns:{PREFIX}='{NAMESPACE}' region_bytes='268435456'/> into the domain's metadata"
            )
        if found == "ivshmem-doorbell":
            self.check_atomics()
        if len(self.shm_names()) > 1:
            raise VmError(
                f"domain {self.name} has several devices of FairGV ({', '.join(self.shm_names())}): leave one of them"
            )
        check_region_size(self.region_bytes() or 0)

    def settings(self, unsaid: Entitlement = PLAIN) -> Settings:
        """What the metadata in this definition says, else the flavor in it; what they leave out is as in `unsaid`. Raises VmError."""
        element = self._root.find(f"metadata/{{{NAMESPACE}}}vgpu")
        if element is None:
            return Settings(self.unsaid(unsaid))
        return Settings.from_xml(ElementTree.tostring(element, encoding="unicode"), unsaid)

    def says(self, settings: Settings) -> bool:
        """Whether the metadata has them, each value as `to_xml` writes it."""
        element = self._root.find(f"metadata/{{{NAMESPACE}}}vgpu")
        return element is not None and element.attrib == settings.attributes()

    def unsaid(self, unsaid: Entitlement) -> Entitlement:
        """What a domain with this flavor has of which nobody says anything: `unsaid` where the flavor does not, either. Raises VmError."""
        try:
            return unsaid.changed(flavor_changes(self._root))
        except EntitlementError as error:
            raise VmError(f"the flavor of domain {self.name}: {error}") from error

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

    def hole64_bytes(self) -> int:
        """How much address space above the guest's memory PCI devices have on machine type pc."""
        hole = self._root.find("devices/controller[@type='pci'][@index='0']/pcihole64")
        return _PC_HOLE64_BYTES if hole is None else _bytes_of(hole)

    def root_ports(self) -> list[tuple[int, int]]:
        """Free PCI Express root ports: the bus behind each, and the bytes its window has in reserve for a device that comes later."""
        used = {self._number(address, "bus") for address in self._root.iterfind("devices//address[@type='pci']")}
        ports = self._root.iterfind("devices/controller[@type='pci'][@model='pcie-root-port']")
        indices = [int(port.get("index", "0")) for port in ports]
        return [(index, self._reserve_bytes(index)) for index in indices if index not in used]

    def _reserve_bytes(self, bus: int) -> int:
        """As `<qemu:override>` says for this port, or `-global` for all; QEMU's own reserve is too small for any region."""
        own = (
            f"{_QEMU}override/{_QEMU}device[@alias='pci.{bus}']/{_QEMU}frontend/{_QEMU}property[@name='pref64-reserve']"
        )
        for element in self._root.iterfind(own):
            return _parsed(element.get("value", "0"))
        for element in self._root.iterfind(f"{_QEMU}commandline/{_QEMU}arg"):
            key, _, value = element.get("value", "").partition("=")
            if key == "pcie-root-port.pref64-reserve":
                return _parsed(value)
        return 0

    def memory_bytes(self) -> int:
        """The guest's."""
        return _bytes_of(self._root.find("memory"))

    def locked_limit(self) -> tuple[bool, int | None]:
        """Whether QEMU locks all of the guest's memory, a region's included, and the limit in bytes that the definition sets for it."""
        is_locked = self._root.find("memoryBacking/locked") is not None
        is_locked |= self._root.find("devices/hostdev[@type='pci']") is not None
        limit = self._root.find("memtune/hard_limit")
        return is_locked, None if limit is None else _bytes_of(limit)

    def label(self, model: str) -> str | None:
        """The label that a running domain's files have under that security model; None: it is not confined by it."""
        found = self._root.find(f"seclabel[@model='{model}']")
        return None if found is None else found.findtext("imagelabel") or found.findtext("label")

    def has_fixed_vcpu_scheduling(self) -> bool:
        """Whether the definition itself says how the kernel schedules vCPUs."""
        return self._root.find("cputune/vcpusched") is not None

    def check_architecture(self) -> None:
        """Raises VmError for a guest that could not run the guest library."""
        if (architecture := self._type_attribute("arch")) != "x86_64":
            raise VmError(f"domain {self.name} is {architecture}, and guests of FairGV are x86_64")

    def used_slots(self) -> set[int]:
        """Slots of PCI bus 0 that a device of this definition holds."""
        return {
            self._number(address, "slot")
            for address in self._root.iterfind("devices//address[@type='pci']")
            if self._number(address, "bus") == 0 and self._number(address, "domain") == 0
        }

    def static_owner(self) -> str | None:
        """`user:group` when the definition itself says as whom QEMU runs."""
        return self._root.findtext("seclabel[@model='dac'][@type='static']/label")

    def domain_type(self) -> str:
        """kvm or qemu."""
        return self._root.get("type", "")

    def check_atomics(self) -> None:
        """Raises VmError for a machine whose atomic instructions are none for the host: a single vCPU's are emulated by loads and stores."""
        if self.domain_type() == "qemu" and int(self._root.findtext("vcpu", "1")) < 2:
            raise VmError(
                f"domain {self.name} is emulated and has one vCPU, so what the host writes while the guest's atomic instructions run would be "
                "lost, and a program that waits for its doorbell would hang: give it room for another, <vcpu current='1'>2</vcpu>, or attach "
                "without --doorbell"
            )

    def _our_element(self) -> ElementTree.Element | None:
        ours = [device for device in self._root.iterfind("devices/shmem") if _is_ours(device.get("name", ""))]
        named = [device for device in ours if device.get("name") == region_name(self.uuid)]
        return next(iter(named or ours), None)

    @staticmethod
    def _number(element: ElementTree.Element, name: str) -> int:
        return int(element.get(name, "0"), 0)

    def _type_attribute(self, name: str) -> str:
        element = self._root.find("os/type")
        return element.get(name, "") if element is not None else ""


def _properties(text: str) -> dict[str, str]:
    """Of an option as QEMU has it, `kind,key=value,flag`: the kind as "". A comma that is doubled is no separator."""
    kind, *rest = (part.replace("\0", ",") for part in text.replace(",,", "\0").split(","))
    return {"": kind, **{key: value for key, _, value in (part.partition("=") for part in rest)}}


def _is_ours(name: str) -> bool:
    return name.startswith(REGION_PREFIX)


def _bytes_of(element: ElementTree.Element | None) -> int:
    """libvirt's way to write sizes: a number, and a unit that is KiB unless it is said; 0 where there is none."""
    if element is None or not (element.text or "").strip().isdigit():
        return 0
    return int(element.text or "0") * _UNITS.get(element.get("unit", "KiB").lower(), 0)


def _parsed(text: str) -> int:
    try:
        return parse_size(text)
    except ConfigError:
        return 0


def free_slot(*definitions: DomainXml) -> PciSlot:
    """A slot of PCI bus 0 that is free in each of the definitions. Raises VmError when there is none."""
    used = set().union(*(definition.used_slots() for definition in definitions))
    for slot in _CANDIDATE_SLOTS:
        if slot not in used:
            return PciSlot(0, slot)
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
