"""libvirt domains as owners of vGPUs: attach, detach, and what happens to a vGPU when its virtual machine starts, stops or is reset.

libvirt is loaded when a domain is named for the first time, or at a start that finds domains attached by an earlier daemon.
"""

import json
import logging
import threading
from pathlib import Path

from backend_host.errors import FairGVError
from backend_host.ipc import Message
from backend_host.vgpus import VGpuRegistry
from backend_host.vm.domain import Attachment, LibvirtDomains, is_paused, remove_region_file
from backend_host.vm.domain_events import DomainEvent, DomainEvents
from backend_host.vm.region_file import prepare_region_file

log = logging.getLogger("fairgv.domains")


class Domains:
    """The domains attached to one daemon. Thread-safe."""

    def __init__(self, vgpus: VGpuRegistry, uri: str, state_dir: Path) -> None:
        self._vgpus = vgpus
        self._uri = uri
        self._path = state_dir / "domains.json"
        self._events: DomainEvents | None = None
        self._attached: dict[str, str] = {}
        """Domain UUID to its vGPU's name."""
        self._unserved: set[str] = set()
        """UUIDs attached to an earlier daemon that could not be taken up: kept for the next one."""
        self._lock = threading.Lock()

    def restore(self) -> None:
        """Takes up the domains that an earlier daemon had attached. A libvirt that does not answer is logged, not fatal."""
        if not self._path.exists():
            return
        try:
            self._unserved = {str(uuid) for uuid in json.loads(self._path.read_text())}
            self._watch()
            known = LibvirtDomains(self._uri).attached_domains()
        except (FairGVError, OSError, ValueError, TypeError) as error:
            log.error("the domains attached before are not served: %s", error)
            return
        wanted = [attachment for attachment in known if attachment.uuid in self._unserved]
        self._unserved.clear()
        for attachment in wanted:
            try:
                prepare_region_file(attachment.shm_name, attachment.region_bytes, attachment.owner)
                self._add(attachment)
            except (FairGVError, OSError) as error:
                self._unserved.add(attachment.uuid)
                log.error("domain %s, attached before, is not served: %s", attachment.domain, error)
        self._write()

    def attach(self, name: str, weight: int, quota_bytes: int, region_bytes: int) -> Message:
        """Gives the domain a vGPU; the answer's `text` is for the operator. Raises VmError or RefusedError."""

        added: list[str] = []

        def before_plug(path: Path) -> None:
            self._vgpus.add_domain(name, weight, quota_bytes, path.name, region_bytes, lambda: self._is_paused(name))
            added.append(name)

        self._watch()
        with self._lock:
            try:
                attachment = LibvirtDomains(self._uri, before_plug).attach(
                    name, weight, quota_bytes or None, region_bytes
                )
            except BaseException:
                for each in added:
                    self._vgpus.remove(each)
                raise
            self._remember(attachment)
        now = (
            f"{name} has a vGPU now"
            if attachment.takes_effect == "now"
            else f"{name} has a vGPU from its next start on"
        )
        return {
            "text": attachment.explanation or now,
            "takes_effect": attachment.takes_effect,
            "shm_name": attachment.shm_name,
        }

    def change(self, name: str, weight: int | None, quota_bytes: int | None) -> Message:
        """Another weight or quota (0: none), now and for later starts; None leaves as it is. Raises VmError or RefusedError."""
        with self._lock:
            attachment = LibvirtDomains(self._uri).change(name, weight, quota_bytes)
            self._vgpus.change(name, weight, quota_bytes)
        quota = f"{attachment.memory_bytes >> 20} MiB" if attachment.memory_bytes else "no limit"
        return {"text": f"{name}: weight {attachment.weight}, device memory: {quota}"}

    def detach(self, name: str) -> Message:
        """Takes it away again."""
        with self._lock:
            attachment = LibvirtDomains(self._uri).detach(name)
            self._vgpus.remove_if_there(self._attached.pop(attachment.uuid, name))
            self._unserved.discard(attachment.uuid)
            self._write()
            if attachment.takes_effect == "next start" and not attachment.is_running:
                remove_region_file(attachment.shm_name)
        return {
            "text": attachment.explanation or f"{name} has no vGPU any more",
            "takes_effect": attachment.takes_effect,
        }

    def stop(self) -> None:
        """No event is taken any more; the domains stay attached."""
        if self._events is not None:
            self._events.close()

    def _add(self, attachment: Attachment) -> None:
        self._vgpus.add_domain(
            attachment.domain,
            attachment.weight,
            attachment.memory_bytes or 0,
            attachment.shm_name,
            attachment.region_bytes,
            lambda: self._is_paused(attachment.domain),
        )
        self._remember(attachment)

    def _is_paused(self, name: str) -> bool:
        """False when libvirt does not know: a guest that cannot be asked about keeps nothing."""
        try:
            return is_paused(self._uri, name)
        except FairGVError as error:
            log.warning("cannot ask for the state of %s: %s", name, error)
            return False

    def _remember(self, attachment: Attachment) -> None:
        self._attached[attachment.uuid] = attachment.domain
        self._unserved.discard(attachment.uuid)
        self._write()

    def _write(self) -> None:
        temporary = self._path.with_suffix(".new")
        temporary.write_text(json.dumps(sorted({*self._attached, *self._unserved})))
        temporary.replace(self._path)

    def _watch(self) -> None:
        if self._events is None:
            self._events = DomainEvents(self._uri, self._happened)

    def _happened(self, uuid: str, name: str, event: DomainEvent) -> None:
        """On libvirt's thread: hands over and returns."""
        vgpu_name = self._attached.get(uuid)
        if vgpu_name is not None and event is not DomainEvent.STARTED:
            log.info("domain %s: %s; what its programs held is taken back", name, event.value)
            self._vgpus.guest_gone(vgpu_name)
