"""benchmarks.preemption without a GPU: what its program computes, and its tables."""

import errno
import json
import subprocess
from collections.abc import Iterator

import pytest

from benchmarks.devices import native_environment, private_device
from benchmarks.preemption.__main__ import Tenant, UnexpectedAnswerError, build_tenant, expect
from benchmarks.preemption.grid import preemption_grids


@pytest.fixture(scope="module")
def tenant() -> Iterator[Tenant]:
    with private_device("soft"), Tenant(native_environment("soft")) as tenant:
        yield tenant


def test_the_kernel_computes_the_same_again(tenant: Tenant) -> None:
    tenant.ask("start 0.1")
    first = tenant.ask("finish")
    tenant.ask("start 0.1")
    assert tenant.ask("finish")["digest"] == first["digest"]
    tenant.ask("start 0.2")
    assert tenant.ask("finish")["digest"] != first["digest"]


@pytest.mark.parametrize("command", ["timeslice", "timeslice 5", "preempt 3", "hold", "release", "alternate 3 5"])
def test_a_device_without_channels_ends_the_experiment(tenant: Tenant, command: str) -> None:
    assert tenant.found == {"groups": 0, "computing": 0, "channels": 0}
    record = tenant.control(command, command)
    assert [answer["errno"] for answer in record["answers"]] == [errno.ENODEV]
    with pytest.raises(UnexpectedAnswerError, match=f"^{command}: errno {errno.ENODEV}"):
        expect(record)


def test_tables() -> None:
    answers = [{"errno": 0, "status": 0, "us": 5.0}, {"errno": 0, "status": 0x1B, "us": 9.0}]
    document = {
        "records": [
            {"kind": "control", "what": "held", "answers": answers},
            {"kind": "wait", "what": "absent", "us": [float(us) for us in range(100, 0, -1)]},
            {"kind": "verdict", "what": "a kernel", "verdict": "stands still"},
        ]
    }
    controls, waits, verdicts = preemption_grids(json.loads(json.dumps(document)))
    assert controls.rows == (("held", "2", "status 0x1b", "7", "9"),)
    assert waits.rows == (("absent", "100", "51", "91", "100"),)
    assert verdicts.rows == (("a kernel", "stands still"),)


def test_the_program_stands_before_libcs_ioctl() -> None:
    symbols = subprocess.run(["nm", "-D", build_tenant()], capture_output=True, text=True, check=True).stdout
    assert any(line.split()[-2:] == ["T", "ioctl"] for line in symbols.splitlines())
