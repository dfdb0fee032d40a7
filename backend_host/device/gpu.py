"""One device of the host as the daemon serves it: who may use it when, by whom, and what comes of work that does not end.

Gpus share nothing: each has a control page, a policy object, workers, and threads of its own, and one vGPU is on one of them. So what happens
on one, an eviction or a worker that is ended, is no concern of the others.

Wrong when: one program is to use several. A guest sees its own Gpu alone, as device 0.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from backend_host.budgets import Budgets
from backend_host.config import Config
from backend_host.coscheduling import Coscheduler
from backend_host.device.apart import Apart
from backend_host.device.auditor import Auditor
from backend_host.device.control import MAX_VGPUS, ControlPage
from backend_host.device.demand import Monitor, total
from backend_host.device.failure import Failure, Ward, trial_of
from backend_host.device.mover import MoverKnown
from backend_host.device.pager import Pager
from backend_host.device.readings import VgpuReading
from backend_host.devices import Device, device_name, kernel_wall
from backend_host.entitlement import WHOLE, Entitlement
from backend_host.errors import RefusedError
from backend_host.fairness import min_max_ratio
from backend_host.grants import GrantKeeper
from backend_host.history import WINDOWS_S
from backend_host.lacking import refusal_text
from backend_host.nvml.figures import Figures
from backend_host.oversubscription import WHATEVER_THERE_IS, Capacity, capacity_of
from backend_host.restart.records import GpuRecord
from backend_host.restart.store import Store
from backend_host.sizes import format_size
from backend_host.space.looks import Looks
from backend_host.space.setting import space_settings
from backend_host.space.spaces import Spaces
from backend_host.statistics import DeviceStatistics, GpuStatistics
from backend_host.walls.cgroups import Cgroups, Groups
from backend_host.walls.settings import WALLS
from backend_host.watchdog import Late, Watchdog
from backend_host.worker_start import WorkerStart, worker_start
from backend_host.workers import Workers, preemption_environment, slicing_settings
from scheduler.placement import Candidate, Known, NoDeviceFitsError, Wish, choose
from scheduler.registry import make_policy


@dataclass(frozen=True)
class GpuLeft:
    """What a daemon that died left of a Gpu."""

    record: GpuRecord
    page: ControlPage


@dataclass(eq=False)
class Gpu:
    """Made by `serving`. `number` is its place among the daemon's Gpus; vGPUs, workers and slots are numbered within it."""

    number: int
    device: Device
    page: ControlPage
    keeper: GrantKeeper
    workers: Workers
    coscheduler: Coscheduler
    monitor: Monitor
    ward: Ward
    walls: frozenset[str]
    """What each of its workers is behind."""
    start: WorkerStart
    """How its workers open the device."""
    spaces: Spaces
    """Which of its vGPUs use it at the same time."""
    space_looks: Looks
    """What is looked at of them."""
    mover: MoverKnown = field(default_factory=MoverKnown)
    """Whether programs can leave it and come to it."""
    retired_ns: int = 0
    """Charged to vGPUs that are gone."""
    behind_ns: dict[int, int] = field(default_factory=dict)
    """Charged to vGPUs that have just moved to another Gpu, by the numbers that they had and that are not free yet."""
    retired_deaths: int = 0
    """Of workers of vGPUs that are gone, while their programs lived."""
    is_drained: bool = False
    """No vGPU comes to it until an operator says otherwise (move/drains.py)."""
    is_adopted: bool = False
    """Its page is that of a daemon that died."""
    capacity: Capacity = WHATEVER_THERE_IS
    pager: Pager | None = None
    """Where programs may allocate more than the device has."""
    figures: Callable[[], Figures] = Figures
    """What NVML says of its device now."""
    _watchdog: Watchdog | None = None
    _auditor: Auditor | None = None
    _apart: Apart | None = None

    @property
    def failure(self) -> Failure | None:
        """Why it serves nobody any more; None: it is in order."""
        return self.ward.failure

    @property
    def has_roots(self) -> bool:
        """Its workers have a root folder of their own."""
        return "mount" in self.walls

    @property
    def item(self) -> str:
        """What the store calls it."""
        return f"gpu/{self.number}"

    def record(self) -> GpuRecord:
        """What the next daemon has to know of it."""
        device = self.device
        retired_ns = self.retired_ns + sum(self.behind_ns.values())
        return GpuRecord(
            *(self.number, device_name(device), retired_ns, self.retired_deaths),
            context_bytes=device.context_bytes,
            stream_bytes=device.stream_bytes,
        )

    def charged_ns(self) -> int:
        """GPU time used here since the daemon started, or the first of those whose places it took."""
        return self.used_ns(self.page.vgpus())

    def used_ns(self, accounts: Iterable[VgpuReading]) -> int:
        """By these accounts, of all its vGPUs."""
        return self.retired_ns + sum(account.used_ns for account in accounts)

    def demand(self) -> float | None:
        """How much of it its vGPUs want, together: above 1 more than there is. None: of one it is not known yet."""
        return self._demand(self.demands(self.page.vgpus()))

    def demands(self, accounts: Iterable[VgpuReading]) -> dict[int, float | None]:
        """How much of it each of these vGPUs wants, by its number, no more than its limit. One without a program wants nothing; None: it never
        used the device, or none of its programs has run for long enough."""
        wanted = self.monitor.demand.of_vgpus()
        found = {}
        for account in accounts:
            demand = wanted.get(account.vgpu, 0.0 if account.used_ns else None)
            limit = account.limit_permille / 1000 if account.limit_permille else None
            found[account.vgpu] = demand if demand is None or limit is None else min(demand, limit)
        return found

    @staticmethod
    def _demand(demands: Mapping[int, float | None]) -> float | None:
        return None if None in demands.values() else total(demands.values())

    @contextlib.contextmanager
    def watched(
        self,
        limit_s: int,
        end: Callable[["Gpu", int, int], None],
        expel: Callable[["Gpu", int, str], None],
        fail: Callable[["Gpu", Failure], None] = lambda *_: None,
    ) -> Iterator[None]:
        """Until the end of the block `end` is called with the slot of a worker whose work keeps others waiting for so long (0: never) and for
        how long it did, `expel` with the number of a vGPU whose workers write what cannot be true, and what that is, and `fail` once the
        device has failed."""
        with contextlib.ExitStack() as stack:

            def end_all(vgpu: int, why: str) -> None:
                expel(self, vgpu, why)

            self.ward.start(lambda failure: fail(self, failure))
            stack.callback(self.ward.stop)
            self._apart = apart = Apart(self.page, end_all)
            self._auditor = auditor = Auditor(
                self.page, end_all, self.keeper.owe, apart.alarm, is_preemptive=self.device.preempts
            )
            for thread in (apart, auditor):
                thread.start()
                stack.callback(thread.stop)
            if limit_s:
                self._watchdog = Watchdog(
                    self.page, limit_s * 1_000_000_000, lambda slot, took_ns: end(self, slot, took_ns)
                )
                self._watchdog.start()
                if self.pager is not None:
                    self.pager.watch(limit_s * 1_000_000_000, lambda slot, took_ns: end(self, slot, took_ns))
                stack.callback(self._watchdog.stop)
            yield

    def late(self) -> Sequence[Late]:
        """Workers that the watchdog has warned of."""
        return () if self._watchdog is None else self._watchdog.late()

    def device_statistics(self) -> DeviceStatistics:
        """What the device is."""
        device = self.device
        return DeviceStatistics(
            name=device.name,
            kind=device.kind,
            library=device.path,
            capability=device.capability,
            memory_bytes=device.memory_bytes,
            driver_version=device.driver_version,
            preempts=device.preempts,
        )

    def statistics(
        self,
        vgpus: Mapping[int, str],
        accounts: Collection[VgpuReading],
        demands: Mapping[int, float | None],
        nr_worker_deaths: int,
    ) -> GpuStatistics:
        """What this Gpu is and does, with the vGPUs on it, their names by their numbers, their accounts, what each wants, and deaths of their
        workers."""
        used_ns = {account.vgpu: account.used_ns for account in accounts}
        return GpuStatistics(
            **vars(self.device_statistics()),
            number=self.number,
            uuid=self.device.uuid,
            pci_bus_id=self.device.pci_bus_id,
            policy=self.keeper.policy_name,
            slice_ns=self.page.slice_ns,
            used_ns=self.used_ns(accounts),
            used_bytes=sum(account.memory_bytes for account in accounts),
            demand=self._demand(demands),
            recent_shares=dict(zip(WINDOWS_S, self.keeper.all_recent_shares(used_ns), strict=True)),
            nr_worker_deaths=self.retired_deaths + nr_worker_deaths,
            vgpus=tuple(vgpus.values()),
            walls=tuple(wall for wall in WALLS if wall in self.walls),
            nr_mended=0 if self._auditor is None else self._auditor.nr_mended,
            is_ready=self.workers.is_ready and self.failure is None,
            figures=self.figures(),
            failed="" if self.failure is None else self.failure.reason,
            is_drained=self.is_drained,
            has_mover=None if self.mover.why_not is None else not self.mover.why_not,
            why_no_mover=self.mover.why_not or "",
            has_fast_moves=bool(self.start.sees),
            capacity_bytes=self.capacity.resident,
            allocatable_bytes=self.capacity.allocatable,
            min_max_ratio=min_max_ratio(map(self.keeper.received, vgpus)),
            nr_apart=0 if self._apart is None else self._apart.nr_times,
        )


def find(gpus: Sequence[Gpu], name: str) -> Gpu:
    """The one that a person calls so: by its number, or by the beginning of its UUID, which is not nothing. Raises RefusedError."""
    numbered = [gpu for gpu in gpus if name == str(gpu.number)]
    found = numbered or [gpu for gpu in gpus if name and gpu.device.uuid.lower().startswith(name.lower())]
    if len(found) != 1:
        nr = "several Gpus of this host are" if found else "no Gpu of this host is"
        raise RefusedError(f"{nr} called {name!r}; see: fairgv-host devices")
    return found[0]


def check_quota(gpu: Gpu, entitlement: Entitlement) -> None:
    """RefusedError for a quota that no program could begin under."""
    if why := _why_no_context(gpu, entitlement):
        raise RefusedError(why)


def _why_no_context(gpu: Gpu, entitlement: Entitlement) -> str:
    """Why no program could begin there under its quota; "": one could."""
    if not 0 < entitlement.quota_bytes < gpu.device.context_bytes:
        return ""
    return (
        f"a memory quota of {format_size(entitlement.quota_bytes)} has no room for a context, which takes "
        f"{format_size(gpu.device.context_bytes)} of GPU {gpu.number}: no program could begin"
    )


def check_request(gpu: Gpu, entitlement: Entitlement, others: Mapping[str, Entitlement]) -> None:
    """RefusedError for a request that the Gpu's policy does not know, or that it cannot keep beside those of the `others` on it, by name."""
    if not entitlement.request:
        return
    if not gpu.keeper.takes_requests:
        raise RefusedError(
            f"--request: the policy {gpu.keeper.policy_name} of GPU {gpu.number} knows no requests; it is for the daemon's start to choose "
            "one that does: fairgv-host start --policy elastic"
        )
    requests = {name: other.request for name, other in others.items() if other.request}
    left = WHOLE - sum(requests.values())
    if round(entitlement.request * 10) > round(left * 10):
        have = ", ".join(f"{name} {request:g} %" for name, request in sorted(requests.items()))
        raise RefusedError(
            f"--request {entitlement.request:g} % is more than GPU {gpu.number} has left: {left:g} %, as {WHOLE - left:g} % are "
            f"requested ({have})"
        )


def place(
    gpus: Sequence[Gpu],
    entitlement: Entitlement,
    others: Callable[[Gpu], Mapping[str, Entitlement]],
    known: Callable[[Gpu], Known] = lambda gpu: Known(),
) -> tuple[Gpu, int]:
    """The Gpu of a new vGPU and its number there: the one that was asked for, or that scheduler/placement.py chooses. `others`: of each vGPU
    on a Gpu, by its name; `known`: its demand, and whether it is out.

    Quotas count where there are several Gpus: each against what programs may allocate there less the quotas of the others. RefusedError when
    nothing fits.
    """
    asked = [find(gpus, entitlement.gpu)] if entitlement.gpu else gpus
    asked = _with_space(asked, gpus, entitlement)
    candidates = []
    for gpu in asked:
        there = others(gpu)
        demand, out = known(gpu)
        if len(asked) == 1:
            check_quota(gpu, entitlement)
        elif why := _why_no_context(gpu, entitlement):
            out = out or f"out, as {why}"
        if not out:  # one that leaves it is there still
            gpu.spaces.check(entitlement, there)
            check_request(gpu, entitlement, there if len(asked) == 1 else {})
        memory_left = (gpu.capacity.allocatable or gpu.device.memory_bytes) - sum(
            each.quota_bytes for each in there.values()
        )
        candidates.append(
            Candidate(
                gpu.number,
                demand,
                weight=sum(each.weight for each in there.values()),
                memory_left=memory_left if len(gpus) > 1 else None,
                request_left=WHOLE - sum(each.request for each in there.values()),
                places_left=MAX_VGPUS - len(gpu.page.vgpus()),
                out=out,
            )
        )
    try:
        number = choose(candidates, Wish(entitlement.quota_bytes, entitlement.request))
    except NoDeviceFitsError as error:
        raise RefusedError(refusal_text(error.refusals, MAX_VGPUS)) from None
    chosen = next(gpu for gpu in asked if gpu.number == number)
    return chosen, chosen.page.vgpu_take(entitlement.quota_bytes)


def _with_space(asked: Sequence[Gpu], gpus: Sequence[Gpu], entitlement: Entitlement) -> Sequence[Gpu]:
    """Those on which a vGPU is together with the others of its space: the one where they are, whether that takes any or not, unless it has
    failed, as they leave it then. RefusedError where another one was asked for."""
    there = [gpu for gpu in gpus if entitlement.space and gpu.failure is None and gpu.spaces.holds(entitlement.space)]
    if not there:
        return asked
    if there[0] not in asked:
        raise RefusedError(
            f"--space: the space {entitlement.space} is on GPU {there[0].number}, and a space is on one: leave --gpu out, or give another space"
        )
    return there[:1]


@contextlib.contextmanager
def serving(
    number: int,
    device: Device,
    config: Config,
    walls: frozenset[str],
    cgroups: Cgroups | None,
    store: Store | None = None,
    left: GpuLeft | None = None,
    peers: Sequence[Device] = (),
) -> Iterator[Gpu]:
    """A Gpu until the end of the block; `walls` are those that its workers have, and `cgroups` where they are put. `store`: where it is kept
    for the next daemon; `left`: what the one before left of it; `peers`: all devices that are served. ConfigError where there is not the memory
    that the configuration says."""
    store = store or Store()
    nr_gpus = max(1, len(peers))
    capacity = capacity_of(device, config, nr_gpus)
    if left is not None:
        device = replace(device, context_bytes=left.record.context_bytes, stream_bytes=left.record.stream_bytes)
        device = replace(device, preempts=left.page.is_preemptive)  # as its programs know it
    groups = None if cgroups is None else Groups(cgroups, number)
    more = kernel_wall(device) | (preemption_environment(config) if device.preempts else {})
    swap_bytes = capacity.allocatable if capacity.is_short else 0
    start = worker_start(device, config, walls, groups, more, swap_bytes=swap_bytes, peers=peers)
    ward = Ward(f"GPU {number}", trial_of(start))
    with contextlib.ExitStack() as stack:
        slice_ns = device.settings.slice_ns or config.slice_ns or device.slice_ns
        page = stack.enter_context(
            ControlPage.create(slice_ns, is_preemptive=device.preempts) if left is None else left.page
        )
        page.set_slice_ns(slice_ns)
        page.set_capacity(capacity.resident, capacity.allocatable)
        budgets = Budgets(config.quota_max_ms * 1_000_000) if config.quota == "bursts" else None
        keeper = GrantKeeper(page, make_policy(config.policy), budgets)
        workers = Workers(
            *(page, start, config.nr_warm_workers, slicing_settings(config, preempts=device.preempts), device.costs),
            memory=config.memory,
            store=store,
            gpu=number,
            suspect=ward.suspect,
            nr_gpus=nr_gpus,
        )
        spaces = Spaces(number, page, workers, start, space_settings(device, number, config), store)
        workers.start()
        stack.callback(workers.stop)
        stack.callback(spaces.stop)  # before its workers are ended: a space that ends waits for them
        keeper.start()
        stack.callback(keeper.stop)
        pager = None
        if capacity.is_short:
            pager = Pager(page, capacity.resident, device.memory_bytes, config.paging_cost / 100)
            pager.start()
            stack.callback(pager.stop)
        coscheduler = Coscheduler(page, config.coscheduling)
        coscheduler.start()
        stack.callback(coscheduler.stop)
        looks = Looks(page, spaces)
        looks.start()
        stack.callback(looks.stop)
        monitor = Monitor(page, ward.look, looks.look)
        monitor.start()
        stack.callback(monitor.stop)
        gpu = Gpu(
            *(number, device, page, keeper, workers, coscheduler, monitor, ward, walls, start, spaces, looks),
            capacity=capacity,
            pager=pager,
        )
        if left is None:
            store.put(gpu.item, gpu.record().written(), page.objects)
        else:
            gpu.is_adopted = True
            gpu.retired_ns, gpu.retired_deaths = left.record.retired_ns, left.record.retired_deaths
        yield gpu
