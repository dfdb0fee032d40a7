"""Programs in a space, and what the daemon says of them."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.end_to_end.host import Host, wait_until

CRITICAL = ("--vgpu", "fast", "--class", "critical", "--qos", "1.2", "--space", "web")
BEST_EFFORT = ("--vgpu", "slow", "--class", "best-effort", "--space", "web")


@contextlib.contextmanager
def program(host: Host, options: tuple[str, ...]) -> Iterator[subprocess.Popen[str]]:
    """One that computes until the end of the block, and has to have computed right by then."""
    child = host.start("restless", stdin=subprocess.PIPE, options=options)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child
        output, errors = child.communicate(timeout=60)
        assert child.returncode == 0, output + errors
    finally:
        child.kill()
        child.communicate()


def vgpu(host: Host, name: str) -> dict[str, Any]:
    [found] = [each for each in host.status()["vgpus"] if each["name"] == name]
    return dict(found)


def worker(host: Host, name: str) -> int:
    """That of its one program, once others of it have ended."""
    wait_until(lambda: len(vgpu(host, name)["clients"]) == 1, "it has one program")
    [client] = vgpu(host, name)["clients"]
    return int(client["worker_pid"])


def space(host: Host) -> dict[str, Any]:
    [found] = host.status()["spaces"]
    return dict(found)


def processes(host: Host) -> dict[int, dict[str, str]]:
    """Those of the host's spaces, by their ids, each with its environment and, as `arguments`, its command line."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "environ").read_text(errors="replace").split("\0")
            environment = dict(word.partition("=")[::2] for word in words)
            is_of_host = environment.get("FAIRGV_SOFTGPU_STATE") == str(host.state_dir / "softgpu")
            if is_of_host and "FAIRGV_SOFTGPU_SPACE" in environment:
                arguments = (process / "cmdline").read_text(errors="replace").replace("\0", " ")
                found[int(process.name)] = {**environment, "arguments": arguments}
    return found
