"""The table of vGPUs: what they are and do, as people see it, and what happens to the machines of domains.

Who comes and goes is the registry's affair (vgpus.py), which is a table.
"""

import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from backend_host.debts import Debts
from backend_host.device.gpu import Gpu
from backend_host.device.readings import VgpuReading
from backend_host.entitled import request_troubles
from backend_host.entitlement import Entitlement
from backend_host.errors import RefusedError
from backend_host.glance import Glance
from backend_host.limits import Limits
from backend_host.region_memory import Identity
from backend_host.restart.store import Store
from backend_host.statistics import GpuStatistics, VGpuStatistics
from backend_host.vgpu import VGpu
from backend_host.vm.vcpus import QemuThreads
from backend_host.window import WindowPeer


class VGpuTable:
    """Of one daemon. Thread-safe. The lock is never held while a worker or a caretaker is waited for."""

    def __init__(self, gpus: Sequence[Gpu], limits: Limits, store: Store) -> None:
        self._gpus = gpus
        self._limits = limits
        self._store = store
        self._vgpus: dict[str, VGpu] = {}
        self.debts = Debts()
        self._lock = threading.Lock()

    def find(self, name: str) -> VGpu | None:
        """The one of this name, for a look at it: it may be gone a moment later."""
        with self._lock:
            return self._vgpus.get(name)

    def named(self, name: str) -> VGpu:
        """As `find`. RefusedError when it is not there."""
        vgpu = self.find(name)
        if vgpu is None:
            raise RefusedError(f"there is no vGPU called {name}; see: fairgv-host list")
        return vgpu

    def others(self, than: VGpu) -> list[VGpu]:
        """All but this one, for a look at them."""
        with self._lock:
            return [vgpu for vgpu in self._vgpus.values() if vgpu is not than]

    def all(self) -> list[VGpu]:
        """For a look at them."""
        with self._lock:
            return list(self._vgpus.values())

    def region_identity(self, name: str) -> Identity | None:
        """Of the file that is the vGPU's region; None when there is no such vGPU, or the file was cut short."""
        with self._lock:
            vgpu = self._vgpus.get(name)
            return None if vgpu is None or vgpu.region.is_cut else vgpu.file

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

    def note_run(self, name: str, run_id: int) -> None:
        """Which run of its virtual machine it is."""
        with self._lock:
            vgpu = self._vgpus.get(name)
            if vgpu is not None and vgpu.run_id != run_id:
                vgpu.run_id = run_id
                self._keep(vgpu)

    def set_suspended(self, vgpu: VGpu, *, is_suspended: bool, more_bytes: int = 0) -> None:
        """Whether its programs' memory is to be off the device, wherever it is now. `more_bytes`: as `Workers.allow_memory` has it.
        RefusedError when it has gone. Raises OSError."""
        with self._lock:
            self._check_there(vgpu)
            if more_bytes:
                vgpu.gpu.workers.allow_memory(vgpu.index, more_bytes)
            vgpu.gpu.page.set_suspended(vgpu.index, is_suspended=is_suspended)

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
            demands = {gpu: gpu.demands(accounts[gpu].values()) for gpu in self._gpus}
            gpus = (self._gpu_statistics(gpu, accounts[gpu].values(), demands[gpu]) for gpu in self._gpus)
            vgpus = (
                vgpu.statistics(
                    account,
                    used_ns[vgpu.gpu],
                    entitled[vgpu.gpu].get(vgpu.index),
                    demands[vgpu.gpu][vgpu.index],
                    self._limits,
                    heap_age_ns,
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

    def tell_guests(self) -> None:
        """Each of its own vGPU."""
        with self._lock:
            accounts, entitled = self._looked_at()
            for vgpu in self._vgpus.values():
                if (account := accounts[vgpu.gpu].get(vgpu.index)) is not None:
                    vgpu.tell_guest(account, entitled[vgpu.gpu].get(vgpu.index))

    def _looked_at(self) -> tuple[dict[Gpu, dict[int, VgpuReading]], dict[Gpu, dict[int, float]]]:
        """The accounts of each Gpu's vGPUs, and the parts that those are entitled to, by their numbers there; with the lock held."""
        accounts = {gpu: {account.vgpu: account for account in gpu.page.vgpus()} for gpu in self._gpus}
        entitled = {
            gpu: gpu.keeper.entitled_shares({vgpu: account.used_ns for vgpu, account in accounts[gpu].items()})
            for gpu in self._gpus
        }
        return accounts, entitled

    def _gpu_statistics(
        self, gpu: Gpu, accounts: Collection[VgpuReading], demands: Mapping[int, float | None]
    ) -> GpuStatistics:
        vgpus = self._on(gpu)
        nr_deaths = sum(vgpu.caretaker.nr_deaths for vgpu in vgpus)
        return gpu.statistics({vgpu.index: vgpu.name for vgpu in vgpus}, accounts, demands, nr_deaths)

    def _on(self, gpu: Gpu) -> list[VGpu]:
        """Those on this Gpu, with the lock held."""
        return [vgpu for vgpu in self._vgpus.values() if vgpu.gpu is gpu]

    def banned(self) -> frozenset[str]:
        """Names of vGPUs whose programs are refused, as earlier ones did not end."""
        with self._lock:
            return frozenset(name for name, vgpu in self._vgpus.items() if self.debts.is_banned(vgpu.debtor))

    def cut_short(self) -> frozenset[str]:
        """Names of vGPUs whose regions were cut short by who owns the file, so that they are served no more."""
        with self._lock:
            return frozenset(name for name, vgpu in self._vgpus.items() if vgpu.region.is_cut)

    def stranded(self) -> dict[str, str]:
        """Why programs of vGPUs are refused whose Gpu has failed, by name."""
        with self._lock:
            return {name: vgpu.stranded for name, vgpu in self._vgpus.items() if vgpu.stranded}

    def request_troubles(self) -> list[str]:
        """As `entitled.request_troubles` has it, of all Gpus."""
        with self._lock:
            return [trouble for gpu in self._gpus for trouble in self._request_troubles_on(gpu)]

    def _request_troubles_on(self, gpu: Gpu) -> list[str]:
        """With the lock held."""
        keeper = gpu.keeper
        troubles = request_troubles(
            self._entitlements_on(gpu), keeper.policy_name, takes_requests=keeper.takes_requests
        )
        return [f"GPU {gpu.number}: {trouble}" for trouble in troubles]

    def _keep(self, vgpu: VGpu, drop: Sequence[str] = ()) -> None:
        """As it is now, for the next daemon."""
        self._store.put(vgpu.item, vgpu.record().written(), drop=drop)

    def _check_there(self, vgpu: VGpu) -> None:
        """With the lock held."""
        if self._vgpus.get(vgpu.name) is not vgpu:
            raise RefusedError(f"the vGPU {vgpu.name} has gone")

    def _all_used_ns(self) -> int:
        return sum(gpu.charged_ns() for gpu in self._gpus)

    def _entitlements_on(self, gpu: Gpu) -> dict[str, Entitlement]:
        """Of those on this Gpu, or on their way to it, by their names, with the lock held."""
        return {
            vgpu.name: vgpu.entitlement
            for vgpu in self._vgpus.values()
            if vgpu.gpu is gpu or (vgpu.coming is not None and vgpu.coming.gpu is gpu)
        }
