"""Virtual machines that libvirt does not know, as owners of vGPUs: all that the daemon has of one is the file of its shared memory.

Which files are served is said by command (`attach --shm`), by a file of vgpus.d, or by a pattern in the configuration. Whatever happened, the
answer is one and the same: look at the file, and make the vGPU what that is. One thread looks, now and then and when a machine ends.

* No file: no vGPU. It comes with the file, and goes with it once no process has it any more. What was attached by command is then forgotten:
  whoever attaches a machine that starts again and again writes a file of vgpus.d.
* Another file of that name: another vGPU, once the machine that has the earlier one has ended.
* The machine ended and the file stays, as plain QEMU leaves it: its programs are gone, and the region is laid out anew for the next start.
* A guest that is reset tells nobody: its programs are missed by their beats, or put away by the next one (docs/region.md).

A pattern gives a vGPU to whoever makes such a file, so only files of the daemon's own user are taken by one: everybody may make files in
/dev/shm.
"""

import contextlib
import dataclasses
import logging
import os
import select
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend_host.entitlement import Changes, Entitlement
from backend_host.errors import FairGVError, RefusedError
from backend_host.ipc import Message
from backend_host.kept_list import KeptList
from backend_host.region_memory import TAKE_OVER_S, Identity, await_sole_use, identity
from backend_host.service.events import Events, change_answer
from backend_host.service.journal import about
from backend_host.vgpu_claims import claim_machine, release_unclaimed
from backend_host.vgpus import NAME, VGpuRegistry
from backend_host.vm.errors import VmError
from backend_host.vm.memory_file import identity_of, open_memory_file
from backend_host.vm.process import MachineProcess, find_machines

LOOK_S = 2.0
_NO_NAMES = "the threads of its vCPUs are not known: QEMU names them with -name NAME,debug-threads=on"

log = logging.getLogger("fairgv.machines")


@dataclass(frozen=True)
class Wanted:
    """A machine that is to have a vGPU while its file is there."""

    name: str
    path: Path
    entitlement: Entitlement


@dataclass(frozen=True)
class MachineSight:
    """What one look at a machine found. `trouble` says why it has no vGPU. `state` is in virsh's words, or `no file`."""

    name: str
    path: Path
    state: str
    entitlement: Entitlement
    trouble: str = ""


@dataclass(eq=False)
class _Served:
    """A machine with a vGPU. `process` is None while nobody is known to have its file; its threads are known later, if ever."""

    wanted: Wanted
    identity: Identity
    process: MachineProcess | None = None
    has_threads: bool = False

    def is_paused(self) -> bool:
        """From a caretaker's thread, when a beat stands still."""
        process = self.process
        return process is not None and process.stands_still()


class Machines:
    """Those of one daemon. Thread-safe. `pattern`: a path whose last part may have wildcards, or nothing; what it finds has `unsaid`."""

    def __init__(
        self,
        vgpus: VGpuRegistry,
        table_hash: int,
        state_dir: Path,
        events: Events,
        pattern: str = "",
        unsaid: Entitlement | None = None,
    ) -> None:
        self._vgpus = vgpus
        self._table_hash = table_hash
        lost = "machines that were attached by command are served once they are attached again"
        self._written = KeptList(state_dir / "machines.json", _wanted, lost)
        self._events = events
        self._pattern = Path(pattern) if pattern else None
        self._unsaid = unsaid or Entitlement()
        self._is_written = True
        """The list of those that were attached, as it is now."""
        self._attached: dict[str, Wanted] = {}
        self._kept: dict[str, Wanted] = {}
        self._found: dict[str, Wanted] = {}
        self._served: dict[str, _Served] = {}
        self._troubles: dict[str, str] = {}
        self._lock = threading.Lock()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="machines", daemon=True)

    def start(self) -> None:
        """Takes up what an earlier daemon served, and begins to look."""
        self._attached = {wanted.name: wanted for wanted in self._written.read()}
        self._thread.start()

    def stop(self) -> None:
        """Nothing is followed any more; files and machines stay."""
        if self._thread.ident is not None:
            self._is_stopping = True
            os.eventfd_write(self._wake, 1)
            self._thread.join()
        for served in self._served.values():
            if served.process is not None:
                served.process.close()
        os.close(self._wake)

    def attach(self, name: str, path: Path, entitlement: Entitlement) -> Message:
        """Serves the machine of this file; the answer's `text` is for the operator. Raises RefusedError or VmError."""
        if NAME.fullmatch(name) is None:
            raise RefusedError(f"{name!r} is no name for a vGPU; use letters, digits, '.', '_', '-', at most 64")
        with self._lock:
            if self._said(name) is not None:
                raise RefusedError(f"{name} has a vGPU already; take it away first with: fairgv-host detach {name}")
            wanted = Wanted(name, path, entitlement)
            if (other := self._of_path(path)) is not None:
                self._let_go_of_found(other, path)
            served = self._adopt(wanted, TAKE_OVER_S)
            self._attached[name] = wanted
            self._write()
            self._look_for_processes()
            has_machine = served.process is not None
        return {"text": f"{name} has a vGPU {'now' if has_machine else 'from its next start on'}"}

    def detach(self, name: str) -> Message:
        """The counterpart. The file stays whoever's it is."""
        with self._lock:
            if name in self._kept:
                raise RefusedError(f"{name} is kept by a file of vgpus.d: take it away there, then fairgv-host reload")
            if name in self._found:
                raise RefusedError(
                    f"{name} is served as {self._found[name].path} fits the pattern shm_files of the configuration: it goes with that file"
                )
            del self._attached[name]
            self._release(name)
            self._write()
        return {"text": f"{name} has no vGPU any more"}

    def change(self, name: str, changes: Changes) -> Message:
        """Another entitlement, for as long as whoever said the one before says nothing."""
        with self._lock:
            source = next(each for each in self._sources() if name in each)
            wanted = dataclasses.replace(source[name], entitlement=source[name].entitlement.changed(changes))
            is_changed = wanted != source[name]
            if name in self._served:
                is_changed |= self._vgpus.change(name, changes)
                self._served[name].wanted = wanted
            source[name] = wanted
            self._write()
            until = "its file of vgpus.d is read again" if source is self._kept else "its memory file goes"
        return change_answer(name, wanted.entitlement, f"{name} is changed until {until}", is_changed=is_changed)

    def keep(self, wanted: Mapping[str, Wanted]) -> None:
        """From now on these are wanted by files of vgpus.d, and no others are."""
        with self._lock:
            self._kept = dict(wanted)
        os.eventfd_write(self._wake, 1)

    def follow(self, unsaid: Entitlement) -> None:
        """Another entitlement for what a pattern finds from now on."""
        with self._lock:
            self._unsaid = unsaid

    def knows(self, name: str) -> bool:
        """Whether that is a machine's name, served or not."""
        with self._lock:
            return self._said(name) is not None

    @property
    def kept(self) -> dict[str, Entitlement]:
        """By name: those of files of vgpus.d, as they are now."""
        with self._lock:
            return {name: wanted.entitlement for name, wanted in self._kept.items()}

    def sights(self) -> Sequence[MachineSight]:
        """All machines, as they were at the last look."""
        with self._lock:
            return [self._sight(wanted) for wanted in self._all().values()]

    def look(self) -> None:
        """Makes vGPUs what the files say; what the thread does."""
        with self._lock:
            self._notice_ends()
            self._find()
            wanted = self._all()
            for name in sorted(self._served.keys() - wanted.keys()):
                log.info(
                    "vGPU %s goes, as nobody wants it any more, or its memory file is gone", name, extra=about(name)
                )
                self._release(name)
            for each in wanted.values():
                try:
                    self._reconcile(each)
                    self._tell(each.name, "")
                except (FairGVError, OSError) as error:
                    self._tell(each.name, str(error))
            for name in self._troubles.keys() - self._all().keys():
                del self._troubles[name]
            self._look_for_processes()
            if not self._is_written:
                self._write()

    def _run(self) -> None:
        is_first = True
        while not self._is_stopping:
            try:
                self.look()
                if is_first and not any(self._troubles.values()):  # else a vGPU may be one's that has a trouble
                    release_unclaimed(self._vgpus, "machine")
                    is_first = False
            except Exception:
                log.exception("looking at memory files failed; trying again")
            poll = select.poll()
            with self._lock:
                processes = [served.process for served in self._served.values() if served.process is not None]
            for fd in (self._wake, *(process.pidfd for process in processes)):
                poll.register(fd, select.POLLIN)
            poll.poll(LOOK_S * 1000)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)

    def _sources(self) -> tuple[dict[str, Wanted], dict[str, Wanted], dict[str, Wanted]]:
        """Whoever comes first has the say."""
        return self._attached, self._kept, self._found

    def _all(self) -> dict[str, Wanted]:
        return {**self._found, **self._kept, **self._attached}

    def _said(self, name: str) -> Wanted | None:
        return next((source[name] for source in self._sources() if name in source), None)

    def _of_path(self, path: Path) -> Wanted | None:
        return next((wanted for wanted in self._all().values() if wanted.path == path), None)

    def _let_go_of_found(self, other: Wanted, path: Path) -> None:
        """A file that was found is for whoever names it. Raises RefusedError for one that was named."""
        if other.name not in self._found or other.name in {**self._attached, **self._kept}:
            raise RefusedError(f"{path} is the memory of the vGPU {other.name} already")
        del self._found[other.name]
        self._release(other.name)

    def _find(self) -> None:
        """What fits the pattern, is the daemon's own, and was not named otherwise."""
        if self._pattern is None:
            return
        named = {wanted.path for wanted in {**self._kept, **self._attached}.values()}
        for path in sorted(self._pattern.parent.glob(self._pattern.name)):
            with contextlib.suppress(OSError):
                is_ours = path.lstat().st_uid == os.geteuid() and NAME.fullmatch(path.name) is not None
                if is_ours and path not in named and path.name not in self._found:
                    self._found[path.name] = Wanted(path.name, path, self._unsaid)
        for name, wanted in list(self._found.items()):
            served = self._served.get(name)
            has_process = served is not None and served.process is not None
            if wanted.path in named or (identity_of(wanted.path) is None and not has_process):
                del self._found[name]

    def _notice_ends(self) -> None:
        for name, served in self._served.items():
            if served.process is not None and served.process.has_ended():
                log.info(
                    "vGPU %s: its virtual machine ended; what its programs held is taken back", name, extra=about(name)
                )
                process, served.process, served.has_threads = served.process, None, False
                process.close()
                self._vgpus.guest_gone(name)
                self._vgpus.machine_ended(name)

    def _look_for_processes(self) -> None:
        """Of machines that nobody is known to have."""
        alone = {served.wanted.path: served for served in self._served.values() if served.process is None}
        for path, process in find_machines({path: served.identity for path, served in alone.items()}).items():
            served = alone[path]
            served.process = process
            log.info(
                "vGPU %s: its virtual machine is process %d",
                served.wanted.name,
                process.pid,
                extra=about(served.wanted.name),
            )
            self._vgpus.machine_started(served.wanted.name, _NO_NAMES)
        for name, served in self._served.items():
            if served.process is not None and not served.has_threads and (threads := served.process.threads()):
                served.has_threads = True  # QEMU maps memory before it has processors
                self._vgpus.machine_started(name, threads)

    def _reconcile(self, wanted: Wanted) -> None:
        served = self._served.get(wanted.name)
        now = identity_of(wanted.path)
        if served is not None and self._vgpus.region_identity(wanted.name) != served.identity:
            self._release(wanted.name)
            raise VmError(f"{wanted.path} was cut short by who owns it, and its vGPU taken away")
        if served is not None and (
            served.wanted.path != wanted.path or (now != served.identity and served.process is None)
        ):
            self._release(wanted.name)
            served = None
            if now is None:
                self._gone(wanted)
        if served is not None:
            self._apply(served, wanted)
        elif now is not None:
            self._adopt(wanted)
        elif wanted.name in self._attached:
            self._gone(wanted)

    def _gone(self, wanted: Wanted) -> None:
        text = f"{wanted.name} is gone with its memory file {wanted.path}"
        log.info("vGPU %s", text, extra=about(wanted.name))
        if self._attached.pop(wanted.name, None) is not None:
            self._events.tell("gone", os.geteuid(), text, vgpu=wanted.name)
            self._write()

    def _apply(self, served: _Served, wanted: Wanted) -> None:
        entitlement = served.wanted.entitlement.followed_by(wanted.entitlement)
        if entitlement != served.wanted.entitlement:
            self._vgpus.change(wanted.name, dataclasses.asdict(entitlement))
        served.wanted = dataclasses.replace(wanted, entitlement=entitlement)

    def _adopt(self, wanted: Wanted, limit_s: float = LOOK_S) -> _Served:
        """With the lock held. Waits so long for workers of an earlier daemon. Leaves nothing behind when it fails."""
        memory = open_memory_file(wanted.path)
        try:
            served = _Served(wanted, identity(memory))
            claimed = claim_machine(self._vgpus, wanted.name, wanted.entitlement, served.identity, served.is_paused)
            if claimed is None:
                await_sole_use(str(wanted.path), memory, self._table_hash, limit_s)
        except BaseException:
            os.close(memory)
            raise
        if claimed is not None:
            os.close(memory)
            served.wanted = dataclasses.replace(wanted, entitlement=claimed.entitlement)
        else:
            self._vgpus.add_machine(wanted.name, wanted.entitlement, memory, served.is_paused)
        self._served[wanted.name] = served
        return served

    def _release(self, name: str) -> None:
        served = self._served.pop(name, None)
        if served is not None:
            self._vgpus.remove_if_there(name)
            if served.process is not None:
                served.process.close()

    def _tell(self, name: str, trouble: str) -> None:
        """Once for each trouble."""
        if self._troubles.get(name, "") != trouble:
            self._troubles[name] = trouble
            if trouble:
                log.error("vGPU %s is not served: %s", name, trouble, extra=about(name))

    def _sight(self, wanted: Wanted) -> MachineSight:
        served = self._served.get(wanted.name)
        if served is not None:
            state = "running" if served.process is not None else "shut off"
            return MachineSight(wanted.name, wanted.path, state, served.wanted.entitlement)
        is_there = identity_of(wanted.path) is not None
        trouble = self._troubles.get(wanted.name) or f"there is no file {wanted.path} yet: its QEMU makes it"
        return MachineSight(
            wanted.name, wanted.path, "shut off" if is_there else "no file", wanted.entitlement, trouble
        )

    def _write(self) -> None:
        """What cannot be written now is written by a later look: machines come, change and go all the same."""
        entries = [
            {"name": each.name, "path": str(each.path), "entitlement": dataclasses.asdict(each.entitlement)}
            for each in self._attached.values()
        ]
        self._is_written = self._written.try_write(entries, "which machines were attached")


def _wanted(entry: Any) -> Wanted:
    return Wanted(str(entry["name"]), Path(entry["path"]), Entitlement(**entry["entitlement"]))
