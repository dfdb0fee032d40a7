"""Energy of devices by NVML's own counter, asked of a process that answers when it is asked.

NVML is the driver's code, and hangs when that does: so it is asked in a child, with a time limit, as by backend_host/nvml. That one says so
once in a second, too seldom for a difference of two readings. The child stays until the end: a driver that nobody uses may count from zero.

    python -m benchmarks.joules UUID...     a line on its input for each reading; on its output a list of mJ, device by device, or a reason

Wrong when a stretch is short: NVIDIA's counters are brought up to date about ten times a second. A child that cannot be killed, because it
hangs in the driver, keeps us from ending.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.guests.process import ProcessRunning

LIMIT_S = 20.0
"""Of one reading; the first one waits for NVML to begin."""


@dataclass(frozen=True)
class Reading:
    """What each device has taken since some moment of its own, in J, and when that was so, on the monotonic clock."""

    at_s: float
    joules: tuple[float, ...]


class Joules:
    """Of the devices with these UUIDs. NotMeasurableError with the reason where they do not say, now or later."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self._nr = len(uuids)
        command = [sys.executable, "-m", "benchmarks.joules", *uuids]
        self._child = ProcessRunning(command, os.environ, "the process that asks NVML")
        try:
            self.read()
        except NotMeasurableError:
            self.close()
            raise

    def __enter__(self) -> "Joules":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the child."""
        self._child.stop()

    def read(self) -> Reading:
        """Now."""
        self._child.tell("")
        try:
            said = json.loads(self._child.read_line(time.monotonic() + LIMIT_S))
        except (ProgramFailedError, ValueError) as error:
            raise NotMeasurableError(f"NVML tells no energy: {error}") from error
        if not isinstance(said, list) or len(said) != self._nr:
            raise NotMeasurableError(f"NVML tells no energy: {said}")
        return Reading(time.monotonic(), tuple(each / 1000 for each in said))


def main(uuids: Sequence[str]) -> int:
    """The child: until its input ends."""
    try:
        import pynvml as nvml  # noqa: PLC0415 - whether it is there is what is asked
    except ImportError:
        return _refuse("the Python package nvidia-ml-py is not installed")
    try:
        nvml.nvmlInit()
        devices = [nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        for _ in sys.stdin:
            print(json.dumps([int(nvml.nvmlDeviceGetTotalEnergyConsumption(device)) for device in devices]), flush=True)
    except nvml.NVMLError as error:
        return _refuse(str(error))
    return 0


def _refuse(why: str) -> int:
    print(json.dumps(why), flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
