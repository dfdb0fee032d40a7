"""All that a daemon serves with: Gpus, vGPUs, domains and machines, put together in the order in which they need each other."""

import contextlib
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from backend_host.compiled_code import CompiledCode
from backend_host.config import BY_DEVICE, Config
from backend_host.device.failure import Failure
from backend_host.device.gpu import Gpu, find, serving
from backend_host.devices import Device
from backend_host.domains import Domains
from backend_host.errors import RefusedError
from backend_host.glance import Glance
from backend_host.guest_teller import GuestTeller
from backend_host.ipc import Server
from backend_host.machines import Machines
from backend_host.move.balancing import Balancing
from backend_host.move.drains import Drains
from backend_host.move.moves import Moves
from backend_host.move.trial import Trials
from backend_host.nvml.fatal import heed
from backend_host.nvml.watch import NvmlWatch
from backend_host.restart.old import OldPrograms
from backend_host.restart.succession import Succession
from backend_host.service.events import Events
from backend_host.service.kept import KeptVGpus
from backend_host.service.reload import Reloading
from backend_host.sleep.sleepers import Sleepers
from backend_host.space.telling import space_statistics
from backend_host.statistics import CodeStatistics, DaemonStatistics
from backend_host.vgpu_claims import release_unclaimed
from backend_host.vgpu_tenants import pids_by_tenant
from backend_host.vgpus import VGpuRegistry
from backend_host.vm.doorbell import Doorbells, server_identity
from backend_host.walls import cgroups
from backend_host.walls.check import walls_of_host
from backend_host.walls.tenants import Tenants
from backend_host.worker._worker import lib

log = logging.getLogger("fairgv.daemon")


class Parts:
    """Those of one daemon, which begin to serve at once and are taken down with the stack. `config` is what is served by now; `troubles`: what
    of it is not, as it names devices that are not there."""

    def __init__(
        self,
        config: Config,
        devices: Sequence[Device],
        troubles: Sequence[str],
        server: Server,
        succession: Succession,
        events: Events,
        stack: contextlib.ExitStack,
    ) -> None:
        self.config = config
        self._troubles = troubles
        self._events = events
        self._started_ns = time.monotonic_ns()
        walls = walls_of_host(config.walls, is_lenient=config.is_private)
        tree = cgroups.find() if "cgroup" in walls else None
        if tree is not None:
            tree.sweep()
        self.gpus = [
            stack.enter_context(
                serving(
                    *(device.number, device, config, walls, tree, succession.store),
                    left=succession.gpu(device),
                    peers=devices,
                )
            )
            for device in devices
        ]
        for trouble in (*troubles, *_default_trouble(self.gpus, config)):
            log.error("%s", trouble)
        self.drains = Drains(config.state_dir, self.gpus)
        doorbells = Doorbells(config.state_dir / "doorbells", server_identity(config.server_user))
        stack.callback(doorbells.close)
        self.vgpus = VGpuRegistry(self.gpus, lib.fgw_table_hash(), config.limits, succession.store)
        self.vgpus.is_beginning = True
        stack.callback(self.vgpus.remove_all)
        self._make_movers(stack)
        succession.adopt(self.gpus, self.vgpus, doorbells, events)
        for trouble in self.vgpus.request_troubles():
            log.warning("%s", trouble)
        succession.adopt_sessions(self.vgpus, server, {"guest_library": config.guest_library})
        for gpu in self.gpus:
            stack.enter_context(
                gpu.watched(self._watchdog_s(gpu), self.vgpus.time_out, self.vgpus.expel, self._gpu_failed)
            )
        self._watch_devices(stack)
        self.code = self._compiled_code(stack) if "user" in walls else None
        self.sleepers.start()
        self.balancing = Balancing(self.gpus, self.vgpus, self.moves, config.balance)
        stack.callback(self.balancing.stop)
        self.balancing.start()
        adopts_all = config.adopt == "all" and not config.is_private
        self.domains = Domains(
            self.vgpus,
            config.libvirt_uri,
            config.state_dir,
            adopts_all,
            doorbells,
            config.vgpu,
            config.pinned_bytes,
        )
        stack.callback(self.domains.stop)
        pattern = "" if config.is_private else config.shm_files
        self.machines = Machines(self.vgpus, lib.fgw_table_hash(), config.state_dir, events, pattern, config.vgpu)
        stack.callback(self.machines.stop)
        self.kept = KeptVGpus(self.vgpus, self.machines)
        teller = GuestTeller(self.vgpus.tell_guests)
        stack.callback(teller.stop)
        teller.start()
        self.reloading = Reloading(config, self.kept, self._check, self._serve_by)

        def begin() -> None:
            succession.forget_foreign()
            self.domains.start()
            self.reloading.begin()
            self.vgpus.is_beginning = False
            self.machines.start()
            release_unclaimed(self.vgpus, "session")

        self.old = OldPrograms(succession.foreign, begin)
        stack.callback(self.old.stop)
        stack.callback(self.old.end)
        self.vgpus.check_open = self.old.check
        self.old.start()

    def _compiled_code(self, stack: contextlib.ExitStack) -> CompiledCode:
        """Its bounds. Where workers stay who they are there is none of tenants."""
        walls = self.config.walls
        at_work = lambda: pids_by_tenant(self.vgpus.all())  # noqa: E731
        code = CompiledCode(walls, Tenants(walls), at_work, self.vgpus.expel_tenant)
        stack.callback(code.stop)
        code.start()
        return code

    def _make_movers(self, stack: contextlib.ExitStack) -> None:
        """What takes vGPUs off their devices, and whether the driver lets it: tried unasked where there are others to go to."""
        tried = [] if self.config.is_private else self.gpus
        self.trials = Trials(tried)
        stack.callback(self.trials.stop)
        self.sleepers = Sleepers(self.vgpus, lambda: self.config, is_tried=len(tried) > 1)
        stack.callback(self.sleepers.stop)
        self.moves = Moves(self.vgpus, self.gpus, self.sleepers.awake, lambda: self.config)
        stack.callback(self.moves.stop)

    def troubles(self) -> tuple[str, ...]:
        """What of the configuration is not served by, and why, and what does not come of requests."""
        kept = (f"vGPU {each.kept.name} is not served: {each.why}" for each in self.kept.waiting)
        return (*self._troubles, *_default_trouble(self.gpus, self.config), *kept, *self.vgpus.request_troubles())

    def try_again(self) -> None:
        """Serves vGPUs that could not be served before, as far as they can be now: whose Gpu has failed, and those of vgpus.d."""
        self.vgpus.rehouse_stranded()
        self.reloading.again()

    def _check(self, config: Config) -> None:
        """RefusedError for what cannot be; what was so before is a trouble already."""
        if config.vgpu.gpu != self.config.vgpu.gpu and (trouble := _default_trouble(self.gpus, config)):
            raise RefusedError(*trouble)

    def _serve_by(self, config: Config) -> None:
        """From now on. What is asked meanwhile goes by the one or by the other."""
        if config.vgpu != self.config.vgpu:
            self.domains.follow(config.vgpu)
            self.machines.follow(config.vgpu)
        if config.balance != self.config.balance:
            self.balancing.set_mode(config.balance)
        self.config = config
        self.vgpus.set_limits(config.limits)

    def _watch_devices(self, stack: contextlib.ExitStack) -> None:
        """By NVIDIA's own word; softgpu has none."""
        watched = {gpu.device.uuid: gpu for gpu in self.gpus if gpu.device.kind == "cuda"}
        if watched:
            watch = NvmlWatch(list(watched), lambda uuid, event: heed(event, watched[uuid].ward))
            for uuid, gpu in watched.items():
                gpu.figures = partial(watch.figures, uuid)
            watch.start()
            stack.callback(watch.stop)

    def _gpu_failed(self, gpu: Gpu, failure: Failure) -> None:
        text = f"GPU {gpu.number} ({gpu.device.uuid}) has failed and serves nobody until the daemon is started anew: {failure.reason}"
        self._events.tell("failure", os.geteuid(), text)
        self.vgpus.gpu_failed(gpu, failure)

    def _watchdog_s(self, gpu: Gpu) -> int:
        return gpu.device.watchdog_s if self.config.watchdog_s == BY_DEVICE else self.config.watchdog_s

    def statistics(self, nr_restarts: int, heap_age_ns: int = 0) -> DaemonStatistics:
        """What this daemon and everything in it did so far. `heap_age_ns`: how old what is told of heaps may be."""
        gpus, vgpus = self.vgpus.snapshot(heap_age_ns)
        first, *_ = gpus
        return DaemonStatistics(
            pid=os.getpid(),
            uptime_ns=time.monotonic_ns() - self._started_ns,
            policy=first.policy,
            slice_ns=first.slice_ns,
            device=self.gpus[0].device_statistics(),
            gpus=gpus,
            vgpus=vgpus,
            debts=self.vgpus.debts.statistics(sum(gpu.used_ns for gpu in gpus)),
            nr_restarts=nr_restarts,
            domain_uuids=self.domains.uuids(),
            waits_for=self.old.sentence(),
            troubles=self.troubles(),
            nr_old_programs=self.old.nr,
            compiled_code=CodeStatistics() if self.code is None else self.code.statistics(),
            spaces=tuple(space for gpu in self.gpus for space in space_statistics(gpu, self.vgpus.names(gpu), vgpus)),
        )

    def glance(self) -> Glance:
        """What of that changes from second to second."""
        return replace(self.vgpus.glance(), waits_for=self.old.sentence(), troubles=self.troubles())


def _default_trouble(gpus: Sequence[Gpu], config: Config) -> Sequence[str]:
    """What is wrong with the Gpu of vGPUs for which none is said, if anything is."""
    try:
        if config.vgpu.gpu:
            find(gpus, config.vgpu.gpu)
    except RefusedError as error:
        return [f"[vgpu] gpu: {error}"]
    return []
