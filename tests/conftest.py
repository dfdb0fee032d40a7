"""For all tests: signals as at a terminal, no deadlines, and how tests are shared out among processes.

What a shell or `nohup` has ignored or blocked for a background job stays so in every child.
"""

import contextlib
import signal
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

with contextlib.suppress(ModuleNotFoundError):  # the tests of a GPU do without it
    from hypothesis import settings

    settings.register_profile("fairgv", deadline=None)  # how long an example takes is the machine's affair
    settings.load_profile("fairgv")

for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _group(place: Path) -> str:
    """Tests of one group run in one process. `place`: of a file, from the folder of all tests."""
    return "vm" if place.parts[0] == "vm" else str(place)


LONGEST = [
    "vm",
    "softgpu/test_compiler_programs.py",
    "end_to_end/test_restart.py",
    "benchmarks/test_experiments.py",
    "endurance/test_endurance.py",
    "slicing/test_forced.py",
    "softgpu/test_driver_sanitized.py",
    "gloop/test_files.py",
    "test_gate.py",
]
"""Groups that begin, so that no process is left with one of them at the end: those of a minute or more, and what would come late."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long ones first, the others as they were."""
    places = {group: place for place, group in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(_group(item.path.relative_to(HERE)), len(LONGEST)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`, a file's tests stay in one process, for what they share, and those that boot machines do all together."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - there only when it is used

    class Groups(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _group(Path(nodeid.partition("::")[0]).relative_to(HERE.name))

    return Groups(config, log)
