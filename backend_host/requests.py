"""What a daemon answers: a method for each request of a command."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from backend_host import hand_overs, suspension
from backend_host.config import check_region_bytes, read_again, region_bytes_of_commands
from backend_host.device.gpu import find
from backend_host.entitlement import Changes, Entitlement, EntitlementError, read_changes
from backend_host.errors import RefusedError
from backend_host.ipc import Message, Session
from backend_host.listing import UNKNOWN, listing
from backend_host.move.answers import MoveAnswers
from backend_host.parts import Parts
from backend_host.refusals import check_join, check_memory
from backend_host.restart.succession import RESTART_STATUS, Succession
from backend_host.service.events import UNCHANGED, Events, change_answer
from backend_host.service.kept import FOLDER
from backend_host.service.roles import Roles
from backend_host.service.telling import told
from backend_host.service.user_limits import within_limits
from backend_host.statistics import DaemonStatistics
from backend_host.vgpu import VGpu
from backend_host.vm.domain import Sight
from backend_host.vm.errors import VmError

if TYPE_CHECKING:
    from backend_host.web.telling import Teller


class Life(Protocol):
    """The process that answers, as far as requests end it."""

    is_managed: bool
    """Whether a manager of services starts it again."""

    def stop(self) -> None:
        """Ends it and what it serves."""

    def leave(self, status: int) -> None:
        """Ends it with this status, and leaves programs to the next daemon."""

    def statistics(self) -> DaemonStatistics:
        """What it and everything in it did so far."""


class Requests:
    """Those to one daemon. Thread-safe, as its parts are."""

    def __init__(self, parts: Parts, life: Life, events: Events, roles: Roles, succession: Succession) -> None:
        self._parts, self._life = parts, life
        self._events, self._roles, self._succession = events, roles, succession
        self._moves = MoveAnswers(parts)
        self.web_teller: Teller | None = None
        """Of the page, where it is served."""

    def answer(self, session: Session, request: Message) -> Message:
        """To one request. Raises FairGVError, whose text is for who asked."""
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
            "suspend": self._suspend,
            "resume": self._resume,
            "suspension": self._suspension,
            "reload": self._reload,
            "events": self._tell_events,
            "report": self._report,
            **self._moves.operations(),
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
        return self._parts.vgpus.find(name)

    def _status(self, session: Session, request: Message) -> Message:
        return asdict(self._life.statistics())

    def _list(self, session: Session, request: Message) -> Message:
        sights, trouble = self._sights()
        gpus, vgpus = self._parts.vgpus.snapshot()
        entries = listing(
            vgpus,
            gpus,
            sights,
            banned=self._parts.vgpus.banned(),
            troubles=self._parts.domains.troubles(),
            with_all=bool(request.get("all", False)),
            machines=self._parts.machines.sights(),
            cut=self._parts.vgpus.cut_short(),
            stranded=self._parts.vgpus.stranded(),
            waiting=self._parts.kept.waiting,
        )
        is_missed = (
            request.get("all", False)
            or self._parts.domains.has_unseen
            or any(each.state == UNKNOWN for each in entries)
        )
        return {"entries": [asdict(entry) for entry in entries], "trouble": trouble if is_missed else ""}

    def _sights(self) -> tuple[list[Sight], str]:
        """The domains of this host, or none and why they are not known."""
        try:
            return self._parts.domains.sights(), ""
        except VmError as error:
            return [], str(error)

    def _grants(self, session: Session, request: Message) -> Message:
        name = str(request.get("gpu") or "")
        if not name and len(self._parts.gpus) > 1:
            raise RefusedError(
                f"this host has {len(self._parts.gpus)} Gpus; name one with --gpu, as fairgv-host devices has it"
            )
        gpu = find(self._parts.gpus, name) if name else self._parts.gpus[0]
        return hand_overs.answer(gpu.page, self._parts.vgpus.names(gpu), int(request.get("after", 0)))

    def _open(self, session: Session, request: Message) -> Message:
        said, region_bytes = _changes(request), _region_bytes(request, region_bytes_of_commands(self._parts.config))
        said_bytes = 0 if request.get("region_bytes") is None else region_bytes
        name = None if request.get("name") is None else str(request["name"])
        vgpu = self._parts.vgpus.open_session(
            name,
            self._parts.config.vgpu,
            region_bytes,
            session.uid,
            lambda vgpu: check_join(vgpu, said, said_bytes, self._parts.gpus),
            self._made(session, name, said),
        )
        if vgpu in session.opened:
            self._parts.vgpus.close_session(vgpu)  # it is there for as long as the connection, which counts once
        else:
            session.opened.add(vgpu)
            session.at_end(lambda: self._parts.vgpus.close_session(vgpu))
            self._succession.keep_session(session, vgpu.name)
        session.send_fd = vgpu.region.fileno()
        return {"name": vgpu.name, "guest_library": self._parts.config.guest_library}

    def _made(
        self, session: Session, name: str | None, said: Changes
    ) -> Callable[[Sequence[Entitlement]], Entitlement]:
        """What a new vGPU gets. Of one that is there already this says nothing: what was said may be right beside what that has."""
        config = self._parts.config
        if not self._roles.is_limited(session):
            return lambda _: config.vgpu.changed(said)
        return lambda others: within_limits(session.uid, name, said, config.vgpu, others, config.users)

    def _reload(self, session: Session, request: Message) -> Message:
        changes = self._parts.reloading.run()
        self._parts.try_again()
        changed = [str(change) for change in changes] or ["nothing has changed"]
        return {
            "text": "\n".join([*changed, *self._parts.troubles()]),
            "changes": [asdict(change) for change in changes],
        }

    def _tell_events(self, session: Session, request: Message) -> Message:
        return {"events": self._events.after(int(request.get("after", 0)))}

    def _stop_daemon(self, session: Session, request: Message) -> Message:
        session.after_answer = self._life.stop
        return {"pid": os.getpid()}

    def _restart(self, session: Session, request: Message) -> Message:
        """Whoever asks starts the next daemon, unless a manager of services does."""
        if self._parts.config.is_private:
            raise RefusedError("a private daemon ends with its program")
        if not self._life.is_managed and session.uid != os.geteuid():
            raise RefusedError("only the daemon's own user may start it anew, as no manager of services does")
        config = read_again(self._parts.config) if self._parts.config.file else self._parts.config

        def leave() -> None:
            self._life.leave(RESTART_STATUS if self._life.is_managed else 0)

        session.after_answer = leave
        return {
            "pid": os.getpid(),
            "is_managed": self._life.is_managed,
            "config": config.to_json(),
            "environment": {} if self._life.is_managed else dict(os.environ),
            "text": "the daemon restarts; programs go on",
        }

    def _attach(self, session: Session, request: Message) -> Message:
        if "shm" in request:
            path = Path(str(request["shm"]))
            return self._parts.machines.attach(str(request["name"]), path, self._entitlement(request))
        region_bytes = _region_bytes(request, self._parts.config.region_bytes)
        has_doorbell = bool(request.get("has_doorbell", False))
        domain = str(request["domain"])
        self._entitlement(request)  # what is wrong with the options themselves comes first
        return self._parts.domains.attach(domain, _changes(request), region_bytes, has_doorbell)

    def _detach(self, session: Session, request: Message) -> Message:
        answer = self._detached(str(request["domain"]))
        self._parts.try_again()
        return answer

    def _detached(self, name: str) -> Message:
        vgpu = self._parts.vgpus.find(name)
        if vgpu is not None and vgpu.kind == "session":
            if vgpu.is_kept:
                raise RefusedError(f"{name} is kept by a file of {FOLDER}: take it away there, then fairgv-host reload")
            raise RefusedError(f"{name} is a vGPU of fairgv-run, and goes with its last program")
        if self._parts.machines.knows(name):
            return self._parts.machines.detach(name)
        with self._nobody_blamed(name):
            return self._parts.domains.detach(name)

    @contextlib.contextmanager
    def _nobody_blamed(self, name: str) -> Iterator[None]:
        """What libvirt says of a domain. Where no vGPU has that name, that is said first: libvirt may be away, or not be there at all."""
        try:
            yield
        except VmError as error:
            if self._parts.vgpus.find(name) is not None:
                raise
            raise RefusedError(
                f"there is no vGPU called {name}; see: fairgv-host list (looking for a domain of that name: {error})"
            ) from error

    def _set(self, session: Session, request: Message) -> Message:
        name = str(request["name"])
        changes = _changes({key: value for key, value in request.items() if value is not None}, is_new=False)
        vgpu = self._parts.vgpus.find(name)
        if vgpu is not None:
            check_memory(vgpu, changes)
        if self._parts.machines.knows(name):
            return self._parts.machines.change(name, changes)
        if vgpu is None or vgpu.kind != "session":
            with self._nobody_blamed(name):
                return self._parts.domains.change(name, changes)
        is_changed = self._parts.vgpus.change(name, changes)
        until = "its file is read again" if vgpu.is_kept else "its last program ends"
        return change_answer(name, vgpu.entitlement, f"{name} is changed until {until}", is_changed=is_changed)

    def _unban(self, session: Session, request: Message) -> Message:
        return {"text": f"{self._parts.vgpus.unban(str(request['name']))} is forgiven"}

    def _suspend(self, session: Session, request: Message) -> Message:
        name = str(request["name"])
        is_changed = suspension.suspend(self._parts.vgpus, name, self._parts.config)
        self._parts.sleepers.look(self._parts.vgpus.named(name))
        return {"text": f"{name} is suspended", UNCHANGED: not is_changed}

    def _resume(self, session: Session, request: Message) -> Message:
        name = str(request["name"])
        is_changed = suspension.resume(self._parts.vgpus, name)
        self._parts.sleepers.look(self._parts.vgpus.named(name))
        return {"text": f"{name} {'is resumed' if is_changed else 'was not suspended'}", UNCHANGED: not is_changed}

    def _suspension(self, session: Session, request: Message) -> Message:
        programs = suspension.programs(self._parts.vgpus, str(request["name"]), self._parts.sleepers.told)
        return {"programs": [asdict(each) for each in programs]}

    def _report(self, session: Session, request: Message) -> Message:
        if self.web_teller is None:
            raise RefusedError(
                "this daemon keeps no last hour: it does where it serves the page, as with: fairgv-host start --web 127.0.0.1:9401"
            )
        return self.web_teller.document()

    def _entitlement(self, request: Message) -> Entitlement:
        """What a new vGPU is to have. What is not said is as configured."""
        return self._parts.config.vgpu.changed(_changes(request))


def _region_bytes(request: Message, unsaid: int) -> int:
    """Of a new vGPU. Raises ConfigError."""
    said = request.get("region_bytes")
    region_bytes = unsaid if said is None else int(said)
    check_region_bytes(region_bytes)
    return region_bytes


def _changes(request: Message, *, is_new: bool = True) -> Changes:
    try:
        return read_changes(request, as_options=True, is_new=is_new)
    except EntitlementError as error:
        raise RefusedError(f"a malformed request {request['op']!r}: {error}") from error
