"""libvirt domains as owners of vGPUs: a vGPU is there as long as its domain has the device, and follows what happens to the domain.

Everything that lasts stands in the definitions, so whatever happened (a definition that was made without us, a rename, a host that was started
anew, a libvirtd or a daemon that was away) the answer is one and the same: look at the domain, and make the vGPU what the definition says.
libvirt's events say when to look. Their thread only takes notes; one thread of ours looks, so that libvirt is never kept waiting. Nor does
anybody wait for a libvirtd that hangs (asking.py) but that thread, which looks without the lock.

libvirt is loaded when a domain is named for the first time, or at a start that has domains to look for.
"""

import contextlib
import dataclasses
import logging
import queue
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from backend_host.entitlement import Changes, Entitlement
from backend_host.errors import FairGVError
from backend_host.ipc import Message
from backend_host.kept_list import KeptList
from backend_host.service.events import change_answer
from backend_host.service.journal import about
from backend_host.vgpu import VGpu
from backend_host.vgpu_claims import claim_domain, has_unclaimed, release_unclaimed
from backend_host.vgpus import VGpuRegistry
from backend_host.vm.access import label_region
from backend_host.vm.asking import Asking
from backend_host.vm.connection import connected
from backend_host.vm.domain import Attachment, LibvirtDomains, Sight, look_at_all, remove_region_file, unsaid_of
from backend_host.vm.domain_events import DomainEvent, DomainEvents
from backend_host.vm.doorbell import Doorbells
from backend_host.vm.errors import VmError
from backend_host.vm.region_file import prepare_region_file, region_path
from backend_host.vm.vcpus import find_vcpus

_ENDS = (DomainEvent.STOPPED, DomainEvent.CRASHED, DomainEvent.RESET)
_MOVES = (DomainEvent.STARTED, DomainEvent.RESUMED, DomainEvent.STOPPED, DomainEvent.CRASHED)
"""Whatever the domain did, it is not paused any more."""
_OFF = -1
_AGAIN_S = 2.0
"""After a look that failed."""
_TROUBLED_S = 60.0
"""As long as a domain is not served: what is in the way, no room say, may go without a word of libvirt's."""
_START_S = 10.0
"""That a start waits for a libvirtd which takes a connection and says nothing."""
_END_S = 10.0

log = logging.getLogger("fairgv.domains")


@dataclass(eq=False)
class _Served:
    """A domain and its vGPU, as last seen. `name` is both of theirs; the flags change on libvirt's thread too."""

    uuid: str
    name: str
    entitlement: Entitlement
    shm_name: str
    region_bytes: int
    run_id: int
    is_paused: bool
    pinned_bytes: int | None = None

    @classmethod
    def of(cls, attachment: Attachment) -> "_Served":
        return cls(
            uuid=attachment.uuid,
            name=attachment.domain,
            entitlement=attachment.entitlement,
            shm_name=attachment.shm_name,
            region_bytes=attachment.region_bytes,
            run_id=attachment.run_id,
            is_paused=attachment.is_paused,
            pinned_bytes=attachment.pinned_bytes,
        )


class Domains:
    """The domains of one daemon. Thread-safe.

    `adopts_all`: every domain that has the device is served; otherwise only those that were attached here, by this daemon or an earlier one.
    `unsaid` and `pinned_bytes`: what a domain may have, and how much memory behind its region, of which its definition says nothing.
    """

    def __init__(
        self,
        vgpus: VGpuRegistry,
        uri: str,
        state_dir: Path,
        adopts_all: bool,
        doorbells: Doorbells,
        unsaid: Entitlement,
        pinned_bytes: int,
    ) -> None:
        self._vgpus = vgpus
        self._unsaid = unsaid
        self._pinned_bytes = pinned_bytes
        self._doorbells = doorbells
        self._uri = uri
        self._asking = Asking(uri)
        lost = "domains that were attached before, and that this daemon does not look for by itself, are served once they are attached again"
        self._written = KeptList(state_dir / "domains.json", str, lost)
        self._adopts_all = adopts_all
        self._events: DomainEvents | None = None
        self._served: dict[str, _Served] = {}
        self._remembered: set[str] = set()
        """UUIDs of an earlier daemon's domains that are not served yet: kept until they are, or are gone."""
        self._troubles: dict[str, str] = {}
        self._unseen_for = ""
        """Why the last look at them failed; empty: it did not."""
        self._is_written = True
        """The list of them, as it is now."""
        self._to_look_at: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._is_stopping = False
        self._thread: threading.Thread | None = None
        self._watch_lock = threading.Lock()
        self._lock = threading.Lock()
        self._change = object()
        """Another one after each change: a look that began before may have seen what is not so any more."""

    def start(self) -> None:
        """Takes up the domains that are there. A libvirt that does not answer is waited for, after a while in the background."""
        self._remembered = set(self._written.read())
        if not self._remembered and not self._adopts_all:
            release_unclaimed(self._vgpus, "domain")
            return
        beginning = threading.Thread(target=self._begin, name="domains begin", daemon=True)
        beginning.start()
        beginning.join(_START_S)
        if beginning.is_alive() and self._events is None:
            cause = "libvirtd at %s has not answered for %.0f s: domains are served once it does; if it hangs: systemctl restart libvirtd"
            log.error(cause, self._uri, _START_S)
        else:
            beginning.join(_START_S)  # it looks at them

    def _begin(self) -> None:
        try:
            trouble = self._watch(waits=True).trouble
        except FairGVError as error:
            trouble = str(error)
        if self._is_stopping:
            return
        if trouble and self._remembered:
            log.error("the domains attached before are not served: %s", trouble)
        elif trouble:
            log.info("no domains are served: %s", trouble)
        elif not self._looked(None):
            self._to_look_at.put(None)

    def attach(self, name: str, changes: Changes, region_bytes: int, has_doorbell: bool) -> Message:
        """Gives the domain a vGPU, with these instead of what it would have unsaid; the answer's `text` is for the operator. Raises VmError,
        RefusedError or EntitlementError."""
        with self._changing(), contextlib.ExitStack() as undo:
            entitlement = unsaid_of(self._uri, name, self._unsaid).changed(changes)
            served = _Served("", name, entitlement, "", region_bytes, _OFF, is_paused=False)

            def before_plug(path: Path) -> None:
                served.shm_name = path.name
                self._add(served)
                undo.callback(self._vgpus.remove_if_there, name)

            self._watch()
            doorbells = self._doorbells if has_doorbell else None
            libvirt_domains = LibvirtDomains(self._uri, self._unsaid, before_plug, doorbells=doorbells)
            attachment = libvirt_domains.attach(name, entitlement, region_bytes)
            served.uuid, served.run_id, served.is_paused = attachment.uuid, attachment.run_id, attachment.is_paused
            self._remember(served)
            undo.pop_all()
            if attachment.is_running:
                self._machine_started(served, attachment)
            self._vgpus.note_run(name, served.run_id)
        start = "now" if attachment.takes_effect == "now" else "from its next start on"
        return {
            "text": attachment.explanation or f"{name} has a vGPU {start}",
            "takes_effect": attachment.takes_effect,
            "shm_name": attachment.shm_name,
        }

    def change(self, name: str, changes: Changes) -> Message:
        """Another entitlement, now and for later starts. Raises VmError or RefusedError; then neither the vGPU nor the definition has it."""
        with self._changing(), contextlib.ExitStack() as undo:
            is_followed = False

            def before_change(uuid: str, entitlement: Entitlement) -> None:
                nonlocal is_followed
                if (served := self._served.get(uuid)) is not None:
                    is_followed = self._entitle(served, entitlement)
                    undo.callback(self._to_look_at.put, uuid)  # the definition says what it has

            attachment, is_written = LibvirtDomains(self._uri, self._unsaid, before_change=before_change).change(
                name, changes
            )
            undo.pop_all()
        entitlement = attachment.entitlement
        return change_answer(name, entitlement, f"{name}: {entitlement}", is_changed=is_written or is_followed)

    def detach(self, name: str) -> Message:
        """Takes it away again."""
        with self._changing():
            attachment = LibvirtDomains(self._uri, self._unsaid, before_unplug=self._forget).detach(name)
        return {
            "text": attachment.explanation or f"{name} has no vGPU any more",
            "takes_effect": attachment.takes_effect,
        }

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """With the lock; libvirtd answers, else VmError, so that who comes next does not wait for one that hangs."""
        self._asking.ask(self._connect)
        with self._lock:
            try:
                yield
            finally:
                self._change = object()

    def _connect(self) -> None:
        with connected(self._uri):
            pass

    def follow(self, unsaid: Entitlement) -> None:
        """Other values for what definitions leave out: their vGPUs get them, as far as they can while they run."""
        self._unsaid = unsaid
        if self._events is not None:
            self._to_look_at.put(None)

    def sights(self) -> list[Sight]:
        """All domains as they are now. Raises VmError where libvirt does not say."""
        return self._asking.ask(self._sights)

    def _sights(self) -> list[Sight]:
        return look_at_all(self._uri, self._unsaid)

    @property
    def has_unseen(self) -> bool:
        """Whether domains that an earlier daemon served are not served yet."""
        return bool(self._remembered)

    def troubles(self) -> dict[str, str]:
        """Why domains are not served, by their UUIDs, as far as that was said."""
        return {uuid: trouble for uuid, trouble in list(self._troubles.items()) if trouble}

    def stop(self) -> None:
        """No event is taken any more; the domains stay attached."""
        self._is_stopping = True
        if self._events is not None:
            self._events.close()
        if self._thread is not None:
            self._to_look_at.put(None)
            self._thread.join(_END_S)  # it may wait for libvirtd

    def _watch(self, *, waits: bool = False) -> DomainEvents:
        with self._watch_lock:
            if self._events is None:
                self._events = DomainEvents(
                    *(self._uri, self._happened, lambda: self._to_look_at.put(None), self._asking), waits=waits
                )
                self._thread = threading.Thread(target=self._run, name="domains", daemon=True)
                self._thread.start()
            return self._events

    def uuids(self) -> dict[str, str]:
        """Of the domains that are served, by their names."""
        return {served.name: served.uuid for served in list(self._served.values())}

    def _happened(self, uuid: str, _name: str, event: DomainEvent) -> None:
        """On libvirt's thread: takes a note and returns."""
        served = self._served.get(uuid)
        if served is not None and event in _ENDS:
            said = "domain %s: %s; what its programs held is taken back"
            log.info(said, served.name, event.value, extra=about(served.name, served.name))
            self._vgpus.guest_gone(served.name)
            if event is not DomainEvent.RESET:
                served.run_id = _OFF
                self._vgpus.machine_ended(served.name)
        if served is not None and event in (*_MOVES, DomainEvent.PAUSED):
            served.is_paused = event is DomainEvent.PAUSED
        if event not in (DomainEvent.RESET, DomainEvent.PAUSED, DomainEvent.RESUMED):
            self._to_look_at.put(uuid)

    def _run(self) -> None:
        unseen: set[str | None] = set()
        while True:
            with contextlib.suppress(queue.Empty):
                unseen.add(self._to_look_at.get(timeout=_AGAIN_S if unseen else _TROUBLED_S))
            while not self._to_look_at.empty():
                unseen.add(self._to_look_at.get())
            if self._is_stopping:
                return
            if not (unseen or self.troubles()):
                continue
            if self._looked(None if None in unseen else {uuid for uuid in unseen if uuid is not None}):
                unseen.clear()

    def _looked(self, uuids: set[str] | None) -> bool:
        """As `_look`, which a mistake of ours does not end for good."""
        try:
            return self._look(uuids)
        except Exception:
            log.exception("looking at domains failed; trying again")
            return False

    def _look(self, uuids: set[str] | None) -> bool:
        """At the domains of these UUIDs, None for all that are there or were. False: it is to be made again, as libvirt did not say, or not
        all, or as what was seen is not written down."""
        while True:
            known = self._change
            try:
                sights = {sight.uuid: sight for sight in self._asking.ask(self._sights, is_patient=True)}
            except FairGVError as error:
                if self._unseen_for != str(error):
                    log.warning("cannot look at domains, and tries again: %s", error)
                self._unseen_for = str(error)
                return False
            self._unseen_for = ""
            with self._lock:
                if self._change is known:
                    self._change = object()
                    return self._take(uuids, sights)

    def _take(self, uuids: set[str] | None, sights: Mapping[str, Sight]) -> bool:
        """What a look found, with the lock held; as `_look`."""
        is_all = uuids is None
        if uuids is None:
            uuids = {*sights, *self._served, *self._remembered}
        uuids |= {uuid for uuid, sight in sights.items() if sight.trouble or self._troubles.get(uuid)}
        for uuid in sorted(uuids):
            sight = sights.get(uuid)
            name = uuid if sight is None else sight.name
            try:
                self._reconcile(uuid, sight)
                self._tell(uuid, name, "" if sight is None else sight.trouble)
            except (FairGVError, OSError) as error:
                self._tell(uuid, name, f"domain {name} is not served: {error}")
            except Exception as error:  # a mistake of ours, which costs no other domain
                self._tell(uuid, name, f"domain {name} is not served: {type(error).__name__}: {error}", error)
        is_sure = not any(self._troubles.values())
        if is_all and is_sure:  # else a vGPU may be one's that has a trouble
            release_unclaimed(self._vgpus, "domain")
        for served in self._served.values():
            self._vgpus.note_run(served.name, served.run_id)
        self._write()
        return self._is_written and (is_sure or not has_unclaimed(self._vgpus, "domain"))

    def _reconcile(self, uuid: str, sight: Sight | None) -> None:
        """Makes the vGPU what the definition says, with the lock held."""
        served = self._served.get(uuid)
        if sight is None:
            self._remembered.discard(uuid)
            self._troubles.pop(uuid, None)
            if served is not None:
                self._release(served, is_running=False)
            return
        if served is not None and sight.attachment is None and not sight.holds_device:
            self._release(served, sight.is_running)
        elif served is not None:
            self._follow(served, sight)
        elif sight.attachment is not None and (self._adopts_all or uuid in self._remembered):
            self._adopt(sight.attachment)

    def _follow(self, served: _Served, sight: Sight) -> None:
        if sight.name != served.name:
            self._vgpus.rename(served.name, sight.name)
            served.name = sight.name
        attachment = sight.attachment
        if attachment is None:
            return  # taken out of the definition by hand; the running guest keeps it until it ends
        is_new_run = attachment.run_id != served.run_id
        if is_new_run and served.run_id != _OFF:
            self._vgpus.guest_gone(served.name)  # it ended while nobody told us
            served.run_id = _OFF
        served.is_paused = attachment.is_paused
        self._entitle(served, attachment.entitlement)
        self._limit_window(served, attachment)
        has_doorbell = self._doorbells.find(served.shm_name) is not None
        is_other = (served.shm_name, served.region_bytes, has_doorbell) != (
            attachment.shm_name,
            attachment.region_bytes,
            attachment.server is not None,
        )
        may_begin_anew = is_new_run or not sight.is_running
        is_elsewhere = served.entitlement != attachment.entitlement  # although it followed
        if is_other or (may_begin_anew and (is_elsewhere or not self._has_its_file(served))):
            what = "vGPU" if is_elsewhere else "region"
            log.info("domain %s: another %s than before", served.name, what, extra=about(served.name, served.name))
            self._vgpus.remove_if_there(served.name)
            self._remembered.add(served.uuid)  # there may be no room for it now
            del self._served[served.uuid]
            if is_other:
                remove_region_file(served.shm_name)
                self._doorbells.end(served.shm_name)
            self._adopt(attachment)
        elif is_new_run and sight.is_running:
            label_region(self._file_of_qemu(attachment), attachment.label)
            self._machine_started(served, attachment)
        served.run_id = attachment.run_id

    def _entitle(self, served: _Served, entitlement: Entitlement) -> bool:
        """As far as its vGPU can follow; whether that changed it. RefusedError: it cannot have that, and has what it had."""
        wanted = served.entitlement.followed_by(entitlement)
        is_changed = wanted != served.entitlement
        if is_changed:
            self._vgpus.change(served.name, dataclasses.asdict(wanted))
            served.entitlement = wanted
        return is_changed

    def _limit_window(self, served: _Served, attachment: Attachment) -> None:
        if attachment.pinned_bytes != served.pinned_bytes:
            self._vgpus.limit_window(served.name, self._pinned_limit(attachment))
            served.pinned_bytes = attachment.pinned_bytes

    def _pinned_limit(self, attachment: Attachment) -> int:
        return self._pinned_bytes if attachment.pinned_bytes is None else attachment.pinned_bytes

    def _has_its_file(self, served: _Served) -> bool:
        """Whether the file that QEMU opens is the one that we serve: gone with a clean-up, say, it was made anew by QEMU."""
        if self._doorbells.find(served.shm_name) is not None:
            return self._doorbells.answers(served.shm_name)  # no file: QEMU gets the memory from the server
        try:
            status = region_path(served.shm_name).lstat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._vgpus.region_identity(served.name)

    def _adopt(self, attachment: Attachment) -> None:
        """Serves a domain that has the device. The region of one that runs already is QEMU's, and its guest finds it laid out from now on."""
        if attachment.server is None:
            prepare_region_file(attachment.shm_name, attachment.region_bytes, attachment.owner)
        else:
            self._start_server(attachment)
        label_region(self._file_of_qemu(attachment), attachment.label)
        served = _Served.of(attachment)
        vgpu = self._add(served)
        served.entitlement = vgpu.entitlement
        if vgpu.run_id not in (_OFF, served.run_id):
            self._vgpus.guest_gone(served.name)  # it ended while no daemon was there
        self._remember(served)
        if attachment.is_running:
            self._machine_started(served, attachment)

    def _machine_started(self, served: _Served, attachment: Attachment) -> None:
        if attachment.memory_socket is not None:
            limit_bytes = self._pinned_limit(attachment)
            self._vgpus.connect_window(served.name, attachment.memory_socket, attachment.owner.uid, limit_bytes)
        if attachment.has_own_scheduling:
            self._vgpus.machine_started(served.name, "the domain's definition schedules its vCPUs itself (vcpusched)")
        else:
            threads = find_vcpus(attachment.uuid, attachment.owner.uid)
            self._vgpus.machine_started(served.name, threads or "the threads of its vCPUs are not known")

    def _start_server(self, attachment: Attachment) -> None:
        expected = self._doorbells.socket_path(attachment.shm_name)
        if attachment.server != expected:
            raise VmError(
                f"its device looks for its server at {attachment.server}, and this daemon's is at {expected}: correct the definition"
            )
        self._doorbells.start(attachment.shm_name, attachment.region_bytes, attachment.owner)
        holds_device = attachment.is_running and attachment.takes_effect == "now"
        if holds_device and not self._doorbells.has_guest(attachment.shm_name):
            log.warning(
                "domain %s: its ivshmem server was ended, and its region with it; it is served again from its next start on",
                attachment.domain,
                extra=about(attachment.domain, attachment.domain),
            )

    def _file_of_qemu(self, attachment: Attachment) -> Path:
        return attachment.server or region_path(attachment.shm_name)

    def _add(self, served: _Served) -> VGpu:
        asked = (served.name, served.entitlement, served.shm_name)
        is_paused, bells = lambda: served.is_paused, self._doorbells.find(served.shm_name)
        claimed = claim_domain(self._vgpus, *asked, served.run_id, is_paused, bells)
        return claimed or self._vgpus.add_domain(*asked, served.region_bytes, is_paused, bells)

    def _release(self, served: _Served, is_running: bool) -> None:
        log.info("domain %s: it has no device of ours any more", served.name, extra=about(served.name, served.name))
        self._forget(served.uuid)
        if not is_running:
            remove_region_file(served.shm_name)

    def _forget(self, uuid: str) -> None:
        self._remembered.discard(uuid)
        served = self._served.pop(uuid, None)
        if served is not None:
            self._vgpus.remove_if_there(served.name)
            self._doorbells.end(served.shm_name)
        self._write()

    def _remember(self, served: _Served) -> None:
        self._served[served.uuid] = served
        self._remembered.discard(served.uuid)
        self._write()

    def _tell(self, uuid: str, name: str, trouble: str, mistake: Exception | None = None) -> None:
        """Once for each trouble; of a mistake of ours with where it is."""
        if self._troubles.get(uuid, "") != trouble:
            self._troubles[uuid] = trouble
            if trouble:
                log.error("%s", trouble, exc_info=mistake, extra=about(domain=name))

    def _write(self) -> None:
        """What cannot be written now is written by a later look: the domains are served all the same."""
        uuids = sorted({*self._served, *self._remembered})
        self._is_written = self._written.try_write(uuids, "which domains are served")
