"""The daemon: its life, from its start to its end. What it serves with is parts.py, what it answers requests.py.

It holds no guest data and opens no device library, so a guest cannot reach it and a driver cannot crash it. When it dies its workers go on
with the clients they have, and what it held in memory goes with the last of them.
"""

import contextlib
import logging
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from backend_host import served
from backend_host.config import Config
from backend_host.devices import Device, check_walls, choose
from backend_host.errors import FairGVError, RefusedError
from backend_host.ipc import Message, Server, Session
from backend_host.parts import Parts
from backend_host.ready import Latch, ReadyPipe
from backend_host.requests import Requests
from backend_host.restart.succession import Succession
from backend_host.service import failing, journal
from backend_host.service.duties import Duties
from backend_host.service.events import Events
from backend_host.service.manager import Manager
from backend_host.service.roles import Roles
from backend_host.state_dir import count_start, make_state_dir
from backend_host.statistics import DaemonStatistics
from ivshmem.region import survive_cuts

if TYPE_CHECKING:
    from backend_host.web.telling import Teller

MAX_DESCRIPTORS = 131_072
METRICS_HEAP_AGE_NS = 15_000_000_000
"""To count the pages of a region of 256 MiB takes 20 us, of 64 GiB 5 ms: too long for each scrape of many."""
_ENDINGS = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("fairgv.daemon")


class Daemon:
    """One daemon over the devices of one library. `run` returns when it was asked to stop."""

    def __init__(self, config: Config, manager: Manager) -> None:
        self._config = config
        self._manager = manager
        self._nr_restarts = 0
        self._stop = Latch()
        self.is_managed = False
        self._undone: contextlib.ExitStack | None = None
        self.leaves = False
        """Whether programs go on, to be served by the next daemon. This process then ends without a word to anybody."""
        self.status = 0
        """Of the process, once `run` has returned."""
        self._roles = Roles.of_host(config)
        self._events = Events(None)
        self._succession = Succession.none()
        self._requests: Requests | None = None

    def run(self, on_ready: ReadyPipe) -> None:
        """Serves until `stop` is asked for or SIGTERM or SIGINT arrives. Raises FairGVError when it cannot start."""
        for number in _ENDINGS:
            signal.signal(number, self._asked_to_end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDINGS)
        _allow_descriptors()
        survive_cuts()
        make_state_dir(self._config.state_dir)
        with contextlib.ExitStack() as stack:
            try:
                self._serve(on_ready, stack)
            except BaseException:
                self.leaves |= self._succession.has_heirs  # programs of the daemon before, which the next one may serve
                raise
            finally:
                if self.leaves:  # nothing is undone: the next daemon goes on with it, as after our sudden death
                    self._undone = stack.pop_all()

    def _asked_to_end(self, number: int, _frame: object) -> None:
        """From a signal's handler. A manager of services says so at a restart, too, and does not say which it is."""
        self.leaves = number == signal.SIGTERM and self.is_managed
        self._stop.set()

    def _serve(self, on_ready: ReadyPipe, stack: contextlib.ExitStack) -> None:
        if self._config.is_private:
            stack.callback(self._remove_what_is_left, on_ready)
        manager = self._manager
        self.is_managed = manager.is_there and not self._config.is_private
        path = self._config.socket_path
        server = Server(path, self._handle, manager.listening(path), self._admit if self._roles.are_on else None)
        stack.callback(server.stop)
        if not self._config.is_private:
            self._events = Events(self._config.state_dir / "events.jsonl")
            self._succession = Succession.of(self._config.state_dir)
        stack.callback(self._succession.end)
        self._nr_restarts = count_start(self._config.state_dir)
        troubles: list[str] = []
        devices, sentence = choose(self._config, troubles, self._succession.devices)
        log.info("%s", sentence)
        check_walls(devices, self._config)
        self._show_or_look(devices, stack)
        self._parts = Parts(self._config, devices, troubles, server, self._succession, self._events, stack)
        requests = Requests(self._parts, self, self._events, self._roles, self._succession)
        self._requests = requests
        notes: list[str] = []
        if self._config.metrics or self._config.metrics_file:
            stack.enter_context(self._metrics(notes.append))
        if self._config.web:
            requests.web_teller = stack.enter_context(self._web(notes.append))
        stack.callback(server.stop)  # first of all: no command may come while its ground is taken away
        if self._stop.is_set():
            raise FairGVError("stopped before it was ready")
        server.start()
        self._begin_duties(manager, stack)
        on_ready.ready("\n".join([sentence, *notes]))
        self._succession.settle()
        self._parts.trials.start()
        manager.tell(READY=1, STATUS=f"serves; {sentence}")
        failing.forget(self._config.state_dir)
        on_ready.when_alone(self.stop)
        self._stop.wait()
        log.info("leaving programs to the next daemon" if self.leaves else "stopping")
        what = "leaves programs to the next daemon" if self.leaves else "ends programs and gives everything back"
        manager.tell(STOPPING=1, STATUS=what)
        if self.leaves:
            self._parts.moves.stop()
            self._parts.sleepers.stop()
            for gpu in self._parts.gpus:
                gpu.coscheduler.rest()  # who is boosted would stay so

    def _remove_what_is_left(self, on_ready: ReadyPipe) -> None:
        """As our starter would, who else looks into the log first."""
        if on_ready.is_alone():
            shutil.rmtree(self._config.state_dir, ignore_errors=True)

    def _begin_duties(self, manager: Manager, stack: contextlib.ExitStack) -> None:
        def reload() -> Message:
            return self._handle(Session(os.geteuid()), {"op": "reload"})

        duties = Duties(manager, lambda: [gpu.keeper.nr_looks for gpu in self._parts.gpus], reload)
        duties.start()
        stack.callback(duties.stop)
        if not sys.stderr.isatty():  # a terminal that goes away ends what it shows
            signal.signal(signal.SIGHUP, lambda *_: duties.ask_to_reload())
            stack.callback(signal.signal, signal.SIGHUP, signal.SIG_IGN)

    def _show_or_look(self, devices: Sequence[Device], stack: contextlib.ExitStack) -> None:
        """A daemon that serves whoever comes is known to all of this host; a private one serves no device of such a one unasked."""
        if self._config.is_private:
            if not self._config.goes_around:
                served.check_free(devices)
            return
        for device in devices:
            for pid in served.servers(device):
                log.warning("process %d is a daemon that serves %s, too: neither knows of the other", pid, device.name)
        stack.enter_context(served.announced(devices))

    def _metrics(self, note: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
        from backend_host.metrics.serving import serving  # noqa: PLC0415 - with a library that only who wants metrics needs

        return serving(self._config, lambda: self.statistics(METRICS_HEAP_AGE_NS), note)

    def _web(self, note: Callable[[str], None]) -> contextlib.AbstractContextManager["Teller"]:
        from backend_host.web.serving import serving  # noqa: PLC0415 - with libraries that only who wants the page needs

        return serving(self._config, lambda: self.statistics(METRICS_HEAP_AGE_NS), self._parts.glance, note)

    def statistics(self, heap_age_ns: int = 0) -> DaemonStatistics:
        """What this daemon and everything in it did so far. `heap_age_ns`: how old what is told of heaps may be."""
        return self._parts.statistics(self._nr_restarts, heap_age_ns)

    def stop(self) -> None:
        """Ends it and what it serves. From any thread."""
        self._stop.set()

    def leave(self, status: int) -> None:
        """Ends it with this status, and leaves programs to the next daemon."""
        self.leaves, self.status = True, status
        self._stop.set()

    def _handle(self, session: Session, request: Message) -> Message:
        if self._requests is None:  # a connection of the daemon before
            raise RefusedError("this daemon is about to begin: ask again")
        return self._requests.answer(session, request)

    def _admit(self, session: Session) -> None:
        try:
            self._roles.check_member(session)
        except RefusedError as error:
            self._events.refused(session.uid, str(error))
            raise
        session.is_trusted |= not self._roles.is_limited(session)


def serve(config: Config, ready_fd: int | None) -> int:
    """The daemon's process: exit status 0 after a stop, that of failing.py when it could not start."""
    logging.basicConfig(level=logging.INFO, handlers=[journal.handler(os.environ)])
    pipe = ReadyPipe(ready_fd)
    manager = Manager.take(os.environ)
    daemon = Daemon(config, manager)
    try:
        daemon.run(pipe)
    except FairGVError as error:
        if ready_fd is not None:
            log.error("%s", error)
        pipe.failed(error)
        daemon.status = failing.exit_status(error, manager, config.state_dir)
    except Exception as error:
        log.exception("the daemon failed")
        daemon.status = failing.exit_status(error, manager, config.state_dir)
    finally:
        manager.close()
    if daemon.leaves:
        logging.shutdown()
        os._exit(daemon.status)
    return daemon.status


def main() -> int:
    """What `fairgv-host start` runs in the background: `python -m backend_host.daemon READY_FD CONFIG_JSON`."""
    ready_fd = int(sys.argv[1])
    os.set_inheritable(ready_fd, False)
    os.closerange(3, ready_fd)  # what the command had inherited would stay open as long as we live
    os.closerange(ready_fd + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return serve(Config.from_json(sys.argv[2]), ready_fd)


def _allow_descriptors() -> None:
    """Two for each worker, two for each command, and as many for shelves (shelf.py): the usual 1024 would be few."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


if __name__ == "__main__":
    sys.exit(main())
