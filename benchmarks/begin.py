"""Where `fairgv-bench` begins; see scheduler/begin.py."""

from scheduler.begin import loading


def bench() -> int:
    """`fairgv-bench`."""
    with loading():
        from benchmarks.cli import main  # noqa: PLC0415 - what is loaded
    return main()
