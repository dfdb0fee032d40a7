"""For all tests: signals as at a terminal, and how tests are shared out among processes.

What a shell or `nohup` has ignored or blocked for a background job stays so in every child.
"""

import signal
from pathlib import Path

import pytest

HERE = Path(__file__).parent

for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.pthread_sigmask(signal.SIG_SETMASK, [])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `-n`, a file's tests stay in one process, for what they share; those that boot machines all do, and begin, as they take longest."""

    def group(item: pytest.Item) -> str:
        place = item.path.relative_to(HERE)
        return "vm" if place.parts[0] == "vm" else str(place)

    items.sort(key=lambda item: group(item) != "vm")
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
