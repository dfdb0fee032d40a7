"""One small guest as a libvirt domain: a kernel, an initramfs, a serial console that we read, and nothing else.

The console is a UNIX socket on which we listen and to which QEMU connects: what the guest prints arrives as it is
printed, and the end of QEMU is the end of the stream, so nobody polls.

It has one vCPU and room for another: of a machine that can have one only, QEMU emulates atomic instructions by ordinary loads and stores, which
overwrite what the host writes to shared memory in between.

Wrong when: somebody else restarts the domain while it is read; the new QEMU then waits in the socket's queue until
`start`.
"""

import contextlib
import selectors
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Self
from xml.sax.saxutils import escape

from backend_host.vm.accelerator import Accelerator, AcceleratorChoice, find_emulator
from backend_host.vm.connection import explain, load_libvirt
from backend_host.vm.errors import VmError
from backend_host.vm.guest_output import CommandResult, GuestOutput, Progress
from backend_host.vm.initramfs import GuestImage
from backend_host.vm.private_libvirt import PrivateLibvirt
from backend_host.vm.region_file import region_name, remove_region_file

CONNECT_LIMIT_S = 30

_DOMAIN = """\
<domain type='{type}'>
  <name>{name}</name>
  <uuid>{uuid}</uuid>
  <memory unit='MiB'>{memory_mib}</memory>
  <vcpu current='1'>2</vcpu>
  <os>
    <type arch='x86_64' machine='{machine}'>hvm</type>
    <kernel>{kernel}</kernel>
    <initrd>{initramfs}</initrd>
    <cmdline>{parameters}</cmdline>
  </os>
  <features><acpi/></features>
  <cpu mode='{cpu}'/>
  <on_reboot>restart</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <emulator>{emulator}</emulator>
    <serial type='unix'><source mode='connect' path='{console}'/><target port='0'/></serial>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
  </devices>
</domain>
"""

News = tuple[Progress, int]
"""What a guest told, with its command's number."""
NewsCallback = Callable[["Guest", Progress, int], None]


class Guest:
    """Defined on entry; destroyed, undefined and its region removed on exit. May be started again after it has ended.

    `amend` may put more into the definition, before its braces are filled in.
    """

    def __init__(
        self,
        libvirt_instance: PrivateLibvirt,
        name: str,
        image: GuestImage,
        choice: AcceleratorChoice,
        *,
        machine: str = "q35",
        memory_mib: int = 256,
        amend: Callable[[str], str] = lambda definition: definition,
    ) -> None:
        self.name = name
        self.uuid = str(uuid.uuid4())
        self.image = image
        self.output = GuestOutput(image.marker, image.commands)
        self._instance = libvirt_instance
        self._console_path = libvirt_instance.folder / f"{name}.sock"
        self.definition = amend(_DOMAIN).format(
            type=choice.domain_type,
            name=escape(name),
            uuid=self.uuid,
            memory_mib=memory_mib,
            machine=machine,
            kernel=escape(str(image.kernel)),
            initramfs=escape(str(image.initramfs)),
            parameters=escape(image.kernel_parameters),
            cpu="host-passthrough" if choice.accelerator is Accelerator.KVM else "maximum",
            emulator=escape(str(find_emulator())),
            console=escape(str(self._console_path)),
        )
        self._listener: socket.socket | None = None
        self._console: socket.socket | None = None
        self._connection: Any = None
        self.domain: Any = None

    def __enter__(self) -> Self:
        libvirt = load_libvirt()
        try:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            self._listener.bind(str(self._console_path))
            self._instance.hand_over(self._console_path)
            self._listener.listen(1)
            self._listener.settimeout(CONNECT_LIMIT_S)
            self._connection = libvirt.open(self._instance.uri)
            self._instance.remember(self.uuid)
            self.domain = self._connection.defineXML(self.definition)
        except libvirt.libvirtError as error:
            self.__exit__()
            raise explain(error, self._instance.uri) from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        libvirt = load_libvirt()
        if self.domain is not None:
            for end in (self.domain.destroy, self.domain.undefine):
                with contextlib.suppress(libvirt.libvirtError):
                    end()
        if self._connection is not None:
            with contextlib.suppress(libvirt.libvirtError):
                self._connection.close()
        self._close_console()
        if self._listener is not None:
            self._listener.close()
        self._console_path.unlink(missing_ok=True)
        remove_region_file(region_name(self.uuid))

    def fileno(self) -> int:
        """The console's descriptor, for a selector."""
        assert self._console is not None
        return self._console.fileno()

    def start(self) -> None:
        """Boots the guest. What it reported in an earlier run is forgotten. Raises VmError."""
        libvirt = load_libvirt()
        assert self._listener is not None
        self._close_console()
        self.output = GuestOutput(self.image.marker, self.image.commands)
        try:
            self.domain.create()
            self._console, _ = self._listener.accept()
        except libvirt.libvirtError as error:
            raise explain(error, self._instance.uri) from error
        except TimeoutError as error:
            raise VmError(f"QEMU of {self.name} does not connect to its console {self._console_path}") from error

    def receive(self) -> list[News] | None:
        """Reads what is there; None once QEMU has ended."""
        assert self._console is not None
        data = self._console.recv(65536)
        return self.output.feed(data) if data else None

    def send(self, data: bytes) -> None:
        """Types into the console; the image's command must read it."""
        assert self._console is not None
        self._console.sendall(data)

    def results(self) -> list[CommandResult]:
        """One per command of the image."""
        return self.output.results()

    def _close_console(self) -> None:
        if self._console is not None:
            self._console.close()
            self._console = None


def follow_guests(
    guests: Sequence[Guest],
    limit_s: float,
    on_news: NewsCallback = lambda *_news: None,
    *,
    until: Callable[[Guest, Sequence[News]], bool] = lambda *_said: False,
) -> None:
    """Reads the consoles of started guests until each has ended, or `until` is true of it. Raises VmError after `limit_s`.

    `until` is asked whenever a guest has said something, with the news in that.
    """
    deadline = time.monotonic() + limit_s
    waiting = {guest.fileno(): guest for guest in guests}
    with selectors.DefaultSelector() as selector:
        for descriptor in waiting:
            selector.register(descriptor, selectors.EVENT_READ)
        while waiting:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                names = ", ".join(sorted(guest.name for guest in waiting.values()))
                raise VmError(f"after {limit_s:.0f} s not at an end: {names}")
            for key, _ in ready:
                guest = waiting[key.fd]
                news = guest.receive()
                for progress, number in news or ():
                    on_news(guest, progress, number)
                if news is None or until(guest, news):
                    selector.unregister(key.fd)
                    del waiting[key.fd]
