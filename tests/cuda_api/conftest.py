"""The vendor's headers, for tests that compare ours with them. They are not part of the project: without them those tests are skipped."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

import pytest


def _candidates() -> list[Path]:
    roots = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    roots.append(Path("/usr/local/cuda"))
    wheels = sorted(Path(sysconfig.get_paths()["purelib"]).glob("nvidia/*"))
    return [root / "include" for root in [*roots, *wheels]]


@pytest.fixture(scope="session")
def cuda_include() -> Path:
    """The folder of a cuda.h of CUDA 13.0, the version that our headers and table copy their facts from."""
    for folder in _candidates():
        header = folder / "cuda.h"
        if header.is_file() and (folder / "cudaTypedefs.h").is_file():
            version = re.search(r"^#define CUDA_VERSION (\d+)", header.read_text(), re.MULTILINE)
            if version and version[1] == "13000":
                return folder
    pytest.skip("no cuda.h of CUDA 13.0 found")
