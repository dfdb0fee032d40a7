"""Attach and detach against a real libvirtd and real guests: both machine types, words both ways, reset, events, refusals."""

import contextlib
import mmap
import os
import queue
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backend_host.config import MAX_REGION_BYTES
from backend_host.entitlement import PLAIN, Entitlement, EntitlementError
from backend_host.vm import domain
from backend_host.vm.accelerator import AcceleratorChoice
from backend_host.vm.connection import load_libvirt
from backend_host.vm.domain import Attachment, attach, change, detach, look_at_all
from backend_host.vm.domain_events import DomainEvent, DomainEvents
from backend_host.vm.errors import VmError
from backend_host.vm.guest import Guest, follow_guests
from backend_host.vm.guest_output import Progress
from backend_host.vm.initramfs import GuestCommand, GuestImage, build_image
from backend_host.vm.private_libvirt import PrivateLibvirt
from backend_host.vm.region_file import region_path

pytestmark = pytest.mark.vm

REGION_BYTES = 64 << 20
BOOT_LIMIT_S = 120
EVENT_LIMIT_S = 60
BRIEF = "<domain type='qemu'><name>brief</name><memory>65536</memory><os><type>hvm</type></os></domain>"
Event = tuple[str, str, DomainEvent]


def attached_domains(connection_uri: str) -> list[Attachment]:
    """All domains of the instance that have a device that can be served, running or not, by name."""
    return [sight.attachment for sight in look_at_all(connection_uri) if sight.attachment is not None]


@pytest.fixture(scope="module")
def image(instance: PrivateLibvirt, ivshmem_word: Path) -> GuestImage:
    """Writes a word, waits for one, then waits for one that never comes."""
    arguments = (("write", "f00d"), ("await", "beef"), ("await", "ffff"))
    return build_image(instance.folder, [GuestCommand("word", ivshmem_word, each) for each in arguments])


@pytest.fixture(params=["pc", "q35"])
def guest(
    request: pytest.FixtureRequest, instance: PrivateLibvirt, image: GuestImage, choice: AcceleratorChoice
) -> Iterator[Guest]:
    """A guest of each machine type, not started."""
    with Guest(instance, f"test-{request.param}", image, choice, machine=request.param) as defined:
        yield defined


@pytest.fixture
def next_event(instance: PrivateLibvirt) -> Iterator[Callable[[], Event]]:
    """Waits for what libvirt tells next of what was done to a guest; each start is a resumption too, each attachment a definition."""
    told: queue.Queue[Event] = queue.Queue()
    passed_over = (DomainEvent.RESUMED, DomainEvent.DEFINED)

    def note(uuid: str, name: str, event: DomainEvent) -> None:
        if event not in passed_over:
            told.put((uuid, name, event))

    with DomainEvents(instance.uri, note):
        yield lambda: told.get(timeout=EVENT_LIMIT_S)


def definition(guest: Guest) -> str:
    """The persistent definition as libvirt normalises it."""
    libvirt = load_libvirt()
    return str(guest.domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE))


def is_hot_pluggable(guest: Guest) -> bool:
    return guest.name == "test-pc"


def follow(guest: Guest, progress: Progress, number: int) -> None:
    follow_guests([guest], BOOT_LIMIT_S, until=lambda _, news: (progress, number) in news)


def is_alive(pid: int) -> bool:
    """A zombie that its new parent has not collected yet does not live."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Words:
    """The first words of a region, as the host sees them."""

    def __init__(self, name: str) -> None:
        with region_path(name).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 4096)

    def __getitem__(self, index: int) -> int:
        return int.from_bytes(self._map[4 * index : 4 * index + 4], "little")

    def __setitem__(self, index: int, value: int) -> None:
        self._map[4 * index : 4 * index + 4] = value.to_bytes(4, "little")


def test_definition_is_as_before_after_detach(guest: Guest, instance: PrivateLibvirt) -> None:
    before = definition(guest)
    seen: list[Path] = []
    attached = attach(instance.uri, guest.name, Entitlement(3, 1 << 30), REGION_BYTES, before_plug=seen.append)
    assert (attached.entitlement, attached.region_bytes) == (Entitlement(3, 1 << 30), REGION_BYTES)
    assert (attached.uuid, attached.shm_name) == (guest.uuid, f"fairgv-{guest.uuid}")
    assert (attached.is_running, attached.takes_effect) == (False, "next start")
    assert seen == [region_path(attached.shm_name)]
    assert seen[0].stat().st_size == REGION_BYTES
    assert attached_domains(instance.uri) == [attached]
    assert definition(guest).count("<shmem") == 1
    detached = detach(instance.uri, guest.name)
    assert (detached.takes_effect, detached.explanation) == ("now", "")
    assert definition(guest) == before
    assert not seen[0].exists()
    assert attached_domains(instance.uri) == []


def test_foreign_metadata_and_devices_stay(guest: Guest, instance: PrivateLibvirt) -> None:
    libvirt = load_libvirt()
    foreign = "<note>mine</note>"
    device = "<shmem name='mine'><model type='ivshmem-plain'/><size unit='M'>4</size></shmem>"
    metadata, config = libvirt.VIR_DOMAIN_METADATA_ELEMENT, libvirt.VIR_DOMAIN_AFFECT_CONFIG
    guest.domain.setMetadata(metadata, foreign, "app", "https://example.org/1", config)
    guest.domain.attachDeviceFlags(device, config)
    before = definition(guest)
    attach(instance.uri, guest.name, PLAIN, REGION_BYTES)
    assert attached_domains(instance.uri)[0].entitlement.quota_bytes == 0
    detach(instance.uri, guest.name)
    assert definition(guest) == before


def plug_running(guest: Guest, uri: str, next_event: Callable[[], Event]) -> Attachment:
    """Attaches a running guest; where the machine type refuses that, checks what is said and starts it again."""
    attached = attach(uri, guest.name, PLAIN, REGION_BYTES)
    assert attached.is_running
    if is_hot_pluggable(guest):
        assert (attached.takes_effect, attached.explanation) == ("now", "")
        return attached
    assert attached.takes_effect == "next start"
    assert "takes effect at the next start of test-q35" in attached.explanation
    assert "machine type pc-q35" in attached.explanation
    assert "at a free pcie-root-port only, and it has none" in attached.explanation
    guest.domain.destroy()
    assert next_event() == (guest.uuid, guest.name, DomainEvent.STOPPED)
    guest.start()
    assert next_event() == (guest.uuid, guest.name, DomainEvent.STARTED)
    return attached


def unplug_running(guest: Guest, uri: str) -> None:
    """Detaches a running guest; where the machine type refuses that, checks what is said."""
    detached = detach(uri, guest.name)
    if is_hot_pluggable(guest):
        assert (detached.takes_effect, detached.explanation) == ("now", "")
    else:
        assert detached.takes_effect == "next start"
        assert "keeps the device until it is shut down" in detached.explanation
        with pytest.raises(VmError, match="still holds the device"):
            attach(uri, guest.name, PLAIN, REGION_BYTES)
    assert not region_path(detached.shm_name).exists()


def test_life_of_a_guest(guest: Guest, instance: PrivateLibvirt, next_event: Callable[[], Event]) -> None:
    """Start without the device, plug it, words both ways, reset, unplug, end."""
    guest.start()
    assert next_event() == (guest.uuid, guest.name, DomainEvent.STARTED)
    follow(guest, Progress.BEGUN, 0)
    attached = plug_running(guest, instance.uri, next_event)
    follow(guest, Progress.ENDED, 0)
    words = Words(attached.shm_name)
    assert words[0] == 0xF00D
    words[1] = 0xBEEF
    follow(guest, Progress.ENDED, 1)
    assert [result.exit_code for result in guest.results()] == [0, 0, None]
    assert guest.results()[0].output == f"region of {REGION_BYTES} bytes"
    assert attached_domains(instance.uri)[0].takes_effect == "now"

    guest.domain.suspend()
    assert next_event() == (guest.uuid, guest.name, DomainEvent.PAUSED)
    assert attached_domains(instance.uri)[0].is_paused
    guest.domain.resume()
    assert not attached_domains(instance.uri)[0].is_paused

    inode = region_path(attached.shm_name).stat().st_ino
    words[0] = words[1] = 0x1234
    guest.domain.reset(0)
    assert next_event() == (guest.uuid, guest.name, DomainEvent.RESET)
    assert (words[0], words[1]) == (0x1234, 0x1234)
    follow(guest, Progress.ENDED, 0)
    assert words[0] == 0xF00D
    assert region_path(attached.shm_name).stat().st_ino == inode

    unplug_running(guest, instance.uri)

    os.kill(int((instance.folder / f"run/libvirt/qemu/run/{guest.name}.pid").read_text()), signal.SIGKILL)
    ended = next_event()
    while ended[2] is DomainEvent.RESET:  # firmware may answer one reset with another
        ended = next_event()
    assert ended == (guest.uuid, guest.name, DomainEvent.CRASHED)


def test_refusals(guest: Guest, instance: PrivateLibvirt) -> None:
    def refuse(pattern: str, name: str = guest.name, size: int = REGION_BYTES) -> None:
        before = definition(guest)
        with pytest.raises(VmError, match=pattern):
            attach(instance.uri, name, PLAIN, size)
        assert definition(guest) == before

    refuse("there is no domain nobody.*virsh list", name="nobody")
    refuse("a power of two.*--region 64M", size=48 << 20)
    refuse("a power of two from 1 MiB to 64 GiB", size=1 << 50)
    usage = os.statvfs("/dev/shm")
    if usage.f_bavail * usage.f_frsize < MAX_REGION_BYTES:
        refuse("/dev/shm has .* left and the region needs .*remount", size=MAX_REGION_BYTES)
    with pytest.raises(VmError, match="is not attached"):
        detach(instance.uri, guest.name)
    attach(instance.uri, guest.name, PLAIN, REGION_BYTES)
    refuse("attached already .*fairgv-host detach")
    detach(instance.uri, guest.name)


def test_settings_are_changed_in_the_definition(guest: Guest, instance: PrivateLibvirt) -> None:
    with pytest.raises(VmError, match="is not attached"):
        change(instance.uri, guest.name, {"weight": 2})
    attach(instance.uri, guest.name, PLAIN, REGION_BYTES)
    for is_another in (True, False):
        changed = change(instance.uri, guest.name, {"weight": 5, "quota_bytes": 1 << 30})
        assert (changed[0].entitlement, changed[1]) == (Entitlement(5, 1 << 30), is_another)
    [kept] = attached_domains(instance.uri)
    assert (kept.entitlement, kept.region_bytes) == (Entitlement(5, 1 << 30), REGION_BYTES)
    assert change(instance.uri, guest.name, {"quota_bytes": 0})[0].entitlement == Entitlement(5)
    with pytest.raises(EntitlementError, match="from 1 to"):
        change(instance.uri, guest.name, {"weight": 0})
    [kept] = attached_domains(instance.uri)
    assert kept.entitlement == Entitlement(5)
    detach(instance.uri, guest.name)


def test_failed_initialisation_leaves_nothing(guest: Guest, instance: PrivateLibvirt) -> None:
    before = definition(guest)

    def fail(_path: Path) -> None:
        raise RuntimeError("no room in the control page")

    with pytest.raises(RuntimeError):
        attach(instance.uri, guest.name, PLAIN, REGION_BYTES, before_plug=fail)
    assert definition(guest) == before
    assert not region_path(f"fairgv-{guest.uuid}").exists()


def test_transient_domain_is_refused(guest: Guest, instance: PrivateLibvirt) -> None:
    guest.start()
    guest.domain.undefine()
    with pytest.raises(VmError, match="transient"):
        attach(instance.uri, guest.name, PLAIN, REGION_BYTES)


def test_no_connection(tmp_path: Path) -> None:
    with pytest.raises(VmError, match="no libvirtd answers"):
        attached_domains(f"qemu+unix:///session?socket={tmp_path}/none")
    with pytest.raises(VmError, match="another machine"):
        attached_domains("qemu+ssh://elsewhere/system")
    with pytest.raises(VmError, match="is not QEMU"):
        attached_domains("test:///default")


@pytest.fixture
def brief(instance: PrivateLibvirt) -> Iterator[str]:
    """The name of a domain of which there is nothing but its definition, by whatever libvirtd answers."""
    libvirt = load_libvirt()
    with contextlib.closing(libvirt.open(instance.uri)) as connection:
        connection.defineXML(BRIEF)
    yield "brief"
    with contextlib.closing(libvirt.open(instance.uri)) as connection:
        connection.lookupByName("brief").undefine()


@pytest.mark.parametrize("step", ["_lasting_definition", "_sight"])
def test_a_libvirtd_that_ends_in_a_look_has_said_nothing(
    instance: PrivateLibvirt, brief: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """No domain is taken for gone then: its vGPU would go, and its region's file with it."""
    before = look_at_all(instance.uri)
    assert brief in [sight.name for sight in before]
    with contextlib.ExitStack() as away, monkeypatch.context() as patch:
        original = getattr(domain, step)

        def end_first(*arguments: object) -> object:
            patch.setattr(domain, step, original)
            away.enter_context(instance.without_libvirtd())
            return original(*arguments)

        patch.setattr(domain, step, end_first)
        with pytest.raises(VmError, match="libvirt"):
            look_at_all(instance.uri)
    assert look_at_all(instance.uri) == before


@pytest.mark.parametrize("step", ["_lasting_definition", "_sight"])
def test_a_domain_that_libvirt_does_not_tell_of_costs_no_other(
    instance: PrivateLibvirt, brief: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It keeps what it has, which is said; others are seen as ever."""
    before = look_at_all(instance.uri)
    original = getattr(domain, step)

    def fail_for_one(*arguments: Any) -> object:
        of = arguments[0] if step == "_lasting_definition" else arguments[1]
        if of.name() == brief:
            of.connect().lookupByUUIDString("no UUID")  # another error of libvirt's own
        return original(*arguments)

    monkeypatch.setattr(domain, step, fail_for_one)
    after = look_at_all(instance.uri)
    assert [sight for sight in after if sight.name != brief] == [sight for sight in before if sight.name != brief]
    [unknown] = [sight for sight in after if sight.name == brief]
    assert (unknown.attachment, unknown.holds_device) == (None, True)
    assert unknown.trouble.startswith("libvirt does not tell what domain brief has: ")


@pytest.mark.parametrize("is_libvirtd_alive", [True, False])
def test_private_instance_leaves_nothing(
    instance: PrivateLibvirt, ivshmem_word: Path, choice: AcceleratorChoice, is_libvirtd_alive: bool
) -> None:
    """Also when a QEMU still runs, and when libvirtd is gone and cannot end it."""
    with contextlib.ExitStack() as ends:
        own = ends.enter_context(PrivateLibvirt())
        folder = own.folder
        image = build_image(folder, [GuestCommand("word", ivshmem_word, ("await", "ffff"))])
        with Guest(own, "left-over", image, choice) as guest:
            attachment = attach(own.uri, guest.name, PLAIN, REGION_BYTES)
            guest.start()
            emulator = int((folder / "run/libvirt/qemu/run/left-over.pid").read_text())
            libvirtd = int((folder / "run/libvirt/libvirtd.pid").read_text())
            assert is_alive(emulator)
            if not is_libvirtd_alive:
                os.kill(libvirtd, signal.SIGKILL)
            ends.close()
    assert not folder.exists()
    assert not region_path(attachment.shm_name).exists()
    assert not is_alive(emulator)
    assert not is_alive(libvirtd)
