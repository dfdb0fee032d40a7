"""A daemon for the time of one command, where no other runs. Apart from `fairgv-run`, which mostly does without all of this."""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from backend_host.config import load_config
from backend_host.launching import daemon_for_now, how_it_ended, is_alive


@contextlib.contextmanager
def private_daemon(device: str, *, goes_around: bool) -> Iterator[Path]:
    """See `daemon_for_now`; at the end what went wrong is told, as the log goes with the daemon. `goes_around`: it may serve a device that
    another daemon serves."""
    with tempfile.TemporaryDirectory(prefix="fairgv-", ignore_cleanup_errors=True) as directory:
        state_dir = Path(directory)
        state_dir.chmod(0o711)  # workers of another user pass through
        config = load_config(None, state_dir=state_dir, device=device, is_private=True, goes_around=goes_around)
        with daemon_for_now(config) as pid:
            try:
                yield state_dir
            finally:
                if is_alive(pid):
                    _show_errors(config.log_path)
                else:
                    print(f"fairgv-run: {how_it_ended(config, 'before the program')}", file=sys.stderr)


def _show_errors(log_path: Path) -> None:
    with contextlib.suppress(OSError), log_path.open(errors="replace") as lines:
        for line in lines:
            if " ERROR " in line:
                print(f"fairgv-run: the daemon said: {line.rstrip()}", file=sys.stderr)
