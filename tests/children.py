"""Processes that tests start and talk to."""

import queue
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def running(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process for the block, which is expected to see it end. When the block fails, by a time limit for example, it is killed:
    waiting for it, as `Popen` does by itself, could take for ever."""
    with subprocess.Popen(command, text=True, **options) as child:
        try:
            yield child
        except BaseException:
            child.kill()
            raise


@contextmanager
def listening_manager(notify: Path) -> Iterator[queue.SimpleQueue[str]]:
    """What it hears. It takes each word at once, as systemd does: the kernel keeps ten, and the daemon says those behind them to nobody."""
    words: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        while word := manager.recv(4096):
            words.put(word.decode())

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(notify))
        listener = threading.Thread(target=listen)
        listener.start()
        try:
            yield words
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                last.sendto(b"", str(notify))
            listener.join()


def is_there(pid: int) -> bool:
    """Whether a process lives: one that waits to be reaped does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
