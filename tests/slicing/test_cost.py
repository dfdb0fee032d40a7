"""What the loop costs is measured on a GPU; here that all blocks run in each of its ways."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_api.ptx import format_module, parse
from cuda_api.ptx.variants import persist_kernel
from tests.slicing.cost import TEXT, WAYS, without_look
from tests.softgpu.driver_harness import LIBRARY, ROOT, build


def test_every_way_is_measured(tmp_path: Path) -> None:
    build()
    environment = {
        **os.environ,
        "FAIRGV_SOFTGPU_STATE": str(tmp_path / "state"),
        "FAIRGV_SOFTGPU_CACHE": str(tmp_path / "cache"),
        "FAIRGV_SOFTGPU_COMPILER": f"{sys.executable} -m softgpu.compiler",
    }
    options = ["--library", str(LIBRARY), "--blocks-us", "0.1", "--busy-ms", "0.0002", "--rounds", "1", "--json"]
    command = [sys.executable, "-m", "tests.slicing.cost", *options]
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert [cost["kind"] for cost in found] == ["clock", "arithmetic"]
    for cost in found:
        assert list(cost["over_no_look"]) == list(WAYS)
        assert cost["over_no_look"]["no look"] == 1
        assert min(cost["over_no_look"].values()) > 0


@pytest.mark.parametrize("kind", ["clock", "arithmetic"])
def test_what_does_not_look_takes_numbers_all_the_same(kind: str) -> None:
    text = format_module(persist_kernel(parse(TEXT), kind, {}))
    without = without_look(text)
    assert parse(without)
    assert "%smid" in text
    assert "%smid" not in without
    assert "atom.global.add.u64 %fgv_number" in without
