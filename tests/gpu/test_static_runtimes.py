"""The static runtimes of CUDA 12.4 and 12.8, which come inside NVIDIA's libraries, compute through FairGV what they compute natively."""

import os
import sys
from pathlib import Path

import pytest

from tests.cuda_api.wheels import library, unpacked
from tests.end_to_end.host import Host, comparable

pytestmark = pytest.mark.gpu

CLIENT = Path(__file__).with_name("jpeg_client.py")


@pytest.fixture
def without_video_driver(tmp_path: Path) -> str:
    """A folder to search first, in which the video library cannot be loaded: a guest has no other part of NVIDIA's driver either.

    nvJPEG asks it for the JPEG engine, and it waits for ever for a driver of its own kind beside our library.
    """
    (tmp_path / "libnvcuvid.so.1").touch()
    return str(tmp_path)


@pytest.mark.parametrize(("version", "runtime"), [("12.3.1.117", "runtime 12.4"), ("12.3.5.92", "runtime 12.8")])
def test_a_library_with_a_runtime_inside(
    gpu_host: Host, version: str, runtime: str, without_video_driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvjpeg = str(library(unpacked("nvidia-nvjpeg-cu12", version), "libnvjpeg.so.12"))
    native = gpu_host.native(sys.executable, str(CLIENT), nvjpeg)
    search = [without_video_driver, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    monkeypatch.setenv("LD_LIBRARY_PATH", ":".join(search))
    guest = gpu_host.guest(sys.executable, str(CLIENT), nvjpeg)
    assert native.returncode == 0, native.stderr
    assert native.stdout.startswith(runtime)
    assert comparable(guest) == comparable(native), guest.stderr
