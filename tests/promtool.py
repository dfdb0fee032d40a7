"""Prometheus' own judge of metrics and alerts, where this machine has it."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROMTOOL = shutil.which("promtool") or shutil.which(ROOT / "build/promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing: make setup brings it")


def promtool(*arguments: str, text: str = "") -> tuple[int, str]:
    """Exit status, and what it said."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], input=text, capture_output=True, text=True, check=False, cwd=ROOT)
    return done.returncode, done.stdout + done.stderr
