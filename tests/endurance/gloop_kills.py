"""`python -m tests.endurance.gloop_kills --kills 100`: two servers of event loops on softgpu, in vGPUs of their own, and SIGKILL for a
server, a worker or the daemon, at random, again and again.

All that is sent to a server goes by a file of its own before it comes back, and each connection sends the next message as soon as one is back:
a kill comes in the middle of requests of sockets, files and the driver's copies. A server that was killed, or lost its worker, ends with an
error; nobody has its port and its file any more, and the next one takes them. The other server goes on, and after the daemon's death both do,
before the next daemon is there and after: on the connections that they had, with the bytes that were sent.

Wrong when: the machine is so loaded that an answer takes a minute.
"""

import contextlib
import os
import random
import select
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from backend_host.launching import wait_for_end
from tests.end_to_end.host import Host, start_host, stop_host, wait_until
from tests.end_to_end.space_programs import worker
from tests.endurance.kills import LIMIT_S, SHARED, KillsError, expect_gone, main, mapped
from tests.endurance.processes import children, descriptors
from tests.gloop.build import HERE, build_one

NR_BLOCKS = 2
LENGTHS = (10, 5000, 100_000)
"""Files read and write those of up to 64 KiB by pinned pages, and have the driver copy longer ones."""
MOST_APART_S = 0.3
"""Between the last answers that were waited for and the next kill."""
DAEMON = "daemon"


class Asking(threading.Thread):
    """A connection that sends, and compares what comes back, until the server hangs up or it is told to stop."""

    def __init__(self, port: int, seed: int) -> None:
        super().__init__(name=f"asking {port}")
        self._port, self._luck = port, random.Random(seed)
        self.nr_right = 0
        self.is_wrong = self.is_stopped = False

    def run(self) -> None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as connection:
            while not self.is_stopped:
                sent = self._luck.randbytes(self._luck.choice(LENGTHS))
                connection.sendall(sent)
                if (came := _receive(connection, len(sent))) is None:
                    return
                if came != sent:
                    self.is_wrong = True
                    return
                self.nr_right += 1


def _receive(connection: socket.socket, nr_bytes: int) -> bytes | None:
    """None: the other side has hung up."""
    came = bytearray()
    while len(came) < nr_bytes:
        if not (more := connection.recv(nr_bytes - len(came))):
            return None
        came += more
    return bytes(came)


class Server:
    """In a vGPU of this name, through its ends; the port and the file stay the same."""

    def __init__(self, host: Host, name: str, luck: random.Random) -> None:
        self.name = name
        self._host, self._luck = host, luck
        self._file = host.state_dir / f"file-{name}"
        with socket.create_server(("127.0.0.1", 0)) as found:
            self._port = int(found.getsockname()[1])
        self.start()

    def start(self) -> None:
        """Another one, once all of its blocks have answered."""
        program, words = build_one(HERE / "programs/sockets.cu"), (str(self._port), str(NR_BLOCKS), str(self._file))
        self._run = self._host.start(program, "serve", *words, options=("--vgpu", self.name))
        assert self._run.stdout is not None
        came, _, _ = select.select([self._run.stdout], [], [], LIMIT_S)
        if not came or self._run.stdout.readline() != "listens\n":
            raise KillsError(f"{self.name}: does not listen: {self._said()}")
        self._asking = [Asking(self._port, self._luck.randrange(1 << 32)) for _ in range(NR_BLOCKS)]
        for each in self._asking:
            each.start()
        self.goes_on()

    def worker(self) -> int:
        return worker(self._host, self.name)

    def goes_on(self) -> None:
        """Each connection gets an answer to what it sends from now on: the first to come may be to what was sent before."""
        before = [each.nr_right for each in self._asking]
        deadline = time.monotonic() + LIMIT_S
        while any(each.nr_right < nr + 2 for each, nr in zip(self._asking, before, strict=True)):
            self._expect_right()
            if time.monotonic() > deadline or not all(each.is_alive() for each in self._asking):
                raise KillsError(f"{self.name}: goes on no more: {self._said()}")
            time.sleep(0.001)

    def kill(self, what: str) -> None:
        """`what`: program or worker. It ends, and not well, and all that it had is free."""
        pid = self.worker() if what == "worker" else next(children(self._run.pid))
        os.kill(pid, signal.SIGKILL)
        output, errors = self._run.communicate(timeout=LIMIT_S)
        if self._run.returncode == 0:
            raise KillsError(f"{self.name}: ended well without its {what}: {output}{errors}")
        self._join()
        with socket.create_server(("127.0.0.1", self._port)):
            pass
        if holders := [pid for pid in _pids() if str(self._file) in _descriptors(pid)]:
            raise KillsError(f"{self.name}: its file is still open, in {holders}")

    def end(self) -> None:
        """When it is told to: all has to have been right."""
        for each in self._asking:
            each.is_stopped = True
        self._join()
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.sendall(b"end")
            output, errors = self._run.communicate(timeout=LIMIT_S)
        if self._run.returncode != 0:
            raise KillsError(f"{self.name}: {output}{errors}")

    def close(self) -> None:
        self._run.kill()
        self._run.communicate()
        for each in self._asking:
            each.join()

    def _join(self) -> None:
        for each in self._asking:
            each.join(LIMIT_S)
            if each.is_alive():
                raise KillsError(f"{self.name}: a connection is still open")
        self._expect_right()

    def _expect_right(self) -> None:
        if any(each.is_wrong for each in self._asking):
            raise KillsError(f"{self.name}: sent back something else")

    def _said(self) -> str:
        """All, and it has ended then."""
        self._run.kill()
        return "".join(self._run.communicate())


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _descriptors(pid: int) -> list[str]:
    """None where it is another user's, or has ended."""
    try:
        return descriptors(pid)
    except OSError:
        return []


def kill_daemon(host: Host, servers: tuple[Server, Server]) -> None:
    """All go on without one, and with the next one by the same workers."""
    workers = [each.worker() for each in servers]
    daemon = int(host.status()["pid"])
    os.kill(daemon, signal.SIGKILL)
    wait_for_end(daemon)
    for each in servers:
        each.goes_on()
    start_host(host.state_dir)
    for each in servers:
        each.goes_on()
    if [each.worker() for each in servers] != workers:
        raise KillsError("the next daemon has other workers")


def run(kills: int, luck: random.Random, state_dir: Path) -> Counter[str]:
    """How often each was killed. Raises KillsError."""
    before = set(SHARED.iterdir())
    host = start_host(state_dir)
    done: Counter[str] = Counter()
    seen: set[Path] = set()
    try:
        with _two(host, luck) as servers:
            for _ in range(kills):
                seen |= mapped([int(host.status()["pid"]), *(each.worker() for each in servers)])
                time.sleep(luck.uniform(0, MOST_APART_S))
                victim, other = luck.sample(servers, 2)
                what = luck.choice(("program", "worker", DAEMON))
                if what == DAEMON:
                    kill_daemon(host, servers)
                else:
                    victim.kill(what)
                    other.goes_on()
                    victim.start()
                done[what if what == DAEMON else f"{victim.name}'s {what}"] += 1
            for each in servers:
                each.goes_on()
                each.end()
        wait_until(lambda: host.status()["vgpus"] == [], "no vGPU is left")
    finally:
        stop_host(host)
    expect_gone(seen - before)
    return done


@contextlib.contextmanager
def _two(host: Host, luck: random.Random) -> Iterator[tuple[Server, Server]]:
    with contextlib.ExitStack() as stack:
        servers = []
        for name in ("one", "two"):
            servers.append(Server(host, name, luck))
            stack.callback(servers[-1].close)
        yield servers[0], servers[1]


if __name__ == "__main__":
    sys.exit(main("gloop_kills", __doc__, 100, run))
