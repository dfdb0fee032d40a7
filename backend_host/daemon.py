"""The daemon: puts Gpus, vGPUs and domains together, and answers the commands.

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
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from backend_host import hand_overs, served
from backend_host.config import BY_DEVICE, Config, check_region_bytes, read_again, region_bytes_of_commands
from backend_host.device.gpu import Gpu, find, serving
from backend_host.devices import Device, check_walls, choose
from backend_host.domains import Domains
from backend_host.entitlement import Changes, Entitlement, EntitlementError, read_changes
from backend_host.errors import FairGVError, RefusedError
from backend_host.guest_teller import GuestTeller
from backend_host.ipc import Message, Server, Session
from backend_host.listing import UNKNOWN, listing
from backend_host.machines import Machines
from backend_host.ready import Latch, ReadyPipe
from backend_host.refusals import check_join, check_memory
from backend_host.restart.old import OldPrograms
from backend_host.restart.succession import RESTART_STATUS, Succession
from backend_host.service import journal
from backend_host.service.duties import Duties
from backend_host.service.events import Events
from backend_host.service.kept import FOLDER, KeptVGpus, read_kept
from backend_host.service.manager import Manager
from backend_host.service.reload import Reloading
from backend_host.service.roles import Roles
from backend_host.service.telling import told
from backend_host.service.user_limits import within_limits
from backend_host.state_dir import count_start, make_state_dir
from backend_host.statistics import DaemonStatistics
from backend_host.vgpu import VGpu
from backend_host.vgpus import VGpuRegistry
from backend_host.vm.domain import Sight
from backend_host.vm.doorbell import Doorbells, server_identity
from backend_host.vm.errors import VmError
from backend_host.walls import cgroups
from backend_host.walls.check import walls_of_host
from backend_host.worker._worker import lib
from ivshmem.region import survive_cuts

if TYPE_CHECKING:
    from backend_host.web.telling import Teller

MAX_DESCRIPTORS = 16_384
METRICS_HEAP_AGE_NS = 15_000_000_000
"""To count the pages of a region of 256 MiB takes 20 us, of 64 GiB 5 ms: too long for each scrape of many."""
_ENDINGS = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("fairgv.daemon")


class Daemon:
    """One daemon over the devices of one library. `run` returns when it was asked to stop."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._started_ns = time.monotonic_ns()
        self._nr_restarts = 0
        self._web_teller: Teller | None = None
        self._stop = Latch()
        self._is_managed = False
        self._undone: contextlib.ExitStack | None = None
        self.leaves = False
        """Whether programs go on, to be served by the next daemon. This process then ends without a word to anybody."""
        self.status = 0
        """Of the process, once `run` has returned."""
        self._roles = Roles.of_host(config)
        self._events = Events(None)
        self._succession = Succession.none()

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
        self.leaves = number == signal.SIGTERM and self._is_managed
        self._stop.set()

    def _serve(self, on_ready: ReadyPipe, stack: contextlib.ExitStack) -> None:
        if self._config.is_private:
            stack.callback(shutil.rmtree, self._config.state_dir, ignore_errors=True)
        manager = stack.enter_context(contextlib.closing(Manager.take(os.environ)))
        self._is_managed = manager.is_there and not self._config.is_private
        path = self._config.socket_path
        server = Server(path, self._handle, manager.listening(path), self._admit if self._roles.are_on else None)
        stack.callback(server.stop)
        if not self._config.is_private:
            self._events = Events(self._config.state_dir / "events.jsonl")
            self._succession = Succession.of(self._config.state_dir)
        stack.callback(self._succession.end)
        self._nr_restarts = count_start(self._config.state_dir)
        devices, sentence = choose(self._config)
        log.info("%s", sentence)
        check_walls(devices, self._config)
        self._show_or_look(devices, stack)
        self._start_parts(devices, server, stack)
        if self._config.metrics or self._config.metrics_file:
            stack.enter_context(self._metrics())
        if self._config.web:
            self._web_teller = stack.enter_context(self._web())
        stack.callback(server.stop)  # first of all: no command may come while its ground is taken away
        if self._stop.is_set():
            raise FairGVError("stopped before it was ready")
        server.start()
        self._begin_duties(manager, stack)
        on_ready.ready(sentence)
        self._succession.settle()
        manager.tell(READY=1, STATUS=f"serves; {sentence}")
        if self._config.is_private:
            on_ready.when_gone(self._stop.set)
        self._stop.wait()
        log.info("leaving programs to the next daemon" if self.leaves else "stopping")
        what = "leaves programs to the next daemon" if self.leaves else "ends programs and gives everything back"
        manager.tell(STOPPING=1, STATUS=what)
        if self.leaves:
            for gpu in self._gpus:
                gpu.coscheduler.rest()  # who is boosted would stay so

    def _begin_duties(self, manager: Manager, stack: contextlib.ExitStack) -> None:
        def reload() -> Message:
            return self._handle(Session(os.geteuid()), {"op": "reload"})

        duties = Duties(manager, lambda: [gpu.keeper.nr_looks for gpu in self._gpus], reload)
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

    def _start_parts(self, devices: Sequence[Device], server: Server, stack: contextlib.ExitStack) -> None:
        config, succession = self._config, self._succession
        walls = walls_of_host(config.walls, is_lenient=config.is_private)
        tree = cgroups.find() if "cgroup" in walls else None
        if tree is not None:
            tree.sweep()
        self._gpus = [
            stack.enter_context(
                serving(number, device, config, walls, tree, succession.store, succession.gpu(number, device))
            )
            for number, device in enumerate(devices)
        ]
        self._check(config)  # a Gpu that is not there stops the start, and not each attach
        doorbells = Doorbells(config.state_dir / "doorbells", server_identity(config.server_user))
        stack.callback(doorbells.close)
        self._vgpus = VGpuRegistry(self._gpus, lib.fgw_table_hash(), config.limits, succession.store)
        stack.callback(self._vgpus.remove_all)
        succession.adopt(self._gpus, self._vgpus, doorbells, self._events)
        succession.adopt_sessions(self._vgpus, server, {"guest_library": config.guest_library})
        for gpu in self._gpus:
            stack.enter_context(gpu.watched(self._watchdog_s(gpu), self._vgpus.time_out, self._vgpus.expel))
        adopts_all = config.adopt == "all" and not config.is_private
        self._domains = Domains(
            self._vgpus,
            config.libvirt_uri,
            config.state_dir,
            adopts_all,
            doorbells,
            config.vgpu,
            config.pinned_bytes,
        )
        stack.callback(self._domains.stop)
        pattern = "" if config.is_private else config.shm_files
        self._machines = Machines(
            self._vgpus, lib.fgw_table_hash(), config.state_dir, self._events, pattern, config.vgpu
        )
        stack.callback(self._machines.stop)
        kept = KeptVGpus(self._vgpus, self._machines)
        wanted = read_kept(config)
        teller = GuestTeller(self._vgpus.tell_guests)
        stack.callback(teller.stop)
        teller.start()
        self._reloading = Reloading(config, kept, self._check, self._serve_by)

        def begin() -> None:
            succession.forget_foreign()
            self._domains.start()
            kept.swap(wanted)
            self._machines.start()
            self._vgpus.release_unclaimed("session")

        self._old = OldPrograms(succession.foreign, begin)
        stack.callback(self._old.stop)
        stack.callback(self._old.end)
        self._vgpus.check_open = self._old.check
        self._old.start()

    def _check(self, config: Config) -> None:
        if config.vgpu.gpu:
            find(self._gpus, config.vgpu.gpu)

    def _serve_by(self, config: Config) -> None:
        """From now on. What is asked meanwhile goes by the one or by the other."""
        if config.vgpu != self._config.vgpu:
            self._domains.follow(config.vgpu)
            self._machines.follow(config.vgpu)
        self._config = config
        self._vgpus.set_limits(config.limits)

    def _metrics(self) -> contextlib.AbstractContextManager[None]:
        from backend_host.metrics.serving import serving  # noqa: PLC0415 - with a library that only who wants metrics needs

        return serving(self._config, lambda: self.statistics(METRICS_HEAP_AGE_NS))

    def _web(self) -> contextlib.AbstractContextManager["Teller"]:
        from backend_host.web.serving import serving  # noqa: PLC0415 - with libraries that only who wants the page needs

        return serving(self._config, lambda: self.statistics(METRICS_HEAP_AGE_NS), self._vgpus.glance)

    def _watchdog_s(self, gpu: Gpu) -> int:
        return gpu.device.watchdog_s if self._config.watchdog_s == BY_DEVICE else self._config.watchdog_s

    def _handle(self, session: Session, request: Message) -> Message:
        operations = {
            "status": self._status,
            "list": self._list,
            "grants": self._grants,
            "open": self._open,
            "stop": self._stop_daemon,
            "restart": self._restart,
            "attach": self._attach,
            "detach": self._detach,
            "set": self._set,
            "unban": self._unban,
            "reload": self._reload,
            "events": self._tell_events,
            "report": self._report,
        }
        operation = operations.get(request["op"])
        if operation is None:
            raise RefusedError(f"this daemon knows no request {request['op']!r}; it may be older than the command")
        with told(self._events, self._roles, session, request, self._find) as answer:
            try:
                answer.update(operation(session, request))
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise RefusedError(f"a malformed request {request['op']!r}: {error}") from error
        return answer

    def _find(self, name: str) -> VGpu | None:
        return self._vgpus.find(name)

    def _admit(self, session: Session) -> None:
        try:
            self._roles.check_member(session)
        except RefusedError as error:
            self._events.refused(session.uid, str(error))
            raise

    def _status(self, session: Session, request: Message) -> Message:
        return asdict(self.statistics())

    def _list(self, session: Session, request: Message) -> Message:
        sights, trouble = self._sights()
        gpus, vgpus = self._vgpus.snapshot()
        entries = listing(
            vgpus,
            gpus,
            sights,
            banned=self._vgpus.banned(),
            troubles=self._domains.troubles(),
            with_all=bool(request.get("all", False)),
            machines=self._machines.sights(),
            cut=self._vgpus.cut_short(),
        )
        is_missed = (
            request.get("all", False) or self._domains.has_unseen or any(each.state == UNKNOWN for each in entries)
        )
        return {"entries": [asdict(entry) for entry in entries], "trouble": trouble if is_missed else ""}

    def _sights(self) -> tuple[list[Sight], str]:
        """The domains of this host, or none and why they are not known."""
        try:
            return self._domains.sights(), ""
        except VmError as error:
            return [], str(error)

    def statistics(self, heap_age_ns: int = 0) -> DaemonStatistics:
        """What this daemon and everything in it did so far. `heap_age_ns`: how old what is told of heaps may be."""
        gpus, vgpus = self._vgpus.snapshot(heap_age_ns)
        first, *_ = gpus
        return DaemonStatistics(
            pid=os.getpid(),
            uptime_ns=time.monotonic_ns() - self._started_ns,
            policy=first.policy,
            slice_ns=first.slice_ns,
            device=self._gpus[0].device_statistics(),
            gpus=gpus,
            vgpus=vgpus,
            debts=self._vgpus.debts.statistics(sum(gpu.used_ns for gpu in gpus)),
            nr_restarts=self._nr_restarts,
            domain_uuids=self._domains.uuids(),
            waits_for=self._old.sentence(),
        )

    def _grants(self, session: Session, request: Message) -> Message:
        name = str(request.get("gpu") or "")
        if not name and len(self._gpus) > 1:
            raise RefusedError(
                f"this host has {len(self._gpus)} Gpus; name one with --gpu, as fairgv-host devices has it"
            )
        gpu = find(self._gpus, name or "0")
        return hand_overs.answer(gpu.page, self._vgpus.names(gpu), int(request.get("after", 0)))

    def _open(self, session: Session, request: Message) -> Message:
        said, said_bytes = _changes(request), int(request.get("region_bytes") or 0)
        region_bytes = said_bytes or region_bytes_of_commands(self._config)
        check_region_bytes(region_bytes)
        name = None if request.get("name") is None else str(request["name"])
        vgpu = self._vgpus.open_session(
            name,
            self._config.vgpu.changed(said),
            region_bytes,
            session.uid,
            lambda vgpu: check_join(vgpu, said, said_bytes, self._gpus),
            self._limited(session.uid, name, said) if self._roles.is_limited(session) else None,
        )
        session.at_end(lambda: self._vgpus.close_session(vgpu))
        self._succession.keep_session(session, vgpu.name)
        session.send_fd = vgpu.region.fileno()
        return {"name": vgpu.name, "guest_library": self._config.guest_library}

    def _limited(self, uid: int, name: str | None, said: Changes) -> Callable[[Sequence[Entitlement]], Entitlement]:
        config = self._config
        return lambda others: within_limits(uid, name, said, config.vgpu, others, config.users)

    def _reload(self, session: Session, request: Message) -> Message:
        changes = self._reloading.run()
        return {
            "text": "\n".join(map(str, changes)) or "nothing has changed",
            "changes": [asdict(change) for change in changes],
        }

    def _tell_events(self, session: Session, request: Message) -> Message:
        return {"events": self._events.after(int(request.get("after", 0)))}

    def _stop_daemon(self, session: Session, request: Message) -> Message:
        session.after_answer = self._stop.set
        return {"pid": os.getpid()}

    def _restart(self, session: Session, request: Message) -> Message:
        """Whoever asks starts the next daemon, unless a manager of services does."""
        if self._config.is_private:
            raise RefusedError("a private daemon ends with its program")
        if not self._is_managed and session.uid != os.geteuid():
            raise RefusedError("only the daemon's own user may start it anew, as no manager of services does")
        config = read_again(self._config) if self._config.file else self._config

        def leave() -> None:
            self.leaves = True
            self.status = RESTART_STATUS if self._is_managed else 0
            self._stop.set()

        session.after_answer = leave
        return {
            "pid": os.getpid(),
            "is_managed": self._is_managed,
            "config": config.to_json(),
            "environment": {} if self._is_managed else dict(os.environ),
            "text": "the daemon restarts; programs go on",
        }

    def _attach(self, session: Session, request: Message) -> Message:
        if "shm" in request:
            path = Path(str(request["shm"]))
            return self._machines.attach(str(request["name"]), path, self._entitlement(request))
        region_bytes = int(request.get("region_bytes") or self._config.region_bytes)
        check_region_bytes(region_bytes)
        has_doorbell = bool(request.get("has_doorbell", False))
        domain = str(request["domain"])
        self._entitlement(request)  # what is wrong with the options themselves comes first
        return self._domains.attach(domain, _changes(request), region_bytes, has_doorbell)

    def _detach(self, session: Session, request: Message) -> Message:
        name = str(request["domain"])
        vgpu = self._vgpus.find(name)
        if vgpu is not None and vgpu.kind == "session":
            if vgpu.is_kept:
                raise RefusedError(f"{name} is kept by a file of {FOLDER}: take it away there, then fairgv-host reload")
            raise RefusedError(f"{name} is a vGPU of fairgv-run, and goes with its last program")
        if self._machines.knows(name):
            return self._machines.detach(name)
        with self._nobody_blamed(name):
            return self._domains.detach(name)

    @contextlib.contextmanager
    def _nobody_blamed(self, name: str) -> Iterator[None]:
        """What libvirt says of a domain. Where no vGPU has that name, that is said first: libvirt may be away, or not be there at all."""
        try:
            yield
        except VmError as error:
            if self._vgpus.find(name) is not None:
                raise
            raise RefusedError(
                f"there is no vGPU called {name}; see: fairgv-host list (looking for a domain of that name: {error})"
            ) from error

    def _set(self, session: Session, request: Message) -> Message:
        name = str(request["name"])
        changes = _changes({key: value for key, value in request.items() if value is not None}, is_new=False)
        vgpu = self._vgpus.find(name)
        if vgpu is not None:
            check_memory(vgpu, changes)
        if self._machines.knows(name):
            return self._machines.change(name, changes)
        if vgpu is None or vgpu.kind != "session":
            with self._nobody_blamed(name):
                return self._domains.change(name, changes)
        self._vgpus.change(name, changes)
        return {
            "text": f"{name} is changed until {'its file is read again' if vgpu.is_kept else 'its last program ends'}"
        }

    def _unban(self, session: Session, request: Message) -> Message:
        return {"text": f"{self._vgpus.unban(str(request['name']))} is forgiven"}

    def _report(self, session: Session, request: Message) -> Message:
        if self._web_teller is None:
            raise RefusedError(
                "this daemon keeps no last hour: it does where it serves the page, as with: fairgv-host start --web 127.0.0.1:9401"
            )
        return self._web_teller.document()

    def _entitlement(self, request: Message) -> Entitlement:
        """What a new vGPU is to have. What is not said is as configured."""
        return self._config.vgpu.changed(_changes(request))


def serve(config: Config, ready_fd: int | None) -> int:
    """The daemon's process: exit status 0 after a stop, 1 when it could not start."""
    logging.basicConfig(level=logging.INFO, handlers=[journal.handler(os.environ)])
    pipe = ReadyPipe(ready_fd)
    daemon = Daemon(config)
    try:
        daemon.run(pipe)
    except FairGVError as error:
        if ready_fd is not None:
            log.error("%s", error)
        pipe.failed(error)
        daemon.status = 1
    except Exception:
        if not daemon.leaves:
            raise
        log.exception("the daemon failed")
        daemon.status = 1
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
    """Two for each worker, two for each command: the usual 1024 would be few."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


def _changes(request: Message, *, is_new: bool = True) -> Changes:
    try:
        return read_changes(request, as_options=True, is_new=is_new)
    except EntitlementError as error:
        raise RefusedError(f"a malformed request {request['op']!r}: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
