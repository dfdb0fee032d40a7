"""vGPUs that the daemon keeps, programs or not, and that are no domains: each stands in a file of the folder vgpus.d beside the configuration.

Programs of its user come to it with `fairgv-run --vgpu NAME`. The daemon is one of its users, so it does not go with the last program. Or a
virtual machine that libvirt does not know has it: then the file names that one's shared memory (`shm`), and machines.py follows it.
"""

import contextlib
import dataclasses
import pwd
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend_host.config import Config, check_region_bytes, region_bytes_of_commands
from backend_host.entitlement import KEYS, Entitlement, EntitlementError, read_changes
from backend_host.errors import ConfigError, RefusedError
from backend_host.machines import Machines, Wanted
from backend_host.refusals import check_memory
from backend_host.service.roles import user_called
from backend_host.sizes import parse_size
from backend_host.vgpu import VGpu
from backend_host.vgpus import NAME, VGpuRegistry

FOLDER = "vgpus.d"
_OWN_KEYS = {"name", "user", "region_bytes", "shm"}
_NOT_BESIDE_SHM = ("user", "region_bytes")
"""Programs of a machine are its own affair, and its region is as large as its file."""


@dataclass(frozen=True)
class KeptVGpu:
    """One, as its file says; `uid`: whose programs may use it. `shm`: of a virtual machine, whose file that is; else empty."""

    name: str
    uid: int
    entitlement: Entitlement
    region_bytes: int
    shm: str = ""

    def written(self) -> dict[str, Any]:
        """For who reads what changed."""
        if self.shm:
            return {"shm": self.shm, **self.entitlement.written()}
        return {"user": user_called(self.uid), **self.entitlement.written(), "region_bytes": self.region_bytes}


def read_kept(config: Config) -> dict[str, KeptVGpu]:
    """Those of the folder, by name. Raises ConfigError, which names the file."""
    found: dict[str, KeptVGpu] = {}
    for path in sorted(Path(config.file).parent.glob(f"{FOLDER}/*.toml")) if config.file else ():
        try:
            kept = _read(path, config)
        except (OSError, ValueError, ConfigError) as error:
            raise ConfigError(f"{path}: {error}") from error
        if kept.name in found:
            raise ConfigError(f"{path}: there is another file for a vGPU called {kept.name}")
        found[kept.name] = kept
    return found


def _read(path: Path, config: Config) -> KeptVGpu:
    table = tomllib.loads(path.read_text())
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
    return KeptVGpu(name, _uid(table.get("user", "root")), entitlement, region_bytes, _shm(table))


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


class KeptVGpus:
    """Those of one daemon. One caller at a time."""

    def __init__(self, vgpus: VGpuRegistry, machines: Machines) -> None:
        self._vgpus = vgpus
        self._machines = machines
        self._files: dict[str, KeptVGpu] = {}
        self._held: dict[str, VGpu] = {}

    @property
    def now(self) -> Mapping[str, KeptVGpu]:
        """By name: as they were read last, and were changed since then."""
        entitlements = {name: vgpu.entitlement for name, vgpu in self._held.items()} | self._machines.kept
        return {
            name: dataclasses.replace(self._files[name], entitlement=entitlement)
            for name, entitlement in entitlements.items()
        }

    def swap(self, wanted: Mapping[str, KeptVGpu]) -> None:
        """From now on these are kept. RefusedError says why not, and nothing has changed then.

        What gives up a request comes before what wants one. One that is kept no more goes with its last program. Those of machines come and go
        later, as their files do; what then stands in the way is told by `fairgv-host list`.
        """
        machines = {name: Wanted(name, Path(each.shm), each.entitlement) for name, each in wanted.items() if each.shm}
        _check_paths(machines)
        self._swap_sessions({name: each for name, each in wanted.items() if not each.shm})
        self._files = dict(wanted)
        self._machines.keep(machines)

    def _swap_sessions(self, wanted: Mapping[str, KeptVGpu]) -> None:
        self._check_same(wanted)
        gone = self._held.keys() - wanted.keys()
        with contextlib.ExitStack() as undo:
            for name in sorted(gone):
                if self._held[name].nr_users == 1:
                    self._change(self._held[name], {"request": 0.0}, undo)
            stay = [self._held[name] for name in self._held.keys() & wanted.keys()]
            for vgpu in sorted(stay, key=lambda vgpu: wanted[vgpu.name].entitlement.request - vgpu.entitlement.request):
                self._change(vgpu, dataclasses.asdict(wanted[vgpu.name].entitlement), undo)
            made = {name: self._open(wanted[name], undo) for name in sorted(wanted.keys() - self._held.keys())}
            undo.pop_all()
        self._held.update(made)
        for name in gone:
            self._release(self._held.pop(name))

    def _check_same(self, wanted: Mapping[str, KeptVGpu]) -> None:
        for name in sorted(self._held.keys() & wanted.keys()):
            before, after = self._files[name], wanted[name]
            if changed := _fixed(before, after):
                raise RefusedError(
                    f"the vGPU {name} keeps its {' and '.join(changed)} while it is there: take its file away and reload, which lets it go "
                    "with its last program, and put the new one there then"
                )

    def _change(self, vgpu: VGpu, changes: Mapping[str, Any], undo: contextlib.ExitStack) -> None:
        before = dataclasses.asdict(vgpu.entitlement)
        if before == {**before, **changes}:
            return
        check_memory(vgpu, changes)
        self._vgpus.change(vgpu.name, changes)
        undo.callback(self._vgpus.change, vgpu.name, before)

    def _open(self, kept: KeptVGpu, undo: contextlib.ExitStack) -> VGpu:
        vgpu = self._vgpus.claim_kept(kept.name, kept.uid, kept.entitlement)
        if vgpu is not None:  # an earlier daemon's
            self._change(vgpu, dataclasses.asdict(kept.entitlement), undo)
        else:
            vgpu = self._vgpus.open_session(kept.name, kept.entitlement, kept.region_bytes, kept.uid, _not_there)
            self._vgpus.set_kept(vgpu, is_kept=True)
        undo.callback(self._release, vgpu)
        return vgpu

    def _release(self, vgpu: VGpu) -> None:
        self._vgpus.set_kept(vgpu, is_kept=False)
        self._vgpus.close_session(vgpu)


def _check_paths(machines: Mapping[str, Wanted]) -> None:
    """RefusedError: two vGPUs in one file would read each other's memory."""
    names: dict[Path, str] = {}
    for name, wanted in machines.items():
        if (other := names.setdefault(wanted.path, name)) != name:
            raise RefusedError(
                f"{wanted.path} is the memory of two vGPUs, {other} and {name}: leave one of their files"
            )


def _fixed(before: KeptVGpu, after: KeptVGpu) -> Sequence[str]:
    """What differs, and stays for life."""
    pairs = {"user": (before.uid, after.uid), "region_bytes": (before.region_bytes, after.region_bytes)}
    return [*before.entitlement.fixed(after.entitlement), *(key for key, (one, other) in pairs.items() if one != other)]


def _not_there(vgpu: VGpu) -> None:
    raise RefusedError(f"a vGPU called {vgpu.name} is there already, of fairgv-run; end its programs first")
