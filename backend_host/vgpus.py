"""vGPUs and the registry of them: who is entitled to what, and which region belongs to whom.

Three kinds. A `session` vGPU belongs to the commands that opened it (`fairgv-run`) and goes with the last of them. A `domain` vGPU belongs to a
libvirt domain and stays until it is detached. A `machine` vGPU belongs to a virtual machine that libvirt does not know, and goes with the file
of its memory.
"""

import contextlib
import logging
import os
import re
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from backend_host.debts import debtors_called
from backend_host.device.gpu import Gpu, check_quota, check_request
from backend_host.devices import with_quota
from backend_host.entitlement import Changes, Entitlement
from backend_host.errors import RefusedError
from backend_host.limits import ORDINARY, Limits
from backend_host.region_memory import Identity, identity, open_shared_memory, sealed_memory, tell_of_the_end
from backend_host.relocation import Relocating
from backend_host.restart.records import VGpuRecord
from backend_host.restart.store import Store
from backend_host.service.journal import about
from backend_host.vgpu import Place, VGpu
from backend_host.vgpu_making import Making, Wanted
from backend_host.vgpu_tenants import pids_by_tenant
from backend_host.worker_process import WorkerProcess
from ivshmem.bells import Bells
from ivshmem.region import Region, RegionStatus, Wake

_NR_AT_ONCE = 64
"""Are removed."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

log = logging.getLogger("fairgv.vgpus")


class VGpuRegistry(Relocating):
    """All vGPUs of one daemon. Thread-safe. The lock is never held while a worker or a caretaker is waited for."""

    def __init__(
        self, gpus: Sequence[Gpu], table_hash: int, limits: Limits = ORDINARY, store: Store | None = None
    ) -> None:
        """`store`: where vGPUs are kept for the next daemon."""
        super().__init__(gpus, limits, store or Store())
        self._table_hash = table_hash
        self.check_open: Callable[[], None] = lambda: None
        """Raises RefusedError while no vGPU may be made."""
        self._making = Making(table_hash, self.debts, self._store, self._collect)

    def open_session(
        self,
        name: str | None,
        entitlement: Entitlement,
        region_bytes: int,
        uid: int,
        check_join: Callable[[VGpu], None] = lambda _: None,
        made: Callable[[Sequence[Entitlement]], Entitlement] | None = None,
    ) -> VGpu:
        """A vGPU for a command of user `uid`; joining one of the same name and user shares it, which `check_join` may refuse. `made`: what
        a new one gets beside the user's others, instead of `entitlement`. RefusedError says why not."""
        if name is not None and NAME.fullmatch(name) is None:
            raise RefusedError(f"{name!r} is no name for a vGPU; use letters, digits, '.', '_', '-', at most 64")
        with self._lock:
            vgpu = self._vgpus.get(name) if name is not None else None
            if vgpu is None:
                self.check_open()
                name = self._new_name() if name is None else name
                if made is not None:
                    entitlement = made([each.entitlement for each in self._of_user(uid)])
                memory = sealed_memory(name, region_bytes)
                vgpu = self._create(Wanted(name, "session", entitlement, uid, Wake.FUTEX), memory)
                vgpu.gpu.coscheduler.add_user(vgpu.index, name, uid)
            elif vgpu.kind != "session" or vgpu.uid != uid:
                owner = f"user {vgpu.uid}" if vgpu.kind == "session" else f"a {vgpu.kind}"
                raise RefusedError(f"the vGPU {name} belongs to somebody else ({owner}): name another one by --vgpu")
            else:
                check_join(vgpu)
            vgpu.nr_users += 1
            return vgpu

    def _of_user(self, uid: int) -> list[VGpu]:
        """That a user's commands opened, with the lock held."""
        return [
            vgpu for vgpu in self._vgpus.values() if vgpu.kind == "session" and vgpu.uid == uid and not vgpu.is_kept
        ]

    def set_limits(self, limits: Limits) -> None:
        """Other limits, for all vGPUs. What is there already stays."""
        with self._lock:
            self._limits = limits
            for vgpu in self._vgpus.values():
                vgpu.gpu.page.set_limits(vgpu.index, **limits.of_workers())
                vgpu.caretaker.nr_clients = limits.clients

    def close_session(self, vgpu: VGpu) -> None:
        """The counterpart: the last one out removes it."""
        with self._lock:
            vgpu.nr_users -= 1
            if vgpu.nr_users > 0 or self._vgpus.get(vgpu.name) is not vgpu:
                return
            del self._vgpus[vgpu.name]
        self._retire(vgpu)

    def add_domain(
        self,
        name: str,
        entitlement: Entitlement,
        shm_name: str,
        region_bytes: int,
        is_paused: Callable[[], bool],
        bells: Bells | None = None,
    ) -> VGpu:
        """The vGPU of a libvirt domain; its region file is `shm_name`, or the memory of `bells`. `is_paused` tells whether the domain stands
        still."""
        wake = Wake.POLL if bells is None else Wake.BELL
        wanted = Wanted(name, "domain", entitlement, os.geteuid(), wake, is_paused, bells, shm_name)
        self._check_is_new(name)
        memory = open_shared_memory(shm_name, self._table_hash, bells)  # without the lock: it may wait
        with self._lock:
            try:
                self._check_is_new(name)
            except RefusedError:
                os.close(memory)
                raise
            return self._create(wanted, memory)

    def add_machine(self, name: str, entitlement: Entitlement, memory: int, is_paused: Callable[[], bool]) -> VGpu:
        """The vGPU of a virtual machine whose region is the file `memory`, which is taken over. `is_paused`: as in `add_domain`."""
        with self._lock:
            try:
                self._check_is_new(name)
                self._check_is_alone(identity(memory))
            except RefusedError:
                os.close(memory)
                raise
            return self._create(Wanted(name, "machine", entitlement, os.geteuid(), Wake.POLL, is_paused), memory)

    def _check_is_alone(self, file: Identity) -> None:
        """With the lock held: two vGPUs in one file would read each other's memory."""
        for vgpu in self._vgpus.values():
            if vgpu.file == file:
                raise RefusedError(f"that file is the region of the vGPU {vgpu.name} already")

    def _check_is_new(self, name: str) -> None:
        self.check_open()
        if name in self._vgpus:
            raise RefusedError(f"{name} has a vGPU already; take it away first with: fairgv-host detach {name}")

    def remove(self, name: str) -> None:
        """Ends its clients and gives everything back."""
        if not self.remove_if_there(name):
            raise RefusedError(_unknown(name))

    def remove_if_there(self, name: str) -> bool:
        """As `remove`, for a vGPU that may not have been made; whether it had been."""
        with self._lock:
            vgpu = self._vgpus.pop(name, None)
        if vgpu is not None:
            self._retire(vgpu)
        return vgpu is not None

    def _retire(self, vgpu: VGpu) -> None:
        """Of one that is in the registry no more."""
        vgpu.caretaker.stop()
        self.settle(vgpu)
        if vgpu.peer is not None:
            vgpu.peer.stop()
            vgpu.peer.join()
        vgpu.window.drop()
        gpu = vgpu.gpu
        gpu.coscheduler.remove(vgpu.index)
        gpu.keeper.leave(vgpu.index)
        gpu.spaces.leave(vgpu.index)
        with self._lock:
            account = gpu.page.vgpu(vgpu.index)
            gpu.retired_ns += account.used_ns if account is not None else 0
            gpu.retired_deaths += vgpu.caretaker.nr_deaths
            self._store.put(gpu.item, gpu.record().written(), drop=[vgpu.item])
            gpu.page.vgpu_free(vgpu.index)
            gpu.page.names.pop(vgpu.index, None)
            vgpu.region.close()

    def change(self, name: str, changes: Changes) -> bool:
        """Another entitlement for one that runs; whether it is another. RefusedError when it is not there.

        A quota below what is held takes nothing away: nothing more is allocated until enough was freed. Programs that run already
        learn the new total from cuMemGetInfo, and go on seeing the old one as the device's size.
        """
        with self._lock:
            vgpu = self._vgpus.get(name)
            if vgpu is None:
                raise RefusedError(_unknown(name))
            before, changed = vgpu.entitlement, vgpu.entitlement.changed(changes)
            if changed == before:
                return False
            if fixed := before.fixed(changed):
                raise RefusedError(f"{name} keeps its {' and '.join(fixed)} while it is there")
            for gpu in (vgpu.gpu, *([] if vgpu.coming is None else [vgpu.coming.gpu])):
                others = {key: other for key, other in self._entitlements_on(gpu).items() if key != name}
                check_quota(gpu, changed)
                if changed.request != before.request:
                    check_request(gpu, changed, others)
                gpu.spaces.check(changed, others)
            if changed.vgpu_class != before.vgpu_class and vgpu.caretaker.workers():
                raise RefusedError(
                    f"--class: programs of {name} began as those of a {before.vgpu_class} vGPU: end them first, then set it"
                )
            vgpu.entitlement = changed
            vgpu.gpu.keeper.change(vgpu.index, vgpu.entitlement)
            vgpu.gpu.spaces.change(vgpu.index, vgpu.entitlement)
            if changed.limit != before.limit:
                vgpu.gpu.page.set_limit(vgpu.index, changed.limit_permille)
            if (quota_bytes := vgpu.entitlement.quota_bytes) != before.quota_bytes:
                vgpu.gpu.page.set_quota(vgpu.index, quota_bytes)
                vgpu.region.set_facts(with_quota(vgpu.made_on.facts, quota_bytes))
            self._keep(vgpu)
            log.info("vGPU %s: %s", name, vgpu.entitlement, extra=about(name))
            self._warn_of_requests(vgpu.gpu)
            return True

    def rename(self, name: str, new_name: str) -> None:
        """Its domain has another name now. RefusedError when that is taken."""
        with self._lock:
            self._check_is_new(new_name)
            vgpu = self._vgpus.get(name)
            if vgpu is None:
                raise RefusedError(_unknown(name))
            self._vgpus = {new_name if key == name else key: value for key, value in self._vgpus.items()}
            vgpu.name = new_name
            vgpu.gpu.page.names[vgpu.index] = new_name
            vgpu.caretaker.rename(new_name)
            vgpu.window.log.name = new_name
            self._keep(vgpu)
            log.info("vGPU %s is called %s now", name, new_name, extra=about(new_name))

    def expel(self, gpu: Gpu, index: int, why: str) -> None:
        """Ends all workers of this vGPU of the Gpu: one of them was taken over."""
        with self._lock:
            for vgpu in self._on(gpu):
                if vgpu.index == index:
                    self._expel(vgpu, why)

    def expel_tenant(self, tenant: str, why: str) -> None:
        """The same of all vGPUs whose workers are this tenant's."""
        with self._lock:
            for vgpu in self._vgpus.values():
                if tenant in pids_by_tenant([vgpu]):
                    self._expel(vgpu, why)

    def _expel(self, vgpu: VGpu, why: str) -> None:
        vgpu.nr_expelled += 1
        vgpu.expelled_for = why
        self._keep(vgpu)
        log.error("vGPU %s: its workers are ended: %s", vgpu.name, why, extra=about(vgpu.name))
        for worker in vgpu.caretaker.workers():
            worker.stop()

    def time_out(self, gpu: Gpu, slot: int, took_ns: int) -> None:
        """Ends the worker in this slot of the Gpu, whose work does not end and kept others waiting for so long; its program gets
        CUDA_ERROR_LAUNCH_TIMEOUT."""
        with self._lock:
            for vgpu in self._on(gpu):
                worker = next((each for each in vgpu.caretaker.workers() if each.slot == slot), None)
                if worker is not None:
                    vgpu.nr_timed_out += 1
                    gpu.keeper.indebt(vgpu.index, self.debts.add(vgpu.debtor, took_ns, self._all_used_ns()))
                    if self.debts.is_banned(vgpu.debtor):
                        banned = "vGPU %s: %s is banned: see fairgv-host unban --help"
                        log.error(banned, vgpu.name, vgpu.debtor, extra=about(vgpu.name))
                    vgpu.caretaker.time_out(worker)
                    self._keep(vgpu)
                    self._keep_debts()

    def unban(self, name: str) -> str:
        """Forgives the user or the domain of this name, or who is behind the vGPU of this name; says whom. RefusedError: there is no debt."""
        with self._lock:
            vgpu = self._vgpus.get(name)
        candidates = [*([vgpu.debtor] if vgpu is not None else []), *debtors_called(name)]
        for debtor in candidates:
            if self.debts.lift(debtor):
                self._keep_debts()
                log.info("%s is forgiven", debtor)
                return debtor
        raise RefusedError(f"no vGPU, domain or user called {name} has a debt or a ban; see: fairgv-host status")

    def remove_all(self) -> None:
        """For a daemon that stops. Who is kept by its driver holds up no other."""
        with self._lock:
            names = list(self._vgpus)
        with ThreadPoolExecutor(_NR_AT_ONCE) as threads:
            for _ in threads.map(self.remove_if_there, names):
                pass

    def _new_name(self) -> str:
        while True:
            name = f"run-{secrets.token_hex(3)}"
            if name not in self._vgpus:
                return name

    def _create(self, wanted: Wanted, memory: int) -> VGpu:
        """With the lock held; takes over the descriptor `memory`. Leaves nothing behind when it fails."""
        try:
            found = self.place(wanted.entitlement)
        except RefusedError:
            os.close(memory)
            raise
        gpu, index = found.gpu, found.index
        with contextlib.ExitStack() as undo:
            undo.callback(gpu.page.vgpu_free, index)
            gpu.page.names[index] = wanted.name
            undo.callback(gpu.page.names.pop, index)
            gpu.page.set_limits(index, **self._limits.of_workers())
            gpu.page.set_limit(index, wanted.entitlement.limit_permille)
            try:
                vgpu = self._making.make(found, wanted, memory, self._limits)
                undo.callback(vgpu.region.close)
                gpu.keeper.join(index, wanted.entitlement)
                if debt_ns := self.debts.left_ns(vgpu.debtor, self._all_used_ns()):
                    gpu.keeper.indebt(index, debt_ns)
                undo.callback(gpu.keeper.leave, index)
                gpu.spaces.join(index, wanted.entitlement)
                undo.callback(gpu.spaces.leave, index)
                vgpu.caretaker.start()
                if (account := gpu.page.vgpu(index)) is not None:
                    vgpu.tell_guest(account, None)  # before its first program can ask
            except (OSError, ValueError, RuntimeError) as error:
                raise RefusedError(f"no region for {wanted.name}: {error}") from error
            self._vgpus[wanted.name] = vgpu
            undo.pop_all()
        self._store.put(vgpu.item, vgpu.record().written(), [vgpu.region.fileno()])
        log.info(
            "vGPU %s (%s) on GPU %d: %s, region %d MiB",
            *(wanted.name, wanted.kind, gpu.number, wanted.entitlement, vgpu.region.region_bytes >> 20),
            extra=about(wanted.name),
        )
        self._warn_of_requests(gpu)
        return vgpu

    def _warn_of_requests(self, gpu: Gpu) -> None:
        for trouble in self._request_troubles_on(gpu):
            log.warning("%s", trouble)

    def adopt(self, record: VGpuRecord, gpu: Gpu, memory: int, bells: Bells | None) -> VGpu:
        """The vGPU that an earlier daemon had at its place on this Gpu, not opened yet; takes over the descriptor `memory`. RefusedError says
        why it cannot be.

        A virtual machine stands still for all that is known, until its vGPU was asked for (vgpu_claims.py).
        """
        is_machines = record.kind != "session"
        wake = Wake.FUTEX if not is_machines else Wake.POLL if bells is None else Wake.BELL
        entitlement = record.entitled()
        made_on = next((each.device for each in self._gpus if each.device.uuid == record.made_on), gpu.device)
        wanted = Wanted(
            *(record.name, record.kind, entitlement, record.uid, wake, lambda: is_machines, bells, record.shm_name),
            made_on=made_on,
        )
        with self._lock:
            try:
                vgpu = self._making.make(Place(gpu, record.index), wanted, memory, self._limits)
            except (OSError, ValueError, RuntimeError) as error:
                raise RefusedError(f"no region: {error}") from error
            status = vgpu.region.check(table_hash=self._table_hash)
            if why := self._why_not(record, vgpu, status):
                tell_of_the_end(record.name, memory, self._table_hash)
                vgpu.region.close()
                raise RefusedError(why)
            vgpu.recall(record)
            vgpu.is_unclaimed = is_machines or record.is_kept
            vgpu.nr_users = int(record.is_kept)
            self._vgpus[record.name] = vgpu
            if record.is_changing:
                self._keep(vgpu)  # that is over: its programs are ended
            gpu.page.names[record.index] = record.name
            gpu.spaces.join(record.index, entitlement)
            gpu.page.set_limits(record.index, **self._limits.of_workers())
            if not is_machines:
                gpu.coscheduler.add_user(record.index, record.name, record.uid)
        return vgpu

    def _why_not(self, record: VGpuRecord, vgpu: VGpu, status: RegionStatus) -> str:
        """Why it cannot be what an earlier daemon had; "": it can."""
        if record.name in self._vgpus:
            return "another vGPU has its name"
        if vgpu.region.region_bytes != record.region_bytes:
            return "its region has another size than was written down"
        return "" if status is RegionStatus.OK else f"its region is not in order: {status.name.lower()}"

    def join_session(self, name: str, uid: int) -> VGpu | None:
        """The vGPU of this name for a command of user `uid` that opened it at an earlier daemon; None: it is gone."""
        with self._lock:
            vgpu = self._vgpus.get(name)
            if vgpu is None or vgpu.kind != "session" or vgpu.uid != uid:
                return None
            vgpu.nr_users += 1
            return vgpu

    def close_unused(self) -> None:
        """Removes what commands opened at an earlier daemon that have ended since."""
        with self._lock:
            unused = [vgpu for vgpu in self._vgpus.values() if vgpu.kind == "session" and vgpu.nr_users == 0]
        for vgpu in unused:
            self.remove_if_there(vgpu.name)

    def set_kept(self, vgpu: VGpu, *, is_kept: bool) -> None:
        """Whether the daemon is one of its users."""
        with self._lock:
            vgpu.is_kept = is_kept
            self._keep(vgpu)

    def _collect(self, region: Region, worker: WorkerProcess) -> None:
        """Keeps what an ended worker counted. From a reaper's thread, before its slot is freed."""
        with self._lock:
            worker.is_counted = True
            vgpu = next((each for each in self._vgpus.values() if each.region is region), None)
            if vgpu is not None:
                vgpu.count(worker.last)
                self._keep(vgpu, drop=[worker.item])

    def _keep_debts(self) -> None:
        self._store.put("debts", self.debts.record().written())


def _unknown(name: str) -> str:
    return f"there is no vGPU called {name}; see: fairgv-host list"
