"""One space of a Gpu: what its workers share, kept in order by a thread of its own.

The thread starts what has its processes together, then a process of ours among them, which makes the page and is asked for signs of life:
before each client gets a worker, and when a worker has ended in disorder. Where the device does not serve that process any more it serves none
of the space's, since MPS's clients share faults: then the space starts anew. Whose fault it was nobody can tell.

Programs that were served keep their errors: their workers end with them. vGPUs outside notice nothing.

Wrong when: the device is taken by others for longer than a sign of life may take (own_client.PROBE_S). Under MPS only other Gpu work of the
host could, and that is shared by time slices.
"""

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from backend_host import channels
from backend_host.device.control import ControlPageFullError
from backend_host.device.readings import WorkerReading, WorkerState
from backend_host.errors import FairGVError
from backend_host.pools import Pool
from backend_host.space.own_client import GONE, SILENT, ClientError, OwnClient
from backend_host.space.together import LOW, Together
from backend_host.worker_process import WorkerProcess
from backend_host.worker_start import WorkerStart
from backend_host.workers import Workers

_ATTEMPTS = 3
_BETWEEN_S = 1.0
_END_S = 5.0
_BEFORE_S = 30.0
"""So long a space waits for the end of one of its name. With two at a time the first one's end would end the other's processes."""
_BY_ITSELF_S = 0.3
"""A worker whose client has gone ends by itself in so long, which costs its neighbours less."""
_TERMINATED_S = 1.0
"""A process whose work was ended has so long to end by itself."""
STICKY = frozenset({214, 220, 700, 702, *range(709, 711), *range(714, 722), *range(805, 811)})
"""CUresults after which a context is of no use, or the connection to MPS: after one, the space is asked for a sign of life."""

log = logging.getLogger("fairgv.space")


@dataclass
class _Look:
    """One that somebody asked for."""

    is_over: threading.Event = field(default_factory=threading.Event)
    told: Callable[[], None] = lambda: None
    """Is called then."""
    makes_room: bool = False
    """For a client's worker: it has those end that wait, where there are too many."""
    clears: bool = False
    """It has the split word made zero, and looks at nothing."""


class Space:
    """A space with members. `start` once, `let_go` or `stop` in the end; the rest from any thread."""

    def __init__(
        self,
        name: str,
        number: int,
        together: Together,
        start: WorkerStart,
        workers: Workers,
        nr_warm: int,
        keep: Callable[[int], None],
        gave_up: Callable[[], None] = lambda: None,
        page: int = -1,
        after: threading.Event | None = None,
        ended: Callable[["Space"], None] = lambda _: None,
        asks: Callable[[int], bool] = lambda _: True,
        cleared: Callable[[], None] = lambda: None,
    ) -> None:
        """`number`: in the control page, 0: it has no place there. `start`: as its workers begin, but for what has them together. `keep`: is
        given each new page. `gave_up`: is called when its members take turns from now on. `page`: one that workers have already, whose
        descriptor it takes over. `after`: the end of another of this name, which it waits for. `ended`: is called when nothing of it
        is left. `asks`: whether workers of the vGPU with this number ask for room by the split word. `cleared`: is called when that has been
        made zero."""
        self.name, self.number, self.together = name, number, together
        start = _start_of(start, together)
        low = replace(start, environment={**start.environment, **LOW})
        self.pools = (Pool(start, nr_warm, self), Pool(low, nr_warm, self))
        """Its workers, and those that stand behind."""
        self.nr_faults = 0
        """How often it started anew."""
        self.multiprocessors = 0
        """Of the device, once it has begun."""
        self.why_not = ""
        """Why its members take turns after all; empty: they do not."""
        self.is_over = threading.Event()
        """Nothing of it is left, nor of the one before."""
        self._start, self._workers, self._keep, self._gave_up = start, workers, keep, gave_up
        self._after, self._ended, self._asks, self._cleared = after, ended, asks, cleared
        self._page, self._page_lock = page, threading.Lock()
        self._client: OwnClient | None = None
        self._asked: queue.SimpleQueue[_Look | None] = queue.SimpleQueue()
        """None: to end."""
        self._is_open = False
        self._is_faulted = False
        """Its programs share a fault, and it has not begun anew."""
        self._is_stopping = False
        self._asked_about: set[WorkerProcess] = set()
        """Their work is being ended by what has them together."""
        self._thread = threading.Thread(target=self._run, name=f"space-{name}", daemon=True)

    def start(self) -> None:
        """Begins; returns at once."""
        self._thread.start()

    def let_go(self) -> None:
        """It has no members any more: what ends from now on has no neighbours, and is killed. Its thread ends what it started; returns at once,
        as that may take long: MPS quits in a second, and one that hangs does not."""
        self._is_stopping = True
        self._asked.put(None)

    def stop(self) -> None:
        """As `let_go`, and waits for the end."""
        self.let_go()
        self._thread.join()

    @property
    def is_open(self) -> bool:
        """See Shared."""
        return self._is_open

    @property
    def most(self) -> int:
        """See Shared: all but the daemon's own process."""
        return max(0, self.together.most - 1)

    def ask(self, told: Callable[[], None]) -> threading.Event:
        """See Shared."""
        look = _Look(told=told, makes_room=True)
        self._asked.put(look)
        if self._is_stopping:
            look.is_over.set()  # it may have come behind the last one
        return look.is_over

    def check_room(self) -> None:
        """See Shared."""
        most = self.most
        if most and self._workers.nr_of(self.pools) - sum(len(pool.warm) for pool in self.pools) >= most:
            raise ControlPageFullError(
                f"the space {self.name} has {most} programs, and MPS serves {most + 1} clients, one of them the daemon's: end one, or give "
                "a vGPU another space"
            )

    @contextlib.contextmanager
    def page(self) -> Iterator[int]:
        """See Shared."""
        with self._page_lock:
            page = os.dup(self._page)
        try:
            yield page
        finally:
            os.close(page)

    def end(self, worker: WorkerProcess) -> None:
        """See Shared. After a fault nothing of its runs any more, and MPS gives no answer about such clients."""
        reading = worker.reading()
        is_dead = self._is_faulted or (reading is not None and reading.last_error in STICKY)
        if self.together.shares_faults and not (is_dead or self._is_stopping):
            self._asked_about.add(worker)
            threading.Thread(target=self._end, args=(worker,), name="end", daemon=True).start()
        else:
            worker.kill()

    def _end(self, worker: WorkerProcess) -> None:
        try:
            if worker.is_ended.wait(_BY_ITSELF_S):
                return
            if not self._is_stopping and self.together.terminate(worker.process.pid):
                worker.is_ended.wait(_TERMINATED_S)
        except FairGVError as error:
            if not worker.is_ended.is_set():
                log.info("worker %d of the space %s is killed: %s", worker.process.pid, self.name, error)
        finally:
            self._asked_about.discard(worker)
        worker.kill()

    def ended(self, status: int, last: WorkerReading | None) -> None:
        """See Shared. One that ends in order has given back the room that it asked for. What is given back in another's place is room that
        rounds of a second program of its vGPU may have, until that asks again."""
        if not status and (last is None or last.last_error not in STICKY):
            return
        self.look()
        if last is not None and last.state is not WorkerState.WARM and self._asks(last.vgpu):
            self.give_room_back()

    def give_room_back(self) -> None:
        """Who asked for it cannot. Returns at once."""
        self._asked.put(_Look(clears=True))

    def look(self) -> None:
        """Something may be wrong: asks for a sign of life. Returns at once."""
        self._asked.put(_Look())

    def _run(self) -> None:
        try:
            if self._after is None or self._after.wait(_BEFORE_S):
                self._begin()
            else:
                self._take_turns("what ran in a space of this name before does not end")
            self._serve()
        finally:
            if self._after is not None:
                self._after.wait()
            self._ended(self)
            self.is_over.set()

    def _serve(self) -> None:
        """Until its end, and that."""
        while (look := self._asked.get()) is not None:
            try:
                if look.clears:
                    self._clear()
                else:
                    self._check()
                if look.makes_room:
                    self._make_room()
            except Exception:
                log.exception("a look at the space %s failed", self.name)
            look.is_over.set()
            try:
                look.told()
            except Exception:
                log.exception("who waits for the space %s is not told", self.name)
        self._is_open = False
        for pool in self.pools:
            self._workers.dismiss(pool)
        # Who is told to quit answers nobody: first those questions end that are on their way.
        _wait_until(lambda: not (self._workers.nr_of(self.pools) or self._asked_about), _END_S)
        self._end_client()
        with self._page_lock:
            if self._page >= 0:
                os.close(self._page)
            self._page = -1
        self.together.quit()

    def _check(self) -> None:
        if self._client is None:
            return
        error = self._client.probe()
        if error == 0 or (error == SILENT and not self.together.shares_faults):
            return  # softgpu is not preempted: a kernel outside may keep the sign back, and no fault does
        what = {GONE: "its process has ended", SILENT: "no sign of life"}.get(error, f"CUDA error {error}")
        self.nr_faults += 1
        blame = "; MPS does not tell whose fault that was" if self.together.shares_faults else ""
        log.error("the space %s starts anew: %s%s", self.name, what, blame)
        self._is_open = False
        self._is_faulted = self.together.shares_faults and error != GONE
        for pool in self.pools:
            self._workers.dismiss(pool)
        self._begin(keeps_page=error == GONE)

    def _make_room(self) -> None:
        """Workers that wait are clients of MPS, too: near its limit they end, so that one of whichever kind can be started."""

        def is_full() -> bool:
            return self._workers.nr_of(self.pools) >= self.most

        if self.most and is_full() and any(pool.warm for pool in self.pools):
            for pool in self.pools:
                self._workers.dismiss(pool)
            _wait_until(lambda: not is_full(), _END_S)

    def _clear(self) -> None:
        """Says so afterwards: a round that asks meanwhile then asks once too often, and none believes in room that is not there."""
        if self._client is not None:
            try:
                self._client.clear()
                self._cleared()
            except ClientError as error:
                log.warning("the space %s: room that was asked for may not be given back: %s", self.name, error)

    def _begin(self, *, keeps_page: bool = True) -> None:
        reason = ""
        for attempt in range(_ATTEMPTS):
            self._end_client()
            try:
                if attempt:
                    self.together.quit()
                self.together.prepare()
                self._start.root.read(*self.together.reads)
                self.together.ensure()
                self._begin_client(keeps_page=keeps_page and not attempt)
                self.multiprocessors = self._client.multiprocessors if self._client is not None else 0
                self.why_not, self._is_open, self._is_faulted = "", True, False
                for pool in self.pools:
                    self._workers.dismiss(pool)  # there is none: it has others made
                return
            except (FairGVError, OSError) as error:
                reason = str(error)
                log.warning("the space %s does not begin: %s", self.name, reason)
            if self._is_stopping or threading.Event().wait(_BETWEEN_S):
                return
        self._end_client()
        self._take_turns(reason)

    def _take_turns(self, reason: str) -> None:
        self.why_not = reason
        log.error("the vGPUs of the space %s take turns: %s", self.name, reason)
        self._gave_up()

    def _begin_client(self, *, keeps_page: bool) -> None:
        self._client = OwnClient(self._start)
        if keeps_page and self._page >= 0:
            try:
                self._client.take(self._page)
                self.give_room_back()  # who asked for it may have died while nobody saw to that
                return
            except ClientError as error:
                log.warning("the space %s gets another page: %s", self.name, error)
        page = self._client.make()
        with self._page_lock:
            before, self._page = self._page, page
        if before >= 0:
            os.close(before)
        self._keep(page)

    def _end_client(self) -> None:
        if self._client is not None:
            self._client.end()
            self._client = None


def _start_of(start: WorkerStart, together: Together) -> WorkerStart:
    """How workers of a space begin: as its user, and on its Gpu alone. Their work is never withdrawn, as the kernel's driver lets nobody hold a
    client's channels."""
    environment = {**start.environment, **together.environment}
    if "LD_PRELOAD" in environment:
        preloaded = environment["LD_PRELOAD"].split(":")
        environment["LD_PRELOAD"] = ":".join(each for each in preloaded if each != str(channels.LIBRARY))
    ordinal = 0 if "CUDA_VISIBLE_DEVICES" in together.environment else start.ordinal
    return replace(start, environment=environment, root=start.root.copy(), ordinal=ordinal, sees="", kept_image_bytes=0)


def _wait_until(is_so: Callable[[], bool], limit_s: float) -> None:
    """Until it is so, or the time is over."""
    pause = threading.Event()
    for _ in range(int(limit_s / 0.02)):
        if is_so():
            return
        pause.wait(0.02)
