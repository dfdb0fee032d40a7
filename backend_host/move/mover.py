"""What a way to move programs has to offer, whichever it is. moving.py says when each step is taken, and what holds for all."""

from collections.abc import Sequence
from typing import Protocol, Self

from backend_host.worker_process import WorkerProcess


class Mover(Protocol):
    """One attempt with the programs of one vGPU. Use it `with`: the end of the block ends what it began beside them."""

    more_bytes: int
    """What workers may have of the host's memory where they go, beside what those of a vGPU without a region may."""
    can_return: bool
    """Whether they can go back once they are on the other device, as long as they go by the page of this one."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def prepare(self, workers: Sequence[WorkerProcess]) -> None:
        """What can be done ahead, while programs run on. FairGVError, OSError: it cannot be."""

    def leave(self, workers: Sequence[WorkerProcess]) -> None:
        """The pause begins, and they stand. FairGVError, OSError: they do not."""

    def change(self, workers: Sequence[WorkerProcess]) -> str:
        """They are on the other device; what went wrong with some of them. FairGVError, OSError: they are where they were. Who is on none is
        ended."""

    def stay(self, workers: Sequence[WorkerProcess]) -> None:
        """After any of these: they go on where they were, and nothing is left of what was done ahead."""

    def arrive(self) -> None:
        """They go by the page of the other Gpu."""

    def sees_memory_back(self, workers: Sequence[WorkerProcess]) -> bool:
        """Waits while their memory comes onto the other device; True: the pause lasted until all was there."""
