"""Memory that programs share stays in their guest."""

import socket
import subprocess
import sys

from tests.end_to_end.host import PROGRAMS, TIMEOUT_S, Host


def start(host: Host, vgpu: str, end: socket.socket, *command: str) -> subprocess.Popen[str]:
    """A program of this vGPU that speaks to another one through this socket, which it inherits."""
    run = [sys.executable, "-m", "backend_host.run", "--state-dir", str(host.state_dir), "--vgpu", vgpu, "--"]
    child = subprocess.Popen(
        [*run, str(PROGRAMS / command[0]), *command[1:], str(end.fileno())],
        pass_fds=[end.fileno()],
        stdout=subprocess.PIPE,
        text=True,
    )
    end.close()
    return child


def test_a_pool_of_another_guest_is_refused(host: Host) -> None:
    for vgpu, answer in (("own", "CUDA_SUCCESS"), ("other", "CUDA_ERROR_INVALID_VALUE")):
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        exporter = start(host, "own", ends[0], "share_pool", "second")
        importer = start(host, vgpu, ends[1], "share_pool_misuse", "foreign")
        assert importer.communicate(timeout=TIMEOUT_S)[0] == f"of another guest: {answer}\nPASS\n"
        exporter.communicate(timeout=TIMEOUT_S)
