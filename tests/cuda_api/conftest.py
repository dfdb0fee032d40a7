"""The handshake's smallest library; and the vendor's headers, for tests that compare ours with them.

The headers are not part of the project: without them those tests are skipped.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterator
from ctypes import c_int
from pathlib import Path

import pytest

from tests.cuda_api.embedder import SUCCESS, Embedder, build_embedder


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


@pytest.fixture(scope="session")
def library_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of handshake_embedder.c."""
    return build_embedder(tmp_path_factory.mktemp("handshake"))


@pytest.fixture
def embedder(library_path: Path) -> Iterator[Embedder]:
    """The same, loaded, with no device and no context."""
    embedder = Embedder(library_path)
    embedder.library.embedder_start()
    embedder.make_current(None)
    c_int.in_dll(embedder.library, "nr_devices").value = 0
    c_int.in_dll(embedder.library, "driver_version").value = 13000
    c_int.in_dll(embedder.library, "device_result").value = SUCCESS
    yield embedder
    embedder.make_current(None)
