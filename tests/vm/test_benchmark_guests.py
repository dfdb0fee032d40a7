"""A virtual machine as the guest of an experiment: one boot, programs with and without a window."""

from pathlib import Path

import pytest

from benchmarks.devices import private_device
from benchmarks.errors import ProgramFailedError
from benchmarks.guests import Setting, open_session, run
from benchmarks.window import run_together
from benchmarks.workloads import parse_report, sized, spin
from scheduler.registry import DEFAULT_POLICY

pytestmark = pytest.mark.vm


def test_a_guest_may_be_a_virtual_machine(tmp_path: Path) -> None:
    product, kernels = sized("matrixMul", "soft"), spin(391, 4)
    programs = [product.path(), kernels.path()]
    with private_device("soft"), open_session(DEFAULT_POLICY, Setting("soft", "vm"), (2,), programs) as machine:
        output = run(machine, 0, product.path(), ["--json", "--rounds", "2"]).checked("matrixMul")
        assert parse_report(output)["checked"] is True
        [outcome] = run_together(machine, [kernels], 0.5)
        assert outcome.throughput > 0
        assert outcome.charged_s
        with pytest.raises(ProgramFailedError, match=r"exit status 2: .*matrixMul"):
            run(machine, 0, product.path(), ["--size", "33"]).checked("matrixMul")
        child = machine.start(0, product.path(), [*product.arguments, "--together"])
        child.stop()
        assert run(machine, 0, product.path(), ["--json", "--rounds", "1"]).exit_code == 0, "the shell is there again"
