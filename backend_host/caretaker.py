"""Looks after one region: beats for the host, gives workers to guest programs that arrive, takes back what those that left held.

Everything it reads was written by the guest. A state that makes no sense costs that guest a client entry and nobody else anything: the
records of who has which worker are kept here, not in the region. One thread owns them; whoever else has news puts it into a queue.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from backend_host.device.control import ControlPageFullError
from backend_host.errors import FairGVError
from backend_host.guest_log import GuestLog
from backend_host.service.journal import about
from backend_host.sizes import format_programs
from backend_host.walls.start import UNKNOWN_STATUS
from backend_host.window import Window
from backend_host.worker_process import WorkerProcess, stop_all
from backend_host.workers import Assignment, Workers
from ivshmem.bells import Bells
from ivshmem.region import BEAT_LOST_SECONDS, Client, ClientState, HostState, Region, Wake

_LOOK_S = 1.0
"""Without an announcement: so soon what nobody announces is seen, a beat that stands still say."""
_QUIET_S = 5.0
"""The same while there is no program. To wake takes 40 us, and a host may have hundreds of regions in which nothing happens."""
_UNRUNG_S = 0.2
"""The same where we sleep until the guest rings: one without the kernel module announces, and rings nothing."""
_ASKED_NS = 100_000_000_000
"""A program waits so long for what its worker shares with others. Its guest waits 120 s for a worker."""
_HANGS_S = 30.0
"""A look takes a worker's start at most, seconds on a busy host. Who takes longer than this hangs, and beats no more."""
_LOOK_PAUSE_S = 0.002
"""Between two looks at least: a guest that announces without a pause would otherwise keep the daemon busy."""
_LOST_NS = int(BEAT_LOST_SECONDS * 1e9)
_ASK_NS = _LOST_NS // 4
"""A beat that stands still is asked about this often, and so before a worker takes it for the end of its client."""
REFUSALS = ("clients", "banned", "workers", "start", "device")
"""Why a program is not served: the vGPU has as many as it may; its debtor is banned; all places for workers are taken; no worker could be
started, or it ended before it could serve; its device has failed, and no other takes it."""
CUDA_ERROR_OUT_OF_MEMORY = 2
CUDA_ERROR_DEVICE_UNAVAILABLE = 46
CUDA_ERROR_LAUNCH_TIMEOUT = 702
CUDA_ERROR_NOT_PERMITTED = 800
CUDA_ERROR_SYSTEM_NOT_READY = 802

log = logging.getLogger("fairgv.regions")


@dataclass
class _Entry:
    """What we know of one client entry that is not free."""

    beat: int
    beat_changed_ns: int
    asked_ns: int = 0
    is_patient: bool = False
    is_lost: bool = False
    worker: WorkerProcess | None = None
    sign: threading.Event | None = None
    """What its worker is to share with others was asked for, and is set once that is known to be in order, or not to be had."""
    sign_asked_ns: int = 0


@dataclass(frozen=True)
class Owner:
    """Whose region it is, as workers are told."""

    name: str
    vgpu: int
    table_hash: int
    tenant: str


@dataclass(frozen=True)
class Home:
    """What of a vGPU's place its caretaker has: the workers of a Gpu, the vGPU's number there, and what lays the region out."""

    workers: Workers
    vgpu: int
    format_region: Callable[[], None]


class Caretaker:
    """One thread for one region. `format_region` lays it out anew, at the start and after the guest was reset.

    `is_paused` is asked when a beat stands still: in a virtual machine that stands still no program is dead. `bells` are handed to workers,
    which hear of the pieces of `window`. `nr_clients`: so many programs may run at once, 0: as many as there is room for. While `is_banned`
    no program is served.
    """

    def __init__(
        self,
        region: Region,
        owner: Owner,
        workers: Workers,
        on_worker_end: Callable[[WorkerProcess], None],
        format_region: Callable[[], None],
        is_paused: Callable[[], bool],
        bells: Bells | None = None,
        window: Window | None = None,
        nr_clients: int = 0,
        is_banned: Callable[[], bool] = lambda: False,
    ) -> None:
        self._region = region
        self._owner = owner
        self._workers = workers
        self._on_worker_end = on_worker_end
        self._format_region = format_region
        self.is_paused = is_paused
        """Whether the guest stands still; who learns more of it may change it."""
        self._bells = bells
        self._window = window
        self.nr_clients = nr_clients
        """So many programs may run at once; it may change."""
        self._is_banned = is_banned
        self._paused_now: bool | None = None
        self._must_renew = False
        self._is_cut = False
        self._nr_holds = 0
        self._welcoming = threading.Lock()
        """Held while a program is given its worker."""
        self._stranded = ""
        self._entries: dict[int, _Entry] = {}
        self._ended: queue.SimpleQueue[tuple[WorkerProcess, int]] = queue.SimpleQueue()
        self._late: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        self._is_stopping = threading.Event()
        self._announcing = threading.Lock()
        """Held while others announce something, or write into the region."""
        self._nr_failures = 0
        self.nr_refused = dict.fromkeys(REFUSALS, 0)
        """Programs that were not served, by why."""
        self.nr_deaths = 0
        """Workers that ended while their programs lived."""
        self._log = GuestLog(log, owner.name)
        self._thread = threading.Thread(target=self._run, name=f"region-{owner.name}", daemon=True)

    def start(self) -> None:
        """Opens the region to guests."""
        self._format_region()
        self._open()

    def adopt(self, workers: Mapping[int, WorkerProcess]) -> None:
        """The same for a region that an earlier daemon opened, which is as it was: with a worker for each of these clients. The others had
        one that has ended, or wait for theirs."""
        now_ns = time.monotonic_ns()
        for index, worker in workers.items():
            beat = self._region.client(index).beat
            self._entries[index] = _Entry(beat, now_ns, is_patient=True, worker=worker)
        self._open()

    def _open(self) -> None:
        self._region.set_host_state(HostState.UP)
        self._thread.start()

    def renew(self) -> None:
        """Every program of the guest is gone: ends the workers, then lays the region out anew. Returns at once."""
        self._must_renew = True
        self._announce()

    def rename(self, name: str) -> None:
        """Another name for what is said from now on."""
        self._owner = replace(self._owner, name=name)
        self._log.name = name

    def stop(self) -> None:
        """Closes the region: workers end, guests are told, everything held is given back."""
        with self._announcing:
            self._is_stopping.set()  # the region may go from now on
        self._region.set_host_state(HostState.DOWN)
        self._region.announce()
        if self._thread.ident is not None:
            self._thread.join()
        stop_all(self.workers())
        for client in self._region.clients():
            self._region.declare_dead(client.index)
            if client.state == ClientState.HELLO:
                self._region.refuse(client.index, CUDA_ERROR_SYSTEM_NOT_READY)

    @property
    def tenant(self) -> str:
        """Whose programs it serves."""
        return self._owner.tenant

    def time_out(self, worker: WorkerProcess) -> None:
        """Ends this worker, whose work does not end; its program gets CUDA_ERROR_LAUNCH_TIMEOUT. Returns at once."""
        self._late.put(worker)
        self._region.announce()

    def hold(self) -> None:
        """Programs that come wait, until `release` or `strand`, as often as it was called. Those that came before have their workers."""
        with self._welcoming:
            self._nr_holds += 1

    def release(self) -> None:
        """The counterpart."""
        with self._welcoming:
            self._nr_holds -= 1
        self._region.announce()

    def fail_all(self, code: int) -> list[WorkerProcess]:
        """Every call of the programs that are served gives CUresult `code` from now on. Gives their workers, which are to be ended."""
        workers = self.workers()
        self._fail(workers, code)
        return workers

    def end(self, workers: Sequence[WorkerProcess], code: int) -> None:
        """The same of programs that these serve. They are ended, and waited for."""
        self._fail(workers, code)
        stop_all(workers)

    def _fail(self, workers: Sequence[WorkerProcess], code: int) -> None:
        """Nothing where the region is closed, or about to be: its programs are told so."""
        with self._announcing:
            for index, entry in () if self._is_stopping.is_set() else list(self._entries.items()):
                if entry.worker in workers:
                    self._region.fail(index, code)

    def move(self, home: Home) -> None:
        """Programs to come are served there, and those that are served already have their workers there."""
        for entry in list(self._entries.values()):
            entry.sign = None  # that was of another Gpu
        self._workers = home.workers
        self._format_region = home.format_region
        self._owner = replace(self._owner, vgpu=home.vgpu)
        self._stranded = ""

    def strand(self, why: str) -> None:
        """There is no such place: programs to come are refused, until there is one."""
        self._stranded = why
        self.release()

    def workers(self) -> list[WorkerProcess]:
        """Those that serve this region now."""
        entries = list(self._entries.values())
        return [worker for entry in entries if (worker := entry.worker) is not None]

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            looked_s = time.monotonic()
            try:
                self._region.keep_beating(_HANGS_S)
                self.look(time.monotonic_ns())
            except Exception:
                self._nr_failures += 1
                if self._nr_failures & (self._nr_failures - 1) == 0:  # the 1st, 2nd, 4th, 8th: a guest may be the cause
                    log.exception("%s: looking after the region failed; trying again", self._owner.name)
            if self._region.wait_announce(self.patience_s):
                self._is_stopping.wait(max(0.0, looked_s + _LOOK_PAUSE_S - time.monotonic()))
        self._region.stop_beating()

    @property
    def patience_s(self) -> float:
        """How long it sleeps without an announcement."""
        if self._region.wake is Wake.BELL:
            return _UNRUNG_S
        return _LOOK_S if self._entries or self._must_renew else _QUIET_S

    def look(self, now_ns: int) -> None:
        """One look at the region and at the workers that ended; what the thread does at each announcement."""
        self._take_news()
        if self._region.is_cut:
            self._give_up()
        elif self._must_renew:
            self._renew()
        else:
            self._look_at_clients(now_ns)

    def _give_up(self) -> None:
        """Workers would go on in what is left of the region, and end one by one."""
        for worker in self.workers():
            worker.stop()
        if not self._is_cut:
            self._is_cut = True
            log.error(
                "%s: its memory was cut short by who owns it; none of its programs is served until its machine starts anew",
                self._owner.name,
                extra=about(self._owner.name),
            )

    def _renew(self) -> None:
        self._region.set_host_state(HostState.DOWN)
        workers = self.workers()
        for worker in workers:
            worker.stop()
        if workers:
            return
        self._must_renew = False  # first: a guest may be reset again at any time
        try:
            self._entries.clear()
            self._format_region()
            self._region.set_host_state(HostState.UP)
        except BaseException:
            self._must_renew = True
            raise

    def _look_at_clients(self, now_ns: int) -> None:
        self._paused_now = None
        clients = self._region.clients()
        for index in self._entries.keys() - {client.index for client in clients}:
            self._vanished(index, self._entries[index])
        for client in clients:
            entry = self._entries.get(client.index)
            if entry is None:
                entry = self._entries[client.index] = _Entry(client.beat, now_ns)
            self._attend(client, entry, self._is_silent(client, entry, now_ns))

    def _is_silent(self, client: Client, entry: _Entry, now_ns: int) -> bool:
        if client.beat != entry.beat:
            entry.beat, entry.beat_changed_ns, entry.is_lost = client.beat, now_ns, False
            self._set_patient(entry, False)
            return False
        silent_ns = now_ns - entry.beat_changed_ns
        if silent_ns > _ASK_NS and now_ns - entry.asked_ns > _ASK_NS:
            entry.asked_ns = now_ns
            if self._paused_now is None:
                self._paused_now = self.is_paused()
            if self._paused_now:
                self._set_patient(entry, True)
                entry.beat_changed_ns, silent_ns = now_ns, 0
        return silent_ns > _LOST_NS

    def _set_patient(self, entry: _Entry, is_patient: bool) -> None:
        if entry.is_patient != is_patient and entry.worker is not None:
            entry.worker.set_patient(is_patient)
            entry.is_patient = is_patient

    def _attend(self, client: Client, entry: _Entry, is_silent: bool) -> None:
        if client.state == ClientState.CLOSING or is_silent:
            if client.state != ClientState.CLOSING and not entry.is_lost:
                entry.is_lost = True
                self._log.say(
                    logging.INFO, "client %d (%s) gives no sign of life; taken back", client.index, client.program
                )
            if entry.worker is not None:
                entry.worker.stop()
            elif self._region.free(client.index, client.state):
                del self._entries[client.index]
        elif client.state == ClientState.HELLO and entry.worker is None:
            with self._welcoming:
                if not self._nr_holds and self._has_sign(entry):
                    entry.sign = None
                    self._welcome(client, entry)
        elif client.state == ClientState.READY and entry.worker is None:
            self._region.declare_dead(client.index)

    def _vanished(self, index: int, entry: _Entry) -> None:
        """The guest wrote FREE by itself, which is not its step to make."""
        if entry.worker is not None:
            entry.worker.stop()
        else:
            self._region.reclaim(index)
            del self._entries[index]

    def _has_sign(self, entry: _Entry) -> bool:
        """Whether a client can get its worker now. Else it is asked for again at the next look: others are not to wait with this one."""
        if entry.sign is None:
            entry.sign, entry.sign_asked_ns = self._workers.ask(self._owner.vgpu, self._announce), time.monotonic_ns()
        return entry.sign is None or entry.sign.is_set() or time.monotonic_ns() - entry.sign_asked_ns >= _ASKED_NS

    def _announce(self) -> None:
        """From any thread: there is something to look at."""
        with self._announcing:
            if not self._is_stopping.is_set():
                self._region.announce()

    def _welcome(self, client: Client, entry: _Entry) -> None:
        if self.nr_clients and len(self.workers()) >= self.nr_clients:
            reason = f"the vGPU has {format_programs(self.nr_clients)}, as many as it may"
            self._refuse(client, "clients", CUDA_ERROR_OUT_OF_MEMORY, reason)
            return
        if self._is_banned():
            reason = "kernels that did not end kept the GPU from others too often"
            self._refuse(client, "banned", CUDA_ERROR_NOT_PERMITTED, reason)
            return
        if self._stranded:
            self._refuse(client, "device", CUDA_ERROR_DEVICE_UNAVAILABLE, self._stranded)
            return
        assignment = Assignment(
            region_bytes=self._region.region_bytes,
            table_hash=self._owner.table_hash,
            client=client.index,
            vgpu=self._owner.vgpu,
            region_fd=self._region.fileno(),
            tenant=self._owner.tenant,
            bell_fds=() if self._bells is None else (self._bells.worker_fd(client.index), *self._bells.guest_fds),
            vgpu_name=self._owner.name,
            program=client.program,
        )
        try:
            entry.worker = self._workers.assign(assignment, self.worker_ended)
            entry.is_patient = False
            if self._window is not None:
                self._window.subscribe(entry.worker)
        except ControlPageFullError as error:
            self._refuse(client, "workers", CUDA_ERROR_OUT_OF_MEMORY, str(error))
        except (OSError, FairGVError) as error:
            reason = f"no worker could be started: {error}"
            self._refuse(client, "start", CUDA_ERROR_SYSTEM_NOT_READY, reason)

    def _refuse(self, client: Client, why: str, code: int, reason: str) -> None:
        self.nr_refused[why] += 1
        self._log.say(logging.ERROR, "client %d (%s) is refused: %s", client.index, client.program, reason)
        self._region.refuse(client.index, code)

    def worker_ended(self, worker: WorkerProcess, status: int) -> None:
        """From the reaper's thread, which must not wait for ours."""
        self._on_worker_end(worker)
        self._ended.put((worker, status))
        self._announce()

    def _take_news(self) -> None:
        while not self._late.empty():
            self._end_late(self._late.get())
        while not self._ended.empty():
            worker, status = self._ended.get()
            for index, entry in self._entries.items():
                if entry.worker is worker:
                    entry.worker = None
                    self._worker_is_gone(self._region.client(index), entry, status)

    def _end_late(self, worker: WorkerProcess) -> None:
        for index, entry in self._entries.items():
            if entry.worker is worker:
                self._region.fail(index, CUDA_ERROR_LAUNCH_TIMEOUT)
                worker.stop()

    def _worker_is_gone(self, client: Client, entry: _Entry, status: int) -> None:
        """A client that still says HELLO was never served; another worker would most likely end in the same way. Where the guest is gone it
        was we who ended the worker, and nobody is told."""
        if self._must_renew:
            return
        if client.state == ClientState.HELLO:
            reason = f"its worker ended with status {status} before it could serve"
            self._refuse(client, "start", CUDA_ERROR_SYSTEM_NOT_READY, reason)
        elif self._region.declare_dead(client.index) and not entry.is_lost:
            self.nr_deaths += 1
            how = ": how is not known" if status == UNKNOWN_STATUS else f" with status {status}"
            self._log.say(logging.ERROR, "the worker of client %d ended%s", client.index, how)
        self._region.finish_events(client.index)  # last: what the guest records later it finishes itself
