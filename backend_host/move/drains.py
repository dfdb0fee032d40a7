"""Which Gpus are drained: no vGPU comes to them until an operator says otherwise, whichever daemon serves.

It is written down by the devices' UUIDs, beside the daemon's socket, so that it holds for the next daemon, also one of another release, and for
a device that is not there for a while.

Wrong when: the state directory goes, as /run/fairgv does when the host boots. Then no Gpu is drained.
"""

import threading
from collections.abc import Sequence
from pathlib import Path

from backend_host.device.gpu import Gpu
from backend_host.errors import FairGVError
from backend_host.kept_list import KeptList

FILE = "drained.json"


class Drains:
    """Of one daemon. Thread-safe."""

    def __init__(self, state_dir: Path, gpus: Sequence[Gpu]) -> None:
        """Drains those that the daemon before had drained."""
        self._folder = state_dir
        self._written = KeptList(state_dir / FILE, str, "no GPU is drained any more, until fairgv-host drain says so")
        self._lock = threading.Lock()
        self._uuids = set(self._written.read())
        for gpu in gpus:
            gpu.is_drained = gpu.device.uuid in self._uuids

    def set(self, gpu: Gpu, *, is_drained: bool) -> None:
        """From now on. Raises FairGVError where it cannot be written down, and nothing has changed then."""
        with self._lock:
            uuids = self._uuids | {gpu.device.uuid} if is_drained else self._uuids - {gpu.device.uuid}
            try:
                self._written.write(sorted(uuids))
            except OSError as error:
                raise FairGVError(f"cannot write to {self._folder}: {error.strerror}") from error
            self._uuids = uuids
            gpu.is_drained = is_drained
