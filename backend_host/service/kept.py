"""vGPUs that the daemon keeps, programs or not, and that are no domains: each stands in a file of the folder vgpus.d beside the configuration.

Programs of its user come to it with `fairgv-run --vgpu NAME`. The daemon is one of its users, so it does not go with the last program. Or a
virtual machine that libvirt does not know has it: then the file names that one's shared memory (`shm`), and machines.py follows it.
"""

import contextlib
import dataclasses
import logging
import pwd
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from backend_host.config import Config, check_region_bytes, region_bytes_of_commands
from backend_host.entitlement import KEYS, PARAMETERS, Entitlement, EntitlementError, read_changes
from backend_host.errors import ConfigError, FairGVError, RefusedError
from backend_host.machines import Machines, Wanted
from backend_host.refusals import check_memory
from backend_host.service.journal import about
from backend_host.service.roles import user_called
from backend_host.sizes import parse_size
from backend_host.toml_file import read_toml
from backend_host.vgpu import VGpu
from backend_host.vgpu_claims import claim_kept
from backend_host.vgpus import NAME, VGpuRegistry

FOLDER = "vgpus.d"
_OWN_KEYS = {"name", "user", "region_bytes", "shm"}
_FOR_LIFE = {"region_bytes", *(parameter.key for parameter in PARAMETERS.values() if parameter.is_for_life)}
_NOT_BESIDE_SHM = ("user", "region_bytes")
"""Programs of a machine are its own affair, and its region is as large as its file."""

log = logging.getLogger("fairgv.vgpus")


@dataclass(frozen=True)
class KeptVGpu:
    """One, as its file says; `uid`: whose programs may use it. `shm`: of a virtual machine, whose file that is; else empty."""

    name: str
    uid: int
    entitlement: Entitlement
    region_bytes: int
    shm: str = ""
    unsaid: frozenset[str] = field(default=frozenset(), compare=False)
    """Keys of what stays for life and its file leaves out: one that is to be made has them as configured."""

    def beside(self, entitlement: Entitlement, region_bytes: int) -> Self:
        """The same for one that is there, with these: of that what is unsaid stays as it is, unless the rest does not go with it."""
        stays = {name: getattr(entitlement, name) for name, each in PARAMETERS.items() if each.key in self.unsaid}
        try:
            beside = self.entitlement.changed(stays)
        except EntitlementError:
            return self
        region_bytes = region_bytes if "region_bytes" in self.unsaid else self.region_bytes
        return dataclasses.replace(self, entitlement=beside, region_bytes=region_bytes)

    def written(self) -> dict[str, Any]:
        """For who reads what changed."""
        if self.shm:
            return {"shm": self.shm, **self.entitlement.written()}
        return {"user": user_called(self.uid), **self.entitlement.written(), "region_bytes": self.region_bytes}


def read_kept(config: Config) -> dict[str, KeptVGpu]:
    """Those of the folder, by name. Raises ConfigError, which names the file."""
    found: dict[str, KeptVGpu] = {}
    for path in sorted(Path(config.file).parent.glob(f"{FOLDER}/*.toml")) if config.file else ():
        table = read_toml(path)
        try:
            kept = _read(path, table, config)
        except (ValueError, ConfigError) as error:
            raise ConfigError(f"{path}: {error}") from error
        if kept.name in found:
            raise ConfigError(f"{path}: there is another file for a vGPU called {kept.name}")
        found[kept.name] = kept
    return found


def _read(path: Path, table: Mapping[str, Any], config: Config) -> KeptVGpu:
    if unknown := table.keys() - KEYS - _OWN_KEYS:
        raise ConfigError(f"unknown key {min(unknown)!r}; known are: {', '.join(sorted(KEYS | _OWN_KEYS))}")
    name = table.get("name", path.stem)
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise ConfigError(f"{name!r} is no name for a vGPU; use letters, digits, '.', '_', '-', at most 64")
    region_bytes = (
        parse_size(str(table["region_bytes"])) if "region_bytes" in table else region_bytes_of_commands(config)
    )
    check_region_bytes(region_bytes)
    try:
        entitlement = config.vgpu.changed(read_changes(table))
    except EntitlementError as error:
        raise ConfigError(str(error)) from error
    unsaid = frozenset(_FOR_LIFE - table.keys())
    return KeptVGpu(name, _uid(table.get("user", "root")), entitlement, region_bytes, _shm(table), unsaid)


def _shm(table: Mapping[str, object]) -> str:
    path = table.get("shm", "")
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise ConfigError(f"shm must be the path of a file of shared memory, not {path!r}")
    if path and (beside := [key for key in _NOT_BESIDE_SHM if key in table]):
        raise ConfigError(
            f"{beside[0]} is of programs of this host, and shm of a virtual machine: leave one of them out"
        )
    return path


def _uid(user: object) -> int:
    if isinstance(user, int) and not isinstance(user, bool) and 0 <= user < 1 << 32:
        return user
    try:
        return pwd.getpwnam(str(user)).pw_uid
    except KeyError:
        raise ConfigError(f"user: this host has no user {user!r}") from None


@dataclass(frozen=True)
class Waiting:
    """One that is not served, and why."""

    kept: KeptVGpu
    why: str


class KeptVGpus:
    """Those of one daemon. One caller at a time, but for looks at `waiting`.

    One that cannot be had as the daemon begins, for want of room say, keeps it from nothing: it waits, and is tried again.
    """

    def __init__(self, vgpus: VGpuRegistry, machines: Machines) -> None:
        self._vgpus = vgpus
        self._machines = machines
        self._files: dict[str, KeptVGpu] = {}
        self._held: dict[str, VGpu] = {}
        self._waiting: Mapping[str, Waiting] = {}

    @property
    def now(self) -> Mapping[str, KeptVGpu]:
        """By name: as they were read last, and were changed since then."""
        entitlements = {name: vgpu.entitlement for name, vgpu in self._held.items()} | self._machines.kept
        changed = {
            name: dataclasses.replace(self._files[name], entitlement=entitlement)
            for name, entitlement in entitlements.items()
        }
        return {name: each.kept for name, each in self._waiting.items()} | changed

    @property
    def waiting(self) -> Sequence[Waiting]:
        """Those that could not be had. Those of machines tell their troubles themselves, but for files that name one memory."""
        return list(self._waiting.values())

    def begin(self, wanted: Mapping[str, KeptVGpu]) -> None:
        """These are kept, and were kept by the daemon before."""
        self._swap(wanted, wanted.keys())

    def swap(self, wanted: Mapping[str, KeptVGpu]) -> Mapping[str, KeptVGpu]:
        """From now on these are kept, and given back. RefusedError says why not, and nothing has changed then; one that waited already may do
        so still.

        What gives up a request comes before what wants one. One that is kept no more goes with its last program. Those of machines come and go
        later, as their files do; what then stands in the way is told by `fairgv-host list`.
        """
        return self._swap(wanted, self._waiting.keys())

    def again(self) -> None:
        """Tries those that wait."""
        waiting = {}
        for name, each in self._waiting.items():
            try:
                if not each.kept.shm:
                    self._held[name] = self._open(each.kept)
                    continue
                waiting[name] = each
            except FairGVError as error:
                waiting[name] = dataclasses.replace(each, why=str(error))
        self._wait(waiting)

    def _swap(self, wanted: Mapping[str, KeptVGpu], lenient: Collection[str]) -> Mapping[str, KeptVGpu]:
        """`lenient`: who may wait."""
        wanted = {name: self._beside_what_is_there(each) for name, each in wanted.items()}
        waiting = _doubles(wanted)
        for name, each in waiting.items():
            if name not in lenient:
                raise RefusedError(each.why)
        waiting |= self._swap_sessions({name: each for name, each in wanted.items() if not each.shm}, lenient)
        self._files = dict(wanted)
        self._machines.keep(
            {
                name: Wanted(name, Path(each.shm), each.entitlement)
                for name, each in wanted.items()
                if each.shm and name not in waiting
            }
        )
        self._wait(waiting)
        return wanted

    def _beside_what_is_there(self, kept: KeptVGpu) -> KeptVGpu:
        if (held := self._held.get(kept.name)) is not None:
            return kept.beside(held.entitlement, self._files[kept.name].region_bytes)
        found = self._vgpus.find(kept.name)
        kind = "machine" if kept.shm else "session"
        if found is not None and found.is_unclaimed and found.kind == kind:  # an earlier daemon's
            return kept.beside(found.entitlement, found.region.region_bytes)
        return kept

    def _wait(self, waiting: Mapping[str, Waiting]) -> None:
        before, self._waiting = self._waiting, waiting
        for name, each in waiting.items():
            if name not in before or before[name].why != each.why:
                log.error("vGPU %s is not served: %s", name, each.why, extra=about(name))

    def _swap_sessions(self, wanted: Mapping[str, KeptVGpu], lenient: Collection[str]) -> dict[str, Waiting]:
        """Those that wait."""
        self._check_same(wanted)
        gone = self._held.keys() - wanted.keys()
        made, waiting = dict[str, VGpu](), dict[str, Waiting]()
        with contextlib.ExitStack() as undo:
            for name in sorted(gone):
                if self._held[name].nr_users == 1:
                    self._change(self._held[name], {"request": 0.0}, undo)
            stay = [self._held[name] for name in self._held.keys() & wanted.keys()]
            for vgpu in sorted(stay, key=lambda vgpu: wanted[vgpu.name].entitlement.request - vgpu.entitlement.request):
                self._change(vgpu, dataclasses.asdict(wanted[vgpu.name].entitlement), undo)
            for name in sorted(wanted.keys() - self._held.keys()):
                try:
                    made[name] = self._open(wanted[name])
                except FairGVError as error:
                    if name not in lenient:
                        raise
                    waiting[name] = Waiting(wanted[name], str(error))
                else:
                    undo.callback(self._release, made[name])
            undo.pop_all()
        self._held.update(made)
        for name in gone:
            self._release(self._held.pop(name))
        return waiting

    def _check_same(self, wanted: Mapping[str, KeptVGpu]) -> None:
        for name in sorted(self._held.keys() & wanted.keys()):
            before, after = self._files[name], wanted[name]
            if changed := _fixed(before, after):
                raise RefusedError(
                    f"the vGPU {name} keeps its {' and '.join(changed)} while it is there: take its file away and reload, which lets it go "
                    "with its last program, and put the new one there then"
                )

    def _change(self, vgpu: VGpu, changes: Mapping[str, Any], undo: contextlib.ExitStack | None = None) -> None:
        before = dataclasses.asdict(vgpu.entitlement)
        if before == {**before, **changes}:
            return
        check_memory(vgpu, changes)
        self._vgpus.change(vgpu.name, changes)
        if undo is not None:
            undo.callback(self._vgpus.change, vgpu.name, before)

    def _open(self, kept: KeptVGpu) -> VGpu:
        """RefusedError: it cannot be had. One of an earlier daemon then goes with its last program."""
        vgpu = claim_kept(self._vgpus, kept.name, kept.uid, kept.entitlement)
        if vgpu is None:
            vgpu = self._vgpus.open_session(kept.name, kept.entitlement, kept.region_bytes, kept.uid, _not_there)
            self._vgpus.set_kept(vgpu, is_kept=True)
            return vgpu
        try:
            self._change(vgpu, dataclasses.asdict(kept.entitlement))
        except RefusedError:
            self._release(vgpu)
            raise
        return vgpu

    def _release(self, vgpu: VGpu) -> None:
        self._vgpus.set_kept(vgpu, is_kept=False)
        self._vgpus.close_session(vgpu)


def _doubles(wanted: Mapping[str, KeptVGpu]) -> dict[str, Waiting]:
    """Those whose memory another one of them has: two vGPUs in one file would read each other's memory."""
    names: dict[str, str] = {}
    found = {}
    for name, each in wanted.items():
        if each.shm and (other := names.setdefault(each.shm, name)) != name:
            why = f"{each.shm} is the memory of two vGPUs, {other} and {name}: leave one of their files"
            found[name] = Waiting(each, why)
    return found


def _fixed(before: KeptVGpu, after: KeptVGpu) -> Sequence[str]:
    """What differs, and stays for life."""
    pairs = {"user": (before.uid, after.uid), "region_bytes": (before.region_bytes, after.region_bytes)}
    return [*before.entitlement.fixed(after.entitlement), *(key for key, (one, other) in pairs.items() if one != other)]


def _not_there(vgpu: VGpu) -> None:
    raise RefusedError(f"a vGPU called {vgpu.name} is there already, of fairgv-run; end its programs first")
