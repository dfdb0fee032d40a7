"""How processes come to use a device at the same time: NVIDIA's by MPS, softgpu's by a name that they have in common."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from backend_host.space.mps import CLIENTS, Mps

LOW = {"CUDA_MPS_CLIENT_PRIORITY": "1"}
"""Of a process whose blocks begin behind those of the others."""


class Together(Protocol):
    """One space's. Raises FairGVError where it fails."""

    way: str
    """What it is called."""
    most: int
    """So many processes at a time; 0: any number."""
    shares_faults: bool
    """A fault of one ends the work of all."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Of its processes."""

    @property
    def reads(self) -> Sequence[Path]:
        """Folders that its processes need, beyond those of any worker."""

    def prepare(self) -> None:
        """Makes those folders."""

    def ensure(self) -> None:
        """Has it serve."""

    def terminate(self, pid: int) -> bool:
        """Ends the work of one of its processes, so that the others lose nothing. Whether that process may end by itself now."""

    def quit(self) -> None:
        """Nobody needs it any more."""


class ByMps:
    """By a control daemon of its own."""

    way = "mps"
    most = CLIENTS
    shares_faults = True

    def __init__(self, mps: Mps) -> None:
        self._mps = mps

    @property
    def environment(self) -> Mapping[str, str]:
        """See there."""
        return self._mps.of_clients

    @property
    def reads(self) -> Sequence[Path]:
        """To read is to connect: nobody but the control daemon makes sockets there."""
        return [self._mps.pipe]

    def prepare(self) -> None:
        """See there."""
        self._mps.make_folders()

    def ensure(self) -> None:
        """See there."""
        self._mps.ensure()

    def terminate(self, pid: int) -> bool:
        """See there."""
        self._mps.terminate_client(pid)
        return True

    def quit(self) -> None:
        """See there."""
        self._mps.quit()


class ByName:
    """softgpu's. Its processes share no faults."""

    way = "softgpu"
    most = 0
    shares_faults = False

    def __init__(self, name: str, state_dir: Path) -> None:
        """Daemons of several state directories share one device, and no spaces."""
        self._name = f"{name}-{hashlib.sha256(bytes(state_dir)).hexdigest()[:8]}"

    @property
    def environment(self) -> Mapping[str, str]:
        """See there."""
        return {"FAIRGV_SOFTGPU_SPACE": self._name}

    @property
    def reads(self) -> Sequence[Path]:
        """None."""
        return []

    def prepare(self) -> None:
        """Nothing."""

    def ensure(self) -> None:
        """Nothing: the first process makes it."""

    def terminate(self, pid: int) -> bool:
        """A process that is killed takes its own work alone with it."""
        return False

    def quit(self) -> None:
        """Nothing."""
