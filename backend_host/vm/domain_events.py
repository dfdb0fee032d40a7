"""Tells the daemon what happens to domains: started, paused, reset, stopped, crashed, renamed, defined, undefined.

libvirt delivers events through an event loop that somebody must run: one thread per process does, from the first use on
and for good (an event loop of libvirt cannot be taken out again). A second thread per `DomainEvents` opens the
connection again when libvirtd goes away, or was not there yet; what happened meanwhile is lost, so `on_reconnect` is called and the daemon
looks at all domains anew.

Callbacks come on the event loop's thread: they must hand over and return, and not call libvirt.
"""

import contextlib
import enum
import threading
from collections.abc import Callable
from typing import Any, Self

from backend_host.vm.asking import Asking
from backend_host.vm.connection import explain, load_libvirt
from backend_host.vm.errors import NoPermissionError, VmError

RECONNECT_INTERVAL_S = 1.0
MAX_RECONNECT_INTERVAL_S = 5.0
_END_S = 10.0
_KEEPALIVE_INTERVAL_S, _KEEPALIVE_COUNT = 5, 5


class DomainEvent(enum.StrEnum):
    """What happened to a domain. After STOPPED, CRASHED and RESET its region must be initialised anew.

    One reset may be told twice: the firmware of machine type pc answers a reset with another one. A domain that was renamed was undefined under
    one name and defined under another.
    """

    STARTED = "started"
    STOPPED = "stopped"
    CRASHED = "crashed"
    RESET = "reset"
    PAUSED = "paused"
    RESUMED = "resumed"
    DEFINED = "defined"
    UNDEFINED = "undefined"


EventCallback = Callable[[str, str, DomainEvent], None]
"""Gets the domain's UUID, its name, and what happened."""


class DomainEvents:
    """Use as a context manager. Raises VmError when libvirtd cannot be reached at the start, unless it `waits` for one that is not there.

    `trouble` is why it could not be reached at the start, else empty.
    """

    def __init__(
        self,
        connection_uri: str,
        on_event: EventCallback,
        on_reconnect: Callable[[], None] = lambda: None,
        asking: Asking | None = None,
        *,
        waits: bool = False,
    ) -> None:
        self._uri = connection_uri
        self._on_event = on_event
        self._on_reconnect = on_reconnect
        self._asking = asking or Asking(connection_uri)
        self._lost = threading.Event()
        self._stop = threading.Event()
        self._libvirt = load_libvirt()
        _EventLoop.ensure_running()
        self.trouble = ""
        self._connection = None
        try:
            self._connection = self._open()
        except VmError as error:
            if not waits or isinstance(error, NoPermissionError):
                raise
            self.trouble = str(error)
            self._lost.set()
        self._keeper = threading.Thread(target=self._keep_connected, name="domain events", daemon=True)
        self._keeper.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """No callback begins after this has returned, except one that is running already. A libvirtd that does not answer is left alone."""
        self._stop.set()
        self._lost.set()
        self._keeper.join(_END_S)

    def _open(self) -> Any:
        libvirt = self._libvirt
        try:
            connection = libvirt.open(self._uri)
            connection.registerCloseCallback(lambda *_arguments: self._lost.set(), None)
            connection.setKeepAlive(_KEEPALIVE_INTERVAL_S, _KEEPALIVE_COUNT)
            connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._lifecycle, None)
            connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_REBOOT, self._reset, None)
            connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_METADATA_CHANGE, self._metadata, None)
        except libvirt.libvirtError as error:
            raise explain(error, self._uri) from error
        return connection

    def _keep_connected(self) -> None:
        while True:
            self._lost.wait()
            self._close_connection()
            if not self._reopen():
                self._close_connection()
                return
            self._on_reconnect()

    def _reopen(self) -> bool:
        """False: it is to stop."""
        pause_s = RECONNECT_INTERVAL_S
        while not self._stop.wait(0):
            self._lost.clear()
            try:
                self._connection = self._asking.ask(self._open, is_patient=True)
                break
            except VmError:
                self._stop.wait(pause_s)
                pause_s = min(2 * pause_s, MAX_RECONNECT_INTERVAL_S)
        return not self._stop.is_set()

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(self._libvirt.libvirtError):
                connection.unregisterCloseCallback()
            with contextlib.suppress(self._libvirt.libvirtError):
                connection.close()

    def _lifecycle(self, _connection: Any, domain: Any, event: int, detail: int, _opaque: object) -> None:
        libvirt = self._libvirt
        crashes = (libvirt.VIR_DOMAIN_EVENT_STOPPED_CRASHED, libvirt.VIR_DOMAIN_EVENT_STOPPED_FAILED)
        match event:
            case libvirt.VIR_DOMAIN_EVENT_STARTED:
                self._tell(domain, DomainEvent.STARTED)
            case libvirt.VIR_DOMAIN_EVENT_STOPPED:
                self._tell(domain, DomainEvent.CRASHED if detail in crashes else DomainEvent.STOPPED)
            case libvirt.VIR_DOMAIN_EVENT_CRASHED:
                self._tell(domain, DomainEvent.CRASHED)
            case libvirt.VIR_DOMAIN_EVENT_SUSPENDED | libvirt.VIR_DOMAIN_EVENT_PMSUSPENDED:
                self._tell(domain, DomainEvent.PAUSED)
            case libvirt.VIR_DOMAIN_EVENT_RESUMED:
                self._tell(domain, DomainEvent.RESUMED)
            case libvirt.VIR_DOMAIN_EVENT_DEFINED:
                self._tell(domain, DomainEvent.DEFINED)
            case libvirt.VIR_DOMAIN_EVENT_UNDEFINED:
                self._tell(domain, DomainEvent.UNDEFINED)

    def _reset(self, _connection: Any, domain: Any, _opaque: object) -> None:
        self._tell(domain, DomainEvent.RESET)

    def _metadata(self, _connection: Any, domain: Any, _type: int, _uri: str, _opaque: object) -> None:
        self._tell(domain, DomainEvent.DEFINED)

    def _tell(self, domain: Any, event: DomainEvent) -> None:
        if not self._stop.is_set():
            self._on_event(domain.UUIDString(), domain.name(), event)


class _EventLoop:
    """The process's one libvirt event loop."""

    _lock = threading.Lock()
    _thread: threading.Thread | None = None

    @classmethod
    def ensure_running(cls) -> None:
        with cls._lock:
            if cls._thread is None:
                libvirt = load_libvirt()
                libvirt.virEventRegisterDefaultImpl()
                # The loop waits for something to watch; a timer that never rings keeps it from returning with an error.
                libvirt.virEventAddTimeout(-1, lambda _timer, _opaque: None, None)
                cls._thread = threading.Thread(target=cls._run, args=(libvirt,), name="libvirt events", daemon=True)
                cls._thread.start()

    @staticmethod
    def _run(libvirt: Any) -> None:
        while True:
            libvirt.virEventRunDefaultImpl()
