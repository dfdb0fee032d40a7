"""A process of the daemon's own among those of a space: `python -m backend_host.space.client --socket FD --library PATH --device N`.

It makes the page of device memory that all workers of the space map, and tells whether the device still serves the space. It starts as a
worker does, behind the same walls and as the same user, and has no guest. It ends with its socket.

Wrong when: the device library hangs. Then it does not answer, which is an answer, too (space.py).
"""

import argparse
import json
import os
import socket
import sys
from collections.abc import Sequence

from backend_host.space.device import DeviceError, DevicePage
from backend_host.worker.main import WorkerError, become_tenant, enter_walls
from ivshmem.passing import receive_with, send_with

MESSAGE_BYTES = 4096


def main(arguments: Sequence[str] | None = None) -> int:
    """Until the daemon's end of the socket is closed."""
    parser = argparse.ArgumentParser(prog="fairgv-space", description=__doc__.partition("\n")[0])
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--device", type=int, required=True)
    parser.add_argument("--slot", type=int)
    parser.add_argument("--tenant", required=True)
    options = parser.parse_args(arguments)
    walls = json.loads(options.tenant)
    become_tenant(walls)
    with socket.socket(fileno=options.socket) as daemon:
        try:
            page = DevicePage(options.library, options.device)
            enter_walls(walls | {"is_there": True})
        except (OSError, DeviceError, WorkerError) as error:
            daemon.send(json.dumps({"failed": str(error)}).encode())
            return 1
        answer(daemon, page)
    return 0


def answer(daemon: socket.socket, page: DevicePage) -> None:
    """`make` or `take` once, then any number of `probe` and `clear`."""
    while True:
        text, fds = receive_with(daemon, MESSAGE_BYTES, 1)
        if not text:
            return
        asked = json.loads(text)
        operation = asked["op"]
        said: dict[str, object] = {"number": asked["number"]}
        made: list[int] = []
        try:
            if operation == "make":
                made.append(page.make())
                said["multiprocessors"] = page.multiprocessors
            elif operation == "take":
                page.take(fds[0])
                said["multiprocessors"] = page.multiprocessors
            elif operation == "clear":
                page.clear()
            else:
                said["error"] = page.probe()
        except DeviceError as error:
            said["failed"] = str(error)
        send_with(daemon, json.dumps(said).encode(), made)
        for fd in (*made, *fds):
            os.close(fd)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # exit handlers of a device library have been known to hang
