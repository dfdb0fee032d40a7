"""A program whose work waits for a word that the test writes, and programs whose workers end."""

import os
import signal

from backend_host.worker_process import WorkerProcess
from ivshmem.region import ClientState
from tests.backend_host.swapping import STEP, allocate
from tests.backend_host.worker_guest import STREAM, Guest, wait_for_state

NOT_READY = 600


class Wait:
    """In a stream of the guest's, with work behind it."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._word = guest.allocate(4096)
        guest.ok("host_register", address=guest.address + self._word, bytes=4096)
        guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=1)
        guest.cast_off("cuStreamWaitValue32_v2", stream=STREAM, addr=guest.address + self._word, value=1)
        guest.cast_off("cuMemsetD32Async", dstDevice=allocate(guest, STEP), ui=5, N=1, hStream=STREAM)
        assert guest.call("cuStreamQuery", hStream=STREAM).result == NOT_READY

    def end(self) -> None:
        """The word is there, and the program goes on."""
        self._guest.write_word(self._word, 1)
        self._guest.ok("cuStreamSynchronize", hStream=STREAM)


def kill(worker: WorkerProcess) -> None:
    """Its process."""
    os.kill(worker.process.pid, signal.SIGKILL)


def is_dead(guest: Guest) -> bool:
    """As it hears."""
    return wait_for_state(guest.region, guest.index, {ClientState.DEAD}) is ClientState.DEAD
