"""A daemon for the time of one command, where no other runs. Apart from `fairgv-run`, which mostly does without all of this."""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from backend_host.config import load_config
from backend_host.launching import launch, wait_for_end, wait_for_start


@contextlib.contextmanager
def private_daemon(device: str, *, goes_around: bool) -> Iterator[Path]:
    """It ends when the socket to it is closed, even by our sudden death, and takes its directory away. `goes_around`: it may serve a device
    that another daemon serves."""
    with tempfile.TemporaryDirectory(prefix="fairgv-", ignore_cleanup_errors=True) as directory:
        state_dir = Path(directory)
        state_dir.chmod(0o711)  # workers of another user pass through
        config = load_config(None, state_dir=state_dir, device=device, is_private=True, goes_around=goes_around)
        pid, other_end = launch(config)
        with contextlib.ExitStack() as stack:
            stack.callback(wait_for_end, pid)
            stack.enter_context(other_end)
            wait_for_start(config, other_end)
            stack.callback(_show_errors, config.log_path)  # which goes with the daemon
            yield state_dir


def _show_errors(log_path: Path) -> None:
    with contextlib.suppress(OSError), log_path.open(errors="replace") as lines:
        for line in lines:
            if " ERROR " in line:
                print(f"fairgv-run: the daemon said: {line.rstrip()}", file=sys.stderr)
