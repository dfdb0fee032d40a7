"""vGPUs and the registry of them: who is entitled to what, and which region belongs to whom.

Two kinds. A `session` vGPU belongs to the commands that opened it (`fairgv-run`) and goes with the last of them. A `domain` vGPU belongs to a
libvirt domain and stays until it is detached.
"""

import contextlib
import logging
import os
import re
import secrets
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from backend_host.caretaker import Caretaker, Owner
from backend_host.debts import Debts, debtors_called
from backend_host.device.gpu import Gpu, check_quota, check_request, place
from backend_host.device.readings import VgpuReading
from backend_host.devices import with_quota
from backend_host.entitlement import Changes, Entitlement
from backend_host.errors import RefusedError
from backend_host.glance import Glance
from backend_host.limits import ORDINARY, Limits
from backend_host.region_memory import open_shared_memory, sealed_memory
from backend_host.service.journal import about
from backend_host.statistics import GpuStatistics, VGpuStatistics
from backend_host.vgpu import VGpu
from backend_host.vm.vcpus import QemuThreads
from backend_host.walls.tenants import name_of
from backend_host.window import Window, WindowPeer
from backend_host.workers import WorkerProcess
from ivshmem.bells import Bells
from ivshmem.region import Region, Wake

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

log = logging.getLogger("fairgv.vgpus")


class VGpuRegistry:
    """All vGPUs of one daemon. Thread-safe. The lock is never held while a worker or a caretaker is waited for."""

    def __init__(self, gpus: Sequence[Gpu], table_hash: int, limits: Limits = ORDINARY) -> None:
        self._gpus = gpus
        self._table_hash = table_hash
        self._limits = limits
        self._vgpus: dict[str, VGpu] = {}
        self.debts = Debts()
        self._lock = threading.Lock()

    def open_session(
        self,
        name: str | None,
        entitlement: Entitlement,
        region_bytes: int,
        uid: int,
        check_join: Callable[[VGpu], None] = lambda _: None,
        limited: Callable[[Sequence[Entitlement]], Entitlement] | None = None,
    ) -> VGpu:
        """A vGPU for a command of user `uid`; joining one of the same name and user shares it, which `check_join` may refuse. `limited`: what
        a new one gets beside the user's others, instead of `entitlement`. RefusedError says why not."""
        if name is not None and NAME.fullmatch(name) is None:
            raise RefusedError(f"{name!r} is no name for a vGPU; use letters, digits, '.', '_', '-', at most 64")
        with self._lock:
            vgpu = self._vgpus.get(name) if name is not None else None
            if vgpu is None:
                name = self._new_name() if name is None else name
                if limited is not None:
                    entitlement = limited([each.entitlement for each in self._of_user(uid)])
                memory = sealed_memory(name, region_bytes)
                vgpu = self._create(name, "session", entitlement, memory, uid, Wake.FUTEX)
                vgpu.gpu.coscheduler.add_user(vgpu.index, name, uid)
            elif vgpu.kind != "session" or vgpu.uid != uid:
                raise RefusedError(f"the vGPU {name} belongs to somebody else")
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
        self._check_is_new(name)
        memory = open_shared_memory(shm_name, self._table_hash, bells)  # without the lock: it may wait
        with self._lock:
            try:
                self._check_is_new(name)
            except RefusedError:
                os.close(memory)
                raise
            wake = Wake.POLL if bells is None else Wake.BELL
            return self._create(name, "domain", entitlement, memory, os.geteuid(), wake, is_paused, bells)

    def _check_is_new(self, name: str) -> None:
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
        if vgpu.peer is not None:
            vgpu.peer.stop()
            vgpu.peer.join()
        gpu = vgpu.gpu
        gpu.coscheduler.remove(vgpu.index)
        gpu.keeper.leave(vgpu.index)
        with self._lock:
            account = gpu.page.vgpu(vgpu.index)
            gpu.retired_ns += account.used_ns if account is not None else 0
            gpu.retired_deaths += vgpu.caretaker.nr_deaths
            gpu.page.vgpu_free(vgpu.index)
            gpu.page.names.pop(vgpu.index, None)
            vgpu.region.close()

    def banned(self) -> frozenset[str]:
        """Names of vGPUs whose programs are refused, as earlier ones did not end."""
        with self._lock:
            return frozenset(name for name, vgpu in self._vgpus.items() if self.debts.is_banned(vgpu.debtor))

    def find(self, name: str) -> VGpu | None:
        """The one of this name, for a look at it: it may be gone a moment later."""
        with self._lock:
            return self._vgpus.get(name)

    def change(self, name: str, changes: Changes) -> None:
        """Another entitlement for one that runs. RefusedError when it is not there.

        A quota below what is held takes nothing away: nothing more is allocated until enough was freed. Programs that run already
        learn the new total from cuMemGetInfo, and go on seeing the old one as the device's size.
        """
        with self._lock:
            vgpu = self._vgpus.get(name)
            if vgpu is None:
                raise RefusedError(_unknown(name))
            before, changed = vgpu.entitlement, vgpu.entitlement.changed(changes)
            check_quota(vgpu.gpu, changed)
            check_request(
                vgpu.gpu, changed, {key: other for key, other in self._entitlements_on(vgpu.gpu).items() if key != name}
            )
            vgpu.entitlement = changed
            vgpu.gpu.keeper.change(vgpu.index, vgpu.entitlement)
            if changed.limit != before.limit:
                vgpu.gpu.page.set_limit(vgpu.index, changed.limit_permille)
            if (quota_bytes := vgpu.entitlement.quota_bytes) != before.quota_bytes:
                vgpu.gpu.page.set_quota(vgpu.index, quota_bytes)
                vgpu.region.set_facts(with_quota(vgpu.gpu.device.facts, quota_bytes))
            log.info("vGPU %s: %s", name, vgpu.entitlement, extra=about(name))

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
            log.info("vGPU %s is called %s now", name, new_name, extra=about(new_name))

    def region_identity(self, name: str) -> tuple[int, int] | None:
        """Device and inode number of the file that is the vGPU's region; None when there is no such vGPU."""
        with self._lock:
            vgpu = self._vgpus.get(name)
            status = os.fstat(vgpu.region.fileno()) if vgpu is not None else None
            return (status.st_dev, status.st_ino) if status is not None else None

    def machine_started(self, name: str, threads: QemuThreads | str) -> None:
        """Its virtual machine runs now; the threads behind its vCPUs, or why they are to be left alone."""
        with self._lock:
            vgpu = self._vgpus.get(name)
            if vgpu is not None and isinstance(threads, QemuThreads):
                vgpu.gpu.coscheduler.add_machine(vgpu.index, name, threads)
            elif vgpu is not None and isinstance(threads, str):
                vgpu.gpu.coscheduler.add_none(vgpu.index, threads)

    def machine_ended(self, name: str) -> None:
        """The counterpart."""
        with self._lock:
            vgpu = self._vgpus.get(name)
            if vgpu is not None:
                vgpu.gpu.coscheduler.remove(vgpu.index)
                if vgpu.peer is not None:
                    vgpu.peer.stop()

    def connect_window(self, name: str, path: Path, uid: int, limit_bytes: int) -> None:
        """Its virtual machine, which has just started, has a device `fairgv-memory` whose QEMU, of user `uid`, listens at `path`. Its
        programs may have so many bytes behind the region, until `machine_ended`."""
        with self._lock:
            vgpu = self._vgpus.get(name)
            if vgpu is None:
                return
            if vgpu.peer is not None:
                vgpu.peer.stop()
            vgpu.window.limit_bytes = limit_bytes
            vgpu.peer = WindowPeer(vgpu.window, path, uid, earlier=vgpu.peer)
            vgpu.peer.start()

    def limit_window(self, name: str, limit_bytes: int) -> None:
        """Another limit; what was given stays."""
        with self._lock:
            vgpu = self._vgpus.get(name)
            if vgpu is not None:
                vgpu.window.limit_bytes = limit_bytes

    def guest_gone(self, name: str) -> None:
        """The virtual machine stopped, crashed or was reset: none of its programs lives any more."""
        with self._lock:
            vgpu = self._vgpus.get(name)
        if vgpu is not None:
            vgpu.caretaker.renew()

    def expel(self, gpu: Gpu, index: int, why: str) -> None:
        """Ends all workers of this vGPU of the Gpu: one of them was taken over."""
        with self._lock:
            for vgpu in self._on(gpu):
                if vgpu.index == index:
                    vgpu.nr_expelled += 1
                    vgpu.expelled_for = why
                    log.error("vGPU %s: its workers are ended: %s", vgpu.name, why, extra=about(vgpu.name))
                    for worker in vgpu.caretaker.workers():
                        worker.stop()

    def time_out(self, gpu: Gpu, slot: int, took_ns: int) -> None:
        """Ends the worker in this slot of the Gpu, whose work does not end and kept others waiting for so long; its program gets
        CUDA_ERROR_LAUNCH_TIMEOUT."""
        with self._lock:
            for vgpu in self._on(gpu):
                if any(worker.slot == slot for worker in vgpu.caretaker.workers()):
                    vgpu.nr_timed_out += 1
                    gpu.keeper.charge(vgpu.index, self.debts.add(vgpu.debtor, took_ns, self._all_used_ns()))
                    if self.debts.is_banned(vgpu.debtor):
                        banned = "vGPU %s: %s is banned: see fairgv-host unban --help"
                        log.error(banned, vgpu.name, vgpu.debtor, extra=about(vgpu.name))
                    vgpu.caretaker.time_out(slot)

    def _all_used_ns(self) -> int:
        return sum(gpu.charged_ns() for gpu in self._gpus)

    def unban(self, name: str) -> str:
        """Forgives the user or the domain of this name, or who is behind the vGPU of this name; says whom. RefusedError: there is no debt."""
        with self._lock:
            vgpu = self._vgpus.get(name)
        candidates = [*([vgpu.debtor] if vgpu is not None else []), *debtors_called(name)]
        for debtor in candidates:
            if self.debts.lift(debtor):
                log.info("%s is forgiven", debtor)
                return debtor
        raise RefusedError(f"no vGPU, domain or user called {name} has a debt or a ban; see: fairgv-host status")

    def remove_all(self) -> None:
        """For a daemon that stops."""
        with self._lock:
            names = list(self._vgpus)
        for name in names:
            self.remove_if_there(name)

    def names(self, gpu: Gpu) -> dict[int, str]:
        """Of each vGPU on it, by its number there."""
        with self._lock:
            return {vgpu.index: vgpu.name for vgpu in self._vgpus.values() if vgpu.gpu is gpu}

    def statistics(self) -> tuple[VGpuStatistics, ...]:
        """One entry for each vGPU, in the order of their creation."""
        return self.snapshot()[1]

    def snapshot(self, heap_age_ns: int = 0) -> tuple[tuple[GpuStatistics, ...], tuple[VGpuStatistics, ...]]:
        """Gpus and vGPUs at one moment: what all of a Gpu's used is what the Gpu was used. The lock keeps regions mapped and totals whole.
        `heap_age_ns`: how old what is told of heaps may be, since to count takes long."""
        with self._lock:
            accounts, entitled = self._looked_at()
            used_ns = {gpu: gpu.used_ns(accounts[gpu].values()) for gpu in self._gpus}
            gpus = (self._gpu_statistics(gpu, accounts[gpu].values()) for gpu in self._gpus)
            vgpus = (
                vgpu.statistics(
                    account, used_ns[vgpu.gpu], entitled[vgpu.gpu].get(vgpu.index), self._limits, heap_age_ns
                )
                for vgpu in self._vgpus.values()
                if (account := accounts[vgpu.gpu].get(vgpu.index)) is not None
            )
            return tuple(gpus), tuple(vgpus)

    def glance(self) -> Glance:
        """What changes from second to second, at one moment."""
        with self._lock:
            accounts, entitled = self._looked_at()
            vgpus = (
                vgpu.glance(account, entitled[vgpu.gpu].get(vgpu.index))
                for vgpu in self._vgpus.values()
                if (account := accounts[vgpu.gpu].get(vgpu.index)) is not None
            )
            return Glance(tuple(vgpus), {gpu.number: gpu.used_ns(accounts[gpu].values()) for gpu in self._gpus})

    def _looked_at(self) -> tuple[dict[Gpu, dict[int, VgpuReading]], dict[Gpu, dict[int, float]]]:
        """The accounts of each Gpu's vGPUs, and the parts that those are entitled to, by their numbers there; with the lock held."""
        accounts = {gpu: {account.vgpu: account for account in gpu.page.vgpus()} for gpu in self._gpus}
        entitled = {
            gpu: gpu.keeper.entitled_shares({vgpu: account.used_ns for vgpu, account in accounts[gpu].items()})
            for gpu in self._gpus
        }
        return accounts, entitled

    def _gpu_statistics(self, gpu: Gpu, accounts: Collection[VgpuReading]) -> GpuStatistics:
        vgpus = self._on(gpu)
        nr_deaths = sum(vgpu.caretaker.nr_deaths for vgpu in vgpus)
        return gpu.statistics({vgpu.index: vgpu.name for vgpu in vgpus}, accounts, nr_deaths)

    def _on(self, gpu: Gpu) -> list[VGpu]:
        """Those on this Gpu, with the lock held."""
        return [vgpu for vgpu in self._vgpus.values() if vgpu.gpu is gpu]

    def _new_name(self) -> str:
        while True:
            name = f"run-{secrets.token_hex(3)}"
            if name not in self._vgpus:
                return name

    def _create(
        self,
        name: str,
        kind: str,
        entitlement: Entitlement,
        memory: int,
        uid: int,
        wake: Wake,
        is_paused: Callable[[], bool] = lambda: False,
        bells: Bells | None = None,
    ) -> VGpu:
        """With the lock held; takes over the descriptor `memory`. Leaves nothing behind when it fails."""
        debtor = f"domain {name}" if kind == "domain" else f"user {uid}"
        try:
            gpu, index = place(self._gpus, entitlement, self._entitlements_on)
        except RefusedError:
            os.close(memory)
            raise
        with contextlib.ExitStack() as undo:
            undo.callback(gpu.page.vgpu_free, index)
            gpu.page.names[index] = name
            undo.callback(gpu.page.names.pop, index)
            gpu.page.set_limits(index, **self._limits.of_workers())
            gpu.page.set_limit(index, entitlement.limit_permille)
            try:
                region = Region(name, memory, os.fstat(memory).st_size)
                undo.callback(region.close)
                window = Window(name, region)
                owner = Owner(name, index, self._table_hash, name_of(kind, name, uid))
                caretaker = self._caretaker(owner, gpu, region, wake, is_paused, bells, window, debtor)
                gpu.keeper.join(index, entitlement)
                if debt_ns := self.debts.left_ns(debtor, self._all_used_ns()):
                    gpu.keeper.charge(index, debt_ns)
                undo.callback(gpu.keeper.leave, index)
                vgpu = VGpu(gpu, index, name, kind, entitlement, region, uid, caretaker, window, debtor=debtor)
                caretaker.start()
            except (OSError, ValueError, RuntimeError) as error:
                raise RefusedError(f"no region for {name}: {error}") from error
            self._vgpus[name] = vgpu
            undo.pop_all()
        log.info(
            "vGPU %s (%s) on GPU %d: %s, region %d MiB",
            *(name, kind, gpu.number, entitlement, region.region_bytes >> 20),
            extra=about(name),
        )
        return vgpu

    def _entitlements_on(self, gpu: Gpu) -> dict[str, Entitlement]:
        """Of those on this Gpu, by their names, with the lock held."""
        return {vgpu.name: vgpu.entitlement for vgpu in self._on(gpu)}

    def _caretaker(
        self,
        owner: Owner,
        gpu: Gpu,
        region: Region,
        wake: Wake,
        is_paused: Callable[[], bool],
        bells: Bells | None,
        window: Window,
        debtor: str,
    ) -> Caretaker:
        def lay_out() -> None:
            account = gpu.page.vgpu(owner.vgpu)
            facts = with_quota(gpu.device.facts, account.quota_bytes if account is not None else 0)
            region.format(table_hash=self._table_hash, facts=facts, wake=wake)
            if (
                wake is not Wake.FUTEX
            ):  # laying out gave the heap's memory back; a virtual machine's is to be there when it is needed
                os.posix_fallocate(region.fileno(), 0, region.region_bytes)

        if bells is not None:
            region.listen(bells.daemon_fd)

        return Caretaker(
            region,
            owner,
            gpu.workers,
            on_worker_end=lambda worker: self._collect(gpu, owner.vgpu, worker),
            format_region=lay_out,
            is_paused=is_paused,
            bells=bells,
            window=window,
            nr_clients=self._limits.clients,
            is_banned=lambda: self.debts.is_banned(debtor),
        )

    def _collect(self, gpu: Gpu, index: int, worker: WorkerProcess) -> None:
        """Keeps what an ended worker counted. From the reaper's thread, before its slot is freed."""
        reading = gpu.page.worker(worker.slot)
        with self._lock:
            worker.is_counted = True
            vgpu = next((each for each in self._on(gpu) if each.index == index), None)
            if vgpu is not None:
                vgpu.count(reading)


def _unknown(name: str) -> str:
    return f"there is no vGPU called {name}; see: fairgv-host list"
