"""All cases, once natively and once through FairGV: at the same time on softgpu, one after the other on a GPU, which they would share."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conformance.build import DRIVER, RUNTIME, build_all
from tests.conformance.comparing import Known, case_names, compare
from tests.end_to_end.host import Host

TIMEOUT_S = 280
NR_APART = {"soft": 0, "cuda": 12}
"""Processes with one case each at a time; 0: the cases that allow it share one."""
NAMES = {DRIVER: case_names("*.c"), RUNTIME: case_names("*.cu")}
ALL_NAMES = [name for names in NAMES.values() for name in names]


@dataclass(frozen=True)
class Outputs:
    """Case to the lines that it printed."""

    native: dict[str, list[str]]
    guest: dict[str, list[str]]


def _start_native(host: Host, command: Sequence[str], state_dir: Path) -> subprocess.Popen[str]:
    """On a softgpu of its own, so that neither run sees the memory of the other."""
    environment = host.environment(FAIRGV_SOFTGPU_STATE=str(state_dir / "native"))
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _finish(child: subprocess.Popen[str]) -> dict[str, list[str]]:
    try:
        output, errors = child.communicate(timeout=TIMEOUT_S)
    finally:
        child.terminate()
        child.wait()
    assert child.returncode == 0, errors
    printed: dict[str, list[str]] = json.loads(output)
    return printed


def run_both_ways(
    host: Host, names: Sequence[str], state_dir: Path, native_outputs: Mapping[str, list[str]] | None = None
) -> Outputs:
    """Builds what is stale, and runs these cases of both programs; natively not where those outputs are known."""
    build_all()
    outputs = Outputs(dict(native_outputs or {}), {})
    for program, known in NAMES.items():
        chosen = [name for name in known if name in names]
        if chosen:
            command = [sys.executable, "-m", "tests.conformance.launch"]
            command += ["--apart", str(NR_APART[host.device]), str(program), *chosen]
            native = _start_native(host, command, state_dir) if native_outputs is None else None
            if native and host.device != "soft":
                outputs.native.update(_finish(native))
            guest = host.start(command[0], *command[1:])
            if native and host.device == "soft":
                outputs.native.update(_finish(native))
            outputs.guest.update(_finish(guest))
    return outputs


def chosen_cases(request: pytest.FixtureRequest) -> list[str]:
    """The cases that this run of pytest wants of the asking module."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    return [str(item.callspec.params["case"]) for item in items if item.path == request.path]


def problems(outputs: Outputs, case: str, known: Iterable[Known], device: str) -> str:
    """What is wrong with one case; empty when nothing is."""
    if not outputs.native[case]:
        return "a case that prints nothing shows nothing"
    comparison = compare(case, outputs.native[case], outputs.guest[case], known, device)
    lines = ["differs:", *comparison.unexpected] if comparison.unexpected else []
    if comparison.vanished:
        lines += ["agrees now, take it out of differences.toml:", *comparison.vanished]
    return "\n".join(lines)
