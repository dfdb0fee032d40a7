"""Where the host's commands begin; see scheduler/begin.py."""

from scheduler.begin import loading


def host() -> int:
    """`fairgv-host`."""
    with loading():
        from backend_host.cli import main  # noqa: PLC0415 - what is loaded
    return main()


def run() -> int:
    """`fairgv-run`."""
    with loading():
        from backend_host.run import main  # noqa: PLC0415 - what is loaded
    return main()
