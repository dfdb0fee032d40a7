"""Processes of driver_cases_remote.c: one that asks for others, and one that is asked."""

from __future__ import annotations

from pathlib import Path

from tests.softgpu.driver_harness import CASES, Device, heard, tell

OK = "CUDA_SUCCESS"


class Other:
    """A process that does what it is told."""

    def __init__(self, device: Device, case: str, argument: str = "", cases: Path = CASES) -> None:
        self.process = device.start(cases, case, argument)
        self.pid = self.process.pid
        assert heard(self.process) == "ready"

    def does(self, line: str) -> str:
        """What it answers."""
        tell(self.process, line)
        return heard(self.process)


class Asker(Other):
    """One that asks for others."""

    def __init__(self, device: Device, cases: Path = CASES) -> None:
        super().__init__(device, "ask", cases=cases)

    def asks(self, what: str, pid: int, argument: str = "") -> str:
        """The result of the call, and what it gave."""
        return self.does(f"{what} {pid} {argument}").removeprefix(f"{what} ")

    def has_state(self, pid: int) -> int:
        """Of the process."""
        state, result = self.asks("state", pid).split()
        assert result == OK
        return int(state)

    def goes_round(self, pid: int, pairs: str = "") -> list[str]:
        """All four calls."""
        steps = (("lock", "10000"), ("checkpoint", ""), ("restore", pairs), ("unlock", ""))
        return [self.asks(step, pid, argument) for step, argument in steps]
