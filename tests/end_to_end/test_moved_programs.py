"""Programs whose vGPU moves to and fro under them, by the best mover each time: they print what they print natively."""

import threading
from collections.abc import Iterator

import pytest

from backend_host.errors import RefusedError
from backend_host.ipc import Connection
from backend_host.move.words import UNDER_WAY
from tests.end_to_end.host import PROGRAM_NAMES, Host, comparable, start_host, stop_host, wait_until

WEB = ("--vgpu", "web")
MOST_RUNS = 20
"""Of a program that ends before it can move."""
UNBOUND = "random_unbound"
"""Goes by replay, in a test of its own."""
PRINTS = "simple_printf"
"""As does this."""
TOGETHER = tuple(name for name in PROGRAM_NAMES if name.startswith(("ipc_", "share_")) or name == "sharing")
"""What two programs share keeps both where they are, for as long as one of them has it."""


@pytest.fixture(scope="module")
def host(two_devices: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = start_host(tmp_path_factory.mktemp("moved"), fast_moves=True)
    kept = host.start("/bin/sleep", "100000", options=WEB)
    wait_until(lambda: bool(host.status()["vgpus"]), "the vGPU is there")
    yield host
    with kept:
        kept.terminate()
    stop_host(host)


class Restless:
    """Moves the vGPU, one move after the other, until the end of the block."""

    def __init__(self, host: Host) -> None:
        self._socket = host.state_dir / "control.sock"
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.with_programs: list[str] = []
        """Why moves came to nothing, or the movers of those that did not."""

    def __enter__(self) -> "Restless":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        with Connection(self._socket) as connection:
            while not self._is_over.wait(0.01):
                try:
                    self._move(connection)
                except RefusedError as error:
                    self.with_programs.append(str(error))

    def _move(self, connection: Connection) -> None:
        [vgpu] = connection.ask("status")["vgpus"]
        plan = connection.ask("migrate", name="web", to=str(1 - vgpu["gpu_number"]))["plan"]
        while (migration := connection.ask("migration", name="web")["migration"])["stage"] in UNDER_WAY:
            self._is_over.wait(0.005)
        if plan["nr_programs"]:
            is_done = migration["stage"] == "done"
            self.with_programs.append(migration["plan"]["mover"] if is_done else migration["reason"])


@pytest.mark.parametrize("program", [name for name in PROGRAM_NAMES if name not in (*TOGETHER, UNBOUND, PRINTS)])
def test_same_output_as_natively(host: Host, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    with monkeypatch.context() as alone:
        alone.setenv("CUDA_VISIBLE_DEVICES", "0")  # a guest sees one
        native = comparable(host.native(program))
    with Restless(host) as restless:
        for _ in range(MOST_RUNS):
            guest = host.guest(program, options=WEB)
            assert comparable(guest) == native, (guest.stderr, restless.with_programs)
            if restless.with_programs:
                break
    assert restless.with_programs


def test_random_work_that_nothing_binds_moves_by_replay(host: Host) -> None:
    with Restless(host) as restless:
        for seed in range(1, MOST_RUNS * 20, 20):
            guest = host.guest(UNBOUND, str(seed), "20", "300", options=WEB)
            assert guest.stdout.endswith("PASS\n"), (guest.stdout, guest.stderr, restless.with_programs)
            if "replay" in restless.with_programs:
                break
    assert "replay" in restless.with_programs


def test_what_kernels_print_moves_by_replay(host: Host) -> None:
    native = comparable(host.native(PRINTS))
    with Restless(host) as restless:
        for _ in range(MOST_RUNS):
            assert comparable(host.guest(PRINTS, options=WEB)) == native
            if "replay" in restless.with_programs:
                break
    assert "replay" in restless.with_programs
