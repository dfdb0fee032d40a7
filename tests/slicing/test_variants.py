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
NR_CHANGES = 125
"""Of each kernel: 1,000 of all, in some seconds. `python -m tests.slicing` makes as many for each."""
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
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process says: a process has one libcuda.so.1."""
    build()
    folder = tmp_path_factory.mktemp("device")
    environment = {
        **os.environ,
        "FAIRGV_SOFTGPU_STATE": str(folder / "state"),
        "FAIRGV_SOFTGPU_CACHE": str(folder / "cache"),
        "FAIRGV_SOFTGPU_COMPILER": f"{sys.executable} -m softgpu.compiler",
    }
    options = ["--library", str(LIBRARY), "--random", str(NR_RANDOM), "--changes", str(NR_CHANGES)]
    command = [sys.executable, "-m", "tests.slicing", "--json", *options]
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stderr
    told: dict[str, Any] = json.loads(result.stdout[result.stdout.index('{"rows"') :])
    return told


@pytest.fixture(scope="module")
def rows(found: dict[str, Any]) -> dict[str, Any]:
    """By kernel."""
    return {row["kernel"]: row for row in found["rows"]}


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


def test_blocks_give_way_where_and_when_the_split_says(found: dict[str, Any]) -> None:
    changes = {changed["kernel"]: changed for changed in found["changes"]}
    assert sorted(changes) == sorted(
        ["indices, moving", *(name for name in HAVE_BOTH if not name.startswith("random"))]
    )
    assert [text for changed in changes.values() for text in changed["wrong"]] == []
    assert min(changed["nr_changes"] for changed in changes.values()) >= NR_CHANGES
    for way in ("nr_gone", "nr_begun_again", "nr_brought_back"):
        assert sum(changed[way] for changed in changes.values()) > 0, way


def test_every_kernel_is_judged(rows: dict[str, Any]) -> None:
    assert sorted(rows) == sorted([*HAVE_BOTH, *IN_BOXES_ALONE, *HAVE_NONE])
    assert Path(__file__).with_name("kernels.cu").read_text().count("__global__ void") == len(rows) - NR_RANDOM + 1
