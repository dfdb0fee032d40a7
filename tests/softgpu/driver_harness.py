"""Builds softgpu's library and the cases of driver_cases.c, and runs them as processes on a device of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "build" / "softgpu" / "libcuda.so.1"
CASES = ROOT / "build" / "tests" / "driver_cases"
SANITIZED_LIBRARY = ROOT / "build" / "softgpu-sanitized" / "libcuda.so.1"
SANITIZED_CASES = ROOT / "build" / "tests" / "driver_cases_sanitized"
TIMEOUT_S = 120
FAILURE_OFFSET = 32
"""In the file of a device (docs/softgpu.md)."""


def _build(target: str, library: Path, cases: Path, *flags: str) -> None:
    subprocess.run(["make", "-s", "-C", str(ROOT / "softgpu"), f"PYTHON={sys.executable}", target], check=True)
    sources = sorted(Path(__file__).parent.glob("driver_cases*"))
    if cases.exists() and cases.stat().st_mtime > max(path.stat().st_mtime for path in (*sources, library)):
        return
    cases.parent.mkdir(parents=True, exist_ok=True)
    unfinished = cases.with_suffix(f".{os.getpid()}")
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread", *flags]
    command += ["-I", str(ROOT / "cuda_api" / "include"), "-I", str(ROOT), "-o", str(unfinished)]
    command += [str(source) for source in sources if source.suffix == ".c"] + [str(library)]
    subprocess.run(command, check=True)
    unfinished.replace(cases)


def build() -> None:
    """The library and the cases; nothing when both are up to date."""
    _build("all", LIBRARY, CASES)


def build_sanitized() -> None:
    """Both under AddressSanitizer and UndefinedBehaviorSanitizer."""
    _build("sanitized", SANITIZED_LIBRARY, SANITIZED_CASES, "-fsanitize=address,undefined")


@dataclass(frozen=True)
class Device:
    """A softgpu of its own: shared file, cache and settings."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def with_settings(self, **settings: str) -> Device:
        return replace(self, settings=self.settings | settings)

    def close(self) -> None:
        """Ends what a test left behind."""
        for process in self.processes:
            process.kill()
            process.communicate()

    @property
    def state(self) -> Path:
        return self.folder / "state.0"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def environment(self) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRGV_")}
        environment["LD_LIBRARY_PATH"] = str(LIBRARY.parent)
        environment["FAIRGV_SOFTGPU_STATE"] = str(self.folder / "state")
        environment["FAIRGV_SOFTGPU_CACHE"] = str(self.cache)
        return environment | self.settings

    def start(self, *command: str | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            list(command), env=self.environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.processes.append(process)
        return process

    def start_case(self, name: str, argument: str = "") -> subprocess.Popen[str]:
        return self.start(CASES, name, argument)

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(command), env=self.environment(), text=True, capture_output=True, timeout=TIMEOUT_S, check=False
        )

    def run_case(self, name: str, argument: str = "") -> subprocess.CompletedProcess[str]:
        return self.run(CASES, name, argument)

    def fail(self, error: int, number: int = 0) -> None:
        """Lets a device fail with this error; 0 puts it right. See state.h."""
        with (self.folder / f"state.{number}").open("r+b") as state:
            state.seek(FAILURE_OFFSET)
            state.write(error.to_bytes(4, "little"))

    def nr_kernels(self) -> int:
        """Kernels served since the shared file was made; see state.h for its layout."""
        return int.from_bytes(self.state.read_bytes()[24:32], "little")


def heard(process: subprocess.Popen[str]) -> str:
    """The next line of a case."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], text: str = "") -> None:
    """A line to a case that waits for one."""
    assert process.stdin is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()


def kill(process: subprocess.Popen[str]) -> None:
    """Ends a case at once."""
    process.kill()
    process.wait(TIMEOUT_S)
