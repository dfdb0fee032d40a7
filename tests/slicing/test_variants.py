"""Variants leave in memory what their kernels leave, on softgpu; kernels that cannot have any are known."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.softgpu.driver_harness import LIBRARY, ROOT, build

NR_RANDOM = 6
HAVE_BOTH = [
    "atomics",
    "early_return",
    "indices",
    "last_block",
    "left_in_shared",
    "prints",
    "tiles",
    "warps",
    *(f"random_{seed}" for seed in range(NR_RANDOM)),
]
IN_BOXES_ALONE = {"early_return_at_barriers": "early returns", "functions": "early returns"}
HAVE_NONE = {
    "looks_back": "waits for blocks",
    "takes_turns": "waits for blocks",
    "polls_in_an_inner_loop": "waits for blocks",
    "polls_in_a_function": "waits for blocks",
    "calls_by_address": "indirect calls",
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By kernel, from one process: a process has one libcuda.so.1."""
    build()
    folder = tmp_path_factory.mktemp("device")
    environment = {
        **os.environ,
        "FAIRGV_SOFTGPU_STATE": str(folder / "state"),
        "FAIRGV_SOFTGPU_CACHE": str(folder / "cache"),
        "FAIRGV_SOFTGPU_COMPILER": f"{sys.executable} -m softgpu.compiler",
    }
    command = [sys.executable, "-m", "tests.slicing", "--json", "--library", str(LIBRARY), "--random", str(NR_RANDOM)]
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stderr
    return {row["kernel"]: row for row in json.loads(result.stdout[result.stdout.index("[{") :])}


@pytest.mark.parametrize("kernel", HAVE_BOTH)
def test_the_same_in_boxes_and_persistently(rows: dict[str, Any], kernel: str) -> None:
    row = rows[kernel]
    assert row["wrong"] == []
    assert row["sliced"].endswith(" same")
    assert row["persistent"].endswith(" same")


@pytest.mark.parametrize("kernel", IN_BOXES_ALONE)
def test_the_same_in_boxes_alone(rows: dict[str, Any], kernel: str) -> None:
    row = rows[kernel]
    assert row["wrong"] == []
    assert row["sliced"].endswith(" same")
    assert row["persistent"] == IN_BOXES_ALONE[kernel]


@pytest.mark.parametrize("kernel", HAVE_NONE)
def test_has_no_variant(rows: dict[str, Any], kernel: str) -> None:
    assert rows[kernel]["sliced"] == rows[kernel]["persistent"] == HAVE_NONE[kernel]


def test_blocks_keep_to_their_multiprocessors(rows: dict[str, Any]) -> None:
    assert rows.pop("indices on no multiprocessor")["wrong"] == []


def test_every_kernel_is_judged(rows: dict[str, Any]) -> None:
    rows.pop("indices on no multiprocessor", None)
    assert sorted(rows) == sorted([*HAVE_BOTH, *IN_BOXES_ALONE, *HAVE_NONE])
    assert Path(__file__).with_name("kernels.cu").read_text().count("__global__ void") == len(rows) - NR_RANDOM + 1
