"""Memory and reservations are found by address in few steps, however many there are. Steps are counted, not timed."""

import subprocess
from pathlib import Path

from tests.softgpu.driver_harness import ROOT

DRIVER = ROOT / "softgpu" / "driver"


def test_ranges_are_found_in_few_steps(tmp_path: Path) -> None:
    program = tmp_path / "ranges"
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-fsanitize=address,undefined"]
    command += ["-I", str(DRIVER), "-o", str(program)]
    subprocess.run([*command, str(Path(__file__).with_name("ranges.c")), str(DRIVER / "base" / "ranges.c")], check=True)
    assert subprocess.run([program], check=True, capture_output=True, text=True, timeout=60).stdout == "PASS\n"
