"""Nothing that a guest writes into an image costs its worker more than a bounded time and memory, or ends in an exception."""

import resource
import subprocess
import sys

import pytest

from backend_host.worker.declarations import UNKNOWABLE_BYTES
from backend_host.worker.needs import needs_bytes
from tests.backend_host.hostile_images import CAPABILITY, IMAGES, NAMES, image_of
from tests.backend_host.worker_guest import ROOT

MOST_BYTES = 3 << 30
"""Of address space. The largest text may be 4 MiB, and becomes a tree of two hundred times that."""
MOST_CPU_S = 120
"""Those whose time grew with the square of their size took hours."""


def limit() -> None:
    """In the child, before it begins."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))


@pytest.mark.parametrize("name", NAMES)
def test_a_worker_looks_into_it(name: str) -> None:
    command = [sys.executable, "-m", "tests.backend_host.hostile_images", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=limit, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("name", ["what unpacks", "sections of no file"])
def test_what_cannot_be_made_out_is_not_free(name: str) -> None:
    image = image_of(name)
    assert needs_bytes(image, CAPABILITY, is_exact=True) >= len(image)


def test_a_bomb_is_for_no_quota() -> None:
    assert needs_bytes(IMAGES["what unpacks"](), CAPABILITY, is_exact=True) == UNKNOWABLE_BYTES
