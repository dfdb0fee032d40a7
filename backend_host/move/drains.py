"""Which Gpus are drained: no vGPU comes to them until an operator says otherwise, whichever daemon serves.

It is written down by the devices' UUIDs, beside the daemon's socket, so that it holds for the next daemon, also one of another release, and for
a device that is not there for a while.

Wrong when: the state directory goes, as /run/fairgv does when the host boots. Then no Gpu is drained.
"""

import contextlib
import json
import threading
from collections.abc import Sequence
from pathlib import Path

from backend_host.device.gpu import Gpu
from backend_host.errors import FairGVError

FILE = "drained.json"


class Drains:
    """Of one daemon. Thread-safe."""

    def __init__(self, state_dir: Path, gpus: Sequence[Gpu]) -> None:
        """Drains those that the daemon before had drained."""
        self._path = state_dir / FILE
        self._gpus = gpus
        self._lock = threading.Lock()
        for gpu in gpus:
            gpu.is_drained = gpu.device.uuid in _read(self._path)

    def set(self, gpu: Gpu, *, is_drained: bool) -> None:
        """From now on. Raises FairGVError where it cannot be written down, and nothing has changed then."""
        with self._lock:
            written = _read(self._path) - {gpu.device.uuid}
            new = self._path.with_suffix(".new")
            try:
                new.write_text(json.dumps(sorted(written | {gpu.device.uuid} if is_drained else written)))
                new.replace(self._path)
            except OSError as error:
                raise FairGVError(f"cannot write to {self._path.parent}: {error.strerror}") from error
            gpu.is_drained = is_drained


def _read(path: Path) -> set[str]:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return set(map(str, json.loads(path.read_text())))
    return set()
