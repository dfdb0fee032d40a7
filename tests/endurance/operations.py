"""What an operator has a daemon do to a vGPU, again and again, while faults happen to it. No program loses anything by it."""

import contextlib
import threading
import time
from collections.abc import Iterator

from backend_host.errors import FairGVError
from backend_host.ipc import Connection
from backend_host.move.words import UNDER_WAY
from backend_host.state_dir import SOCKET
from tests.beside import beside
from tests.end_to_end.host import Host

_PAUSE_S = 0.05
NR_GPUS = 2
SPARE = "1"
"""The Gpu that is drained but for moves: programs compete for the other one."""


def spare(host: Host) -> None:
    """Has all programs begin on one Gpu."""
    with Connection(host.state_dir / SOCKET) as connection:
        connection.ask("drain", gpu=SPARE)


def _follow(connection: Connection, vgpu: str) -> None:
    while connection.ask("migration", name=vgpu)["migration"]["stage"] in UNDER_WAY:
        time.sleep(_PAUSE_S)


def _move(connection: Connection, vgpu: str, is_over: threading.Event) -> None:
    """There, or back."""
    [here] = [each["gpu_number"] for each in connection.ask("status")["vgpus"] if each["name"] == vgpu]
    connection.ask("undrain", gpu=SPARE)
    try:
        connection.ask("migrate", name=vgpu, to=str(1 - here))
        _follow(connection, vgpu)
    finally:
        connection.ask("drain", gpu=SPARE)


def _suspend(connection: Connection, vgpu: str, is_over: threading.Event) -> None:
    connection.ask("suspend", name=vgpu)
    is_over.wait(_PAUSE_S)
    connection.ask("resume", name=vgpu)


OPERATIONS = {"move": _move, "suspend": _suspend}


@contextlib.contextmanager
def going_on(name: str, host: Host, vgpu: str) -> Iterator[None]:
    """For the block; whoever stops the daemon lets it go on before it ends. What is refused, or not answered as nobody is there, is tried
    again."""

    def run(is_over: threading.Event) -> None:
        while not is_over.wait(_PAUSE_S):
            with (
                contextlib.suppress(FairGVError, OSError, ValueError),
                Connection(host.state_dir / SOCKET) as connection,
            ):
                OPERATIONS[name](connection, vgpu, is_over)

    with beside(run, name):
        yield
