"""Where `fairgv-sim` begins; see scheduler/begin.py."""

from scheduler.begin import loading


def simulator() -> int:
    """`fairgv-sim`."""
    with loading():
        from scheduler.simulator.command import main  # noqa: PLC0415 - what is loaded
    return main()
