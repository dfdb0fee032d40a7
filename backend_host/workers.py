"""Worker processes: kept warm, given to a client, noticed when they end.

A worker is started before anybody needs it, because a context takes a driver 90-190 ms. It outlives a daemon that dies: a closed socket
means nothing to it while it serves.

Workers that end before they had a client are not replaced for ever: after a few in a row no more are kept warm, and each client that arrives
gets one attempt of its own.
"""

import contextlib
import json
import logging
import os
import selectors
import socket
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backend_host import channels
from backend_host.config import SLICING_MODES, Config
from backend_host.device.control import MAX_VGPUS, MAX_WORKERS, ControlPage, ControlPageFullError
from backend_host.device.failure import SUSPICIOUS
from backend_host.errors import WorkerFailedError
from backend_host.pools import Pool
from backend_host.restart.records import WorkerRecord
from backend_host.restart.store import Store
from backend_host.service.journal import about
from backend_host.shelf import PAGE, Message, most_files
from backend_host.shelf_thread import ShelfThread
from backend_host.walls.start import AdoptedChild
from backend_host.worker_log import Pipe, WorkerLog
from backend_host.worker_process import SERVED, Slot, WorkerProcess, stop_all
from backend_host.worker_start import WorkerStart
from ivshmem.passing import send_with

MAX_FAILURES = 3
"""Workers that end in a row, before they had a client, until none is kept warm any more."""
EXIT_NO_LIBRARY = 3
"""Of a worker that could not open its device (worker/main.py)."""
_END_S = 10.0
_RETRY_S = 1.0

log = logging.getLogger("fairgv.workers")


@dataclass(frozen=True)
class Assignment:
    """What a worker is told of its client; the two descriptors travel beside it."""

    region_bytes: int
    table_hash: int
    client: int
    vgpu: int
    region_fd: int
    tenant: str
    """The name of whose program it is (walls/tenants.py)."""
    bell_fds: tuple[int, ...] = ()
    """Where the virtual machine has bells: the one that the guest rings for this client, then those of the guest."""
    vgpu_name: str = ""
    """For people, as the program's."""
    program: str = ""


def slicing_settings(config: Config, *, preempts: bool) -> dict[str, int]:
    """What workers of a device are told of large launches: the fields of `struct fgw_slicing_settings`."""
    return {
        "mode": SLICING_MODES.index(config.slicing),
        "waits_for_variant": int(not preempts),
        "threshold_blocks": config.slicing_threshold_blocks,
        "least_blocks": config.slicing_least_blocks,
        "part_ns": config.slicing_part_us * 1000,
    }


def preemption_environment(config: Config, library: Path = channels.LIBRARY) -> dict[str, str]:
    """What workers' environment has more on a device that preempts, to take their work off it (backend_host/channels)."""
    if config.preemption != "withdraw":
        return {}
    if not library.exists():
        log.warning("kernels that outlive their turn share the GPU: %s is missing, `make build` makes it", library)
        return {}
    return {"LD_PRELOAD": ":".join(filter(None, [str(library), os.environ.get("LD_PRELOAD")]))}


class Workers:
    """All workers of one Gpu. Thread-safe."""

    def __init__(
        self,
        page: ControlPage,
        start: WorkerStart,
        nr_warm: int,
        slicing: Mapping[str, int] | None = None,
        costs: Mapping[str, int] | None = None,
        memory: str = "span",
        store: Store | None = None,
        gpu: int = 0,
        suspect: Callable[[str], None] = lambda _: None,
        nr_gpus: int = 1,
    ) -> None:
        """`store`: where workers with a client are kept for the next daemon, as those of Gpu number `gpu`. `suspect` is told why its device may
        have failed. `nr_gpus`: how many there are, for what the daemon keeps for all."""
        self._suspect = suspect
        self._is_closed = False
        self._is_resting = False
        self._page = page
        self._store = store or Store()
        self._gpu = gpu
        self._plain = Pool(start, nr_warm)
        self._pools: dict[int, Pool] = {}
        """Of vGPUs whose workers are no plain ones."""
        self._slicing = dict(slicing or {})
        self._costs = dict(costs or {})
        self._memory = memory
        self._lock = threading.Lock()
        self._all: dict[WorkerProcess, Pool] = {}
        self._is_stopping = False
        self._said = WorkerLog()
        self._shelves = ShelfThread(most_files(nr_gpus * MAX_VGPUS), page.called)
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._reap, name="workers", daemon=True)

    @property
    def is_ready(self) -> bool:
        """Workers get as far as having a context; False: the last few that were to wait for a client ended before they had one."""
        return self._plain.nr_failures < MAX_FAILURES

    def start(self) -> None:
        """Starts the reaper and the first warm workers."""
        self._said.start()
        self._shelves.start()
        self._thread.start()

    def ask(self, vgpu: int, told: Callable[[], None]) -> threading.Event | None:
        """Before a client of this vGPU gets a worker: as `Shared.ask`. None: it shares nothing, and can get one now."""
        with self._lock:
            shared = self._pools.get(vgpu, self._plain).shared
        return None if shared is None else shared.ask(told)

    def assign(self, assignment: Assignment, on_end: Callable[[WorkerProcess, int], None]) -> WorkerProcess:
        """Gives the client a worker, a warm one if there is one.

        A worker that ends at once tells so by `on_end`. Raises ControlPageFullError when there are too many, OSError or WorkerFailedError
        when none can be started.
        """
        while True:
            with self._lock:
                pool = self._pools.get(assignment.vgpu, self._plain)
            pool = pool if pool.claim() else self._plain  # without the lock: it counts workers
            with self._lock:
                self._check_room(assignment.vgpu)
                is_warm = bool(pool.warm)
                worker = pool.warm.pop() if is_warm else self._spawn(pool)
                worker.on_end = on_end
            is_told = self._tell(worker, assignment, pool)
            if not is_told:
                worker.stop()  # it has ended, or we lack descriptors: nobody would ever tell it
            if is_told or not is_warm:
                self._wake()
                return worker

    def _check_room(self, vgpu: int) -> None:
        """With the lock held. Raises ControlPageFullError when what is left is for vGPUs that have no worker, those to come included: so each
        can have one, whatever the others do."""
        nr_left = MAX_WORKERS - len(self._all) + sum(len(pool.warm) for pool in self._each())
        if nr_left > MAX_VGPUS:
            return
        served = {account.vgpu for account in self._page.vgpus() if account.nr_workers > 0}
        if vgpu in served and nr_left <= MAX_VGPUS - len(served):
            raise ControlPageFullError("the last places for workers are kept for vGPUs that have none")

    def _each(self) -> set[Pool]:
        """With the lock held."""
        return {self._plain, *self._pools.values()}

    def set_pool(self, vgpu: int, pool: Pool | None) -> None:
        """From now on clients of this vGPU get workers of this pool; None: plain ones. Those of a pool that is nobody's any more are ended."""
        with self._lock:
            before = self._pools.pop(vgpu, None)
            if pool is not None:
                self._pools[vgpu] = pool
            is_left = before is not None and before not in self._each()
        if before is not None and is_left:
            self.dismiss(before)
        self._wake()

    def dismiss(self, pool: Pool) -> None:
        """Ends those of it that wait for a client; others are kept warm in their place as soon as it is open."""
        with self._lock:
            dismissed, pool.warm, pool.nr_failures = pool.warm, [], 0
        for worker in dismissed:
            worker.stop()
        self._wake()

    def nr_of(self, pools: Collection[Pool]) -> int:
        """How many workers of these pools there are."""
        with self._lock:
            return sum(pool in pools for pool in self._all.values())

    def _tell(self, worker: WorkerProcess, assignment: Assignment, pool: Pool) -> bool:
        message = {
            "region_bytes": assignment.region_bytes,
            "table_hash": assignment.table_hash,
            "client": assignment.client,
            "vgpu": assignment.vgpu,
            "slot": worker.slot,
            "device": pool.start.ordinal,
            "slicing": self._slicing,
            "costs": self._costs,
            "memory": self._memory,
        }
        with worker.kept() as is_there:
            if not is_there:
                return False
            try:
                self._said.name(worker.slot, assignment.vgpu_name, assignment.program)
                message["walls"] = pool.start.message(assignment.tenant)
                group = pool.start.join(worker.process, assignment.vgpu, assignment.region_bytes)
                self._page.worker_assign(worker.slot, worker.process.pid, assignment.vgpu, assignment.client)
                self._keep(worker, assignment, group, pool)  # before it is told: from then on it may outlive us
                with contextlib.ExitStack() as lent:
                    page = lent.enter_context(self._page.for_worker(assignment.vgpu, worker.slot))
                    descriptors = [assignment.region_fd, *page, *assignment.bell_fds]
                    if pool.shared is not None:
                        message["space"] = {"has_page": True}
                        descriptors.append(lent.enter_context(pool.shared.page()))
                    send_with(worker.socket, json.dumps(message).encode(), descriptors)
                self._shelves.listen(worker, assignment.vgpu, worker.socket)
            except OSError as error:
                name = assignment.vgpu_name
                log.warning(
                    "%s: worker %d could not be given a client: %s", name, worker.process.pid, error, extra=about(name)
                )
                return False
        return True

    def _keep(self, worker: WorkerProcess, assignment: Assignment, group: str, pool: Pool) -> None:
        worker.record = WorkerRecord(
            gpu=self._gpu,
            slot=worker.slot,
            vgpu=assignment.vgpu,
            client=assignment.client,
            pid=worker.process.pid,
            program=assignment.program,
            group=group,
            sees=pool.start.sees,
        )
        self._put(worker, worker.record)

    def _put(self, worker: WorkerProcess, record: WorkerRecord, drop: Sequence[str] = ()) -> None:
        descriptors = (worker.process.pidfd, worker.socket.fileno(), self._said.fd(record.slot))
        self._store.put(worker.item, record.written(), descriptors, has_life=True, drop=drop)

    def adopt(
        self,
        record: WorkerRecord,
        descriptors: Sequence[int],
        vgpu_name: str,
        on_end: Callable[[WorkerProcess, int], None],
    ) -> WorkerProcess:
        """A worker that an earlier daemon gave to a client; takes over its descriptors: process, socket, what it says."""
        pidfd, ours, said = descriptors
        process = AdoptedChild(record.pid, pidfd)
        at = Slot(self._page, record.slot)
        with self._lock:
            pool = self._pools.get(record.vgpu, self._plain)
        worker = WorkerProcess(at, process, socket.socket(fileno=ours), on_end, record, is_patient=True)
        worker.shared = pool.shared
        pool.start.adopt(process, record.vgpu, record.group)
        self._said.adopt(record.slot, said)
        self._said.name(record.slot, vgpu_name, record.program)
        self._shelves.listen(worker, record.vgpu, worker.socket)
        self._watch(worker, pool)
        return worker

    def _watch(self, worker: WorkerProcess, pool: Pool) -> None:
        with self._lock:
            self._all[worker] = pool
            self._selector.register(worker.process.pidfd, selectors.EVENT_READ, worker)
        self._wake()

    def allow_memory(self, vgpu: int, more_bytes: int) -> None:
        """Lets the workers of this vGPU have so much more of the host's memory together, its region included. Raises OSError."""
        self._plain.start.allow(vgpu, more_bytes)

    def reserve(self) -> int:
        """A slot for a worker that is to come from another Gpu. Raises ControlPageFullError."""
        with self._lock:
            return self._page.worker_take()

    def take_over(
        self, worker: WorkerProcess, before: "Workers", slot: int, vgpu: int, name: str, more_bytes: int
    ) -> bool:
        """A worker that serves on another Gpu becomes one of this vGPU here, in a slot that is reserved, with all that the daemon has of it;
        `tell_page` follows. Its slot there stays taken. `more_bytes`: as `allow_memory` has it. False: it has ended, and the reaper there has
        it."""
        said = before._give(worker)
        if said is None or worker.record is None:
            return False
        self._said.take(slot, said)
        self._said.name(slot, name, worker.record.program)
        group = self._plain.start.take_over(before._plain.start, worker.process, vgpu, more_bytes)
        self._page.worker_assign(slot, worker.process.pid, vgpu, worker.record.client)
        worker.go_to(self._page, slot)
        item, worker.record = worker.item, replace(worker.record, gpu=self._gpu, slot=slot, vgpu=vgpu, group=group)
        self._put(worker, worker.record, drop=[item])
        self._shelves.listen(worker, vgpu, worker.socket)
        self._watch(worker, self._plain)
        return True

    def _give(self, worker: WorkerProcess) -> Pipe | None:
        """Lets go of one that has not ended: what it says comes by this pipe. None: it has."""
        with self._lock:
            if worker.is_ending:
                return None
            self._selector.unregister(worker.process.pidfd)
            del self._all[worker]
        self._shelves.leave(worker, worker.socket)
        return self._said.give(worker.slot)

    def tell_page(self, worker: WorkerProcess, page: Sequence[int]) -> None:
        """Gives one that was taken over the page that it is to go by, as `ControlPage.for_worker` lends it. OSError where it does not hear."""
        with worker.kept() as is_there:
            if is_there and worker.record is not None:
                message = Message(PAGE, (worker.record.vgpu, worker.record.slot), 0).packed()
                send_with(worker.socket, message, page, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """From now on none is kept warm, and none is given to a client: the device has failed. Those that serve are left alone."""
        with self._lock:
            self._is_closed = True
            warm = [worker for pool in self._each() for worker in pool.warm]
        for worker in warm:
            worker.stop()

    def rest(self, *, is_resting: bool) -> None:
        """Whether no worker is kept warm, so that the device has no contexts but those of programs: then it takes less power, and a program's
        first context takes longer."""
        with self._lock:
            if self._is_resting == is_resting:
                return
            self._is_resting = is_resting
            dismissed, self._plain.warm = (self._plain.warm, []) if is_resting else ([], self._plain.warm)
        for worker in dismissed:
            worker.stop()
        self._wake()

    def stop(self) -> None:
        """Ends all workers and waits for them."""
        with self._lock:
            if self._is_stopping:
                return
            self._is_stopping = True
            workers = list(self._all)
        stop_all(workers)
        self._wake()
        self._thread.join(_END_S)
        if self._thread.is_alive():
            return  # the thread still needs what is closed here
        self._said.stop()
        self._shelves.stop()
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"!")

    def _spawn(self, pool: Pool) -> WorkerProcess:
        """With the lock held. Leaves nothing behind when it fails."""
        if self._is_stopping:
            raise WorkerFailedError("the daemon is stopping")
        if self._is_closed:
            raise WorkerFailedError("the device has failed")
        if self._nr_left(pool) == 0:
            raise ControlPageFullError("there are as many workers as can share a space")
        with contextlib.ExitStack() as undo:
            slot = self._page.worker_take()
            undo.callback(self._page.worker_free, slot)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.callback(ours.close)
            with theirs, self._said.pipe(slot) as said:
                process = pool.start.spawn(theirs.fileno(), slot, said)
            undo.callback(self._said.close, slot)
            undo.callback(process.close)
            undo.callback(pool.start.leave, process)
            undo.callback(process.wait)
            undo.callback(process.kill)
            worker = WorkerProcess(Slot(self._page, slot), process, ours, shared=pool.shared)
            self._selector.register(process.pidfd, selectors.EVENT_READ, worker)
            self._all[worker] = pool
            undo.pop_all()
        return worker

    def _nr_left(self, pool: Pool) -> int:
        """With the lock held: so many workers more can share what those of this pool share."""
        if pool.shared is None or not pool.shared.most:
            return MAX_WORKERS
        return max(0, pool.shared.most - sum(other.shared is pool.shared for other in self._all.values()))

    def _wants_warm(self, pool: Pool) -> bool:
        """With the lock held. The last place is for a client whose worker is of another kind than those that wait."""
        is_short = len(pool.warm) < pool.nr_warm and self._nr_left(pool) > 1
        return is_short and pool.is_open and pool.nr_failures < MAX_FAILURES

    def _fill(self) -> bool:
        """True unless workers are missing that could not be started; then it is worth another attempt later."""
        try:
            with self._lock:
                is_open = not (self._is_stopping or self._is_closed or self._is_resting)
                for pool in self._each() if is_open else ():
                    while self._wants_warm(pool):
                        pool.warm.insert(0, self._spawn(pool))
        except ControlPageFullError:
            return True  # until one ends, which wakes us
        except OSError as error:
            log.error("cannot start a worker: %s", error)
            return False
        except Exception:
            log.exception("cannot start a worker")
            return False
        return True

    def _reap(self) -> None:
        while True:
            with self._lock:
                if self._is_stopping and not self._all:
                    return
            timeout_s = None if self._fill() else _RETRY_S
            for key, _ in self._selector.select(timeout_s):
                if key.data is None:
                    os.read(self._wake_read, 4096)
                    continue
                try:
                    self._collect(key.data)
                except Exception:
                    log.exception("taking back what worker %d had failed", key.data.process.pid)
                    self._give_up(key.data)

    def _give_up(self, worker: WorkerProcess) -> None:
        """One has ended, and not all that follows was done: its slot is free, and whoever waits for it goes on."""
        with self._lock:
            if self._all.pop(worker, None) is not None:
                self._page.worker_free(worker.slot)
        worker.is_ended.set()

    def _collect(self, worker: WorkerProcess) -> None:
        with self._lock:
            if worker not in self._all:
                return  # another Gpu's since it was seen
            worker.is_ending = True
            pool = self._all[worker]
            self._selector.unregister(worker.process.pidfd)
        status = worker.process.wait()
        worker.forget_process()
        self._shelves.leave(worker, worker.socket)
        worker.socket.close()
        self._said.close(worker.slot)
        pool.start.leave(worker.process)
        reading = worker.last = worker.reading()
        if reading is not None and reading.last_error in SUSPICIOUS:
            self._suspect(f"a program got CUDA error {reading.last_error}")
        has_served = reading is not None and reading.state in SERVED
        self._page.repair(worker.slot)
        with self._lock:
            was_warm = worker in pool.warm
            if was_warm:
                pool.warm.remove(worker)
        try:
            if worker.on_end is not None:
                worker.on_end(worker, status)
        except Exception:
            log.exception("what follows the end of worker %d failed", worker.process.pid)
        if worker.record is not None:
            self._store.drop(worker.item)
        self._page.worker_free(worker.slot)
        with self._lock:
            del self._all[worker]
        if pool.shared is not None:
            pool.shared.ended(status, reading)
        worker.is_ended.set()
        if not self._is_stopping:
            self._judge(status, was_warm, has_served, pool)

    def _judge(self, status: int, was_warm: bool, has_served: bool, pool: Pool) -> None:
        """Only a worker that no guest ever touched tells something about the host."""
        if has_served:
            pool.nr_failures = 0
        if not was_warm:
            return
        if self._is_closed:
            return
        if status == EXIT_NO_LIBRARY and pool.shared is None:
            self._suspect("a worker could not open it")
        pool.nr_failures += 1
        log.error("a worker ended with status %d before it had a client", status)
        if pool.nr_failures == MAX_FAILURES:
            log.error(
                "%d workers in a row ended at their start: none is kept ready any more. Each program still gets an attempt of its own; when "
                "that fails, it is refused with CUDA_ERROR_SYSTEM_NOT_READY. The lines above say why",
                MAX_FAILURES,
            )
