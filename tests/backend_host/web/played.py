"""A daemon that is made up, with a clock of its own: an hour of it takes a moment."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from backend_host.glance import Glance, VGpuGlance
from backend_host.statistics import (
    ClientStatistics,
    CoschedulingStatistics,
    DaemonStatistics,
    GpuStatistics,
    Totals,
    VGpuStatistics,
)
from backend_host.web.history import PERIOD_S
from backend_host.web.telling import Teller

NS = 1_000_000_000
STARTED_MS = 1_795_600_000_000.0
CLIENT = ClientStatistics("program", 0, 17, 5, 4, 3, 2, 1024, 2048, 4096, 7, 0)
_MEMORY_BYTES = 80 << 30


@dataclass
class Tenant:
    """One vGPU; `share` is what it gets of its Gpu in a second, by how many of them passed, `entitled` what is due to it then."""

    name: str
    share: Callable[[int], float] = lambda second: 0.0
    entitled: Callable[[int], float | None] = lambda second: None
    weight: int = 1
    gpu: int = 0
    memory_bytes: int = 2 << 30
    wait_ms: Callable[[int], float] = lambda second: 0.0
    quota_bytes: int = 0
    demand: float = 0.75
    comes: int = 0
    goes: float = math.inf
    used_ns: int = 0
    wait_ns: int = 0
    nr_waits: int = 0

    def is_there(self, second: int) -> bool:
        return self.comes <= second < self.goes


@dataclass
class Played:
    """`pass_second` moves everything on by one; `teller` tells of it."""

    tenants: list[Tenant]
    nr_gpus: int = 1
    second: int = 0
    used_ns: dict[int, int] = field(default_factory=dict)
    waits_for: str = ""
    troubles: tuple[str, ...] = ()

    def teller(self) -> Teller:
        origin = {"host": "a-host", "version": "FairGV 0.1.0"}
        return Teller(self.statistics, self.glance, origin, lambda: self.second * NS, STARTED_MS)

    def pass_second(self) -> None:
        for tenant in self._there():
            used_ns = int(tenant.share(self.second) * NS)
            tenant.used_ns += used_ns
            self.used_ns[tenant.gpu] = self.used_ns.get(tenant.gpu, 0) + used_ns
            if wait_ms := tenant.wait_ms(self.second):
                tenant.nr_waits += 10
                tenant.wait_ns += int(10 * wait_ms * 1e6)
        self.second += 1

    def play(self, teller: Teller, seconds: int) -> None:
        """That long, as the daemon's thread does."""
        for _ in range(seconds):
            if self.second % PERIOD_S == 0:
                teller.second()
                teller.point()
            self.pass_second()

    def statistics(self) -> DaemonStatistics:
        gpus = tuple(self._gpu(number) for number in range(self.nr_gpus))
        vgpus = tuple(map(self._vgpu, self._there()))
        return DaemonStatistics(1, self.second * NS, "fair", 6_000_000, gpus[0], gpus, vgpus)

    def glance(self) -> Glance:
        vgpus = (
            VGpuGlance(
                name=tenant.name,
                kind="domain",
                gpu_number=tenant.gpu,
                weight=tenant.weight,
                quota_bytes=tenant.quota_bytes,
                used_ns=tenant.used_ns,
                memory_bytes=tenant.memory_bytes,
                entitled_share=tenant.entitled(self.second),
            )
            for tenant in self._there()
        )
        used_ns = {number: self.used_ns.get(number, 0) for number in range(self.nr_gpus)}
        return Glance(tuple(vgpus), used_ns, self.waits_for, self.troubles)

    def _there(self) -> Iterable[Tenant]:
        return [tenant for tenant in self.tenants if tenant.is_there(self.second)]

    def _vgpu(self, tenant: Tenant) -> VGpuStatistics:
        return VGpuStatistics(
            name=tenant.name,
            kind="domain",
            weight=tenant.weight,
            quota_bytes=tenant.quota_bytes,
            gpu_number=tenant.gpu,
            gpu_uuid="",
            region_bytes=1 << 28,
            region_free_bytes=1 << 27,
            memory_bytes=tenant.memory_bytes,
            used_ns=tenant.used_ns,
            held_ns=0,
            share=0.0,
            nr_grants=0,
            coscheduling=CoschedulingStatistics("off", False, 0, 0),
            totals=Totals(1, wait_ns=tenant.wait_ns, nr_waits={"inf": tenant.nr_waits}),
            clients=(CLIENT,),
            entitled_share=tenant.entitled(self.second),
            demand=tenant.demand,
        )

    def _gpu(self, number: int) -> GpuStatistics:
        own = [tenant for tenant in self._there() if tenant.gpu == number]
        return GpuStatistics(
            name="NVIDIA H100 80GB HBM3",
            kind="cuda",
            library="/lib",
            capability="9.0",
            memory_bytes=_MEMORY_BYTES,
            driver_version=13000,
            preempts=True,
            number=number,
            uuid=f"GPU-{number}",
            pci_bus_id="0000:f0:00.0",
            policy="fair",
            slice_ns=30_000_000,
            used_ns=self.used_ns.get(number, 0),
            used_bytes=sum(tenant.memory_bytes for tenant in own),
            recent_shares={},
            vgpus=tuple(tenant.name for tenant in own),
            walls=(),
            min_max_ratio=0.987 if len(own) > 1 else None,
            demand=sum(tenant.demand for tenant in own),
        )
