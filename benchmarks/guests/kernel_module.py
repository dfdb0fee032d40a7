"""The guest's kernel module, for the kernel that benchmark guests boot."""

import subprocess
from pathlib import Path, PurePosixPath

from backend_host.config import PACKAGE_ROOT
from backend_host.errors import FairGVError

MODULE_IN_GUEST = PurePosixPath("/fairgv.ko")


def build_module(release: str) -> Path:
    """For this kernel, whose headers must be there. Raises FairGVError with what the build says."""
    command = ["make", "-s", "-C", str(PACKAGE_ROOT / "frontend_guest/kmod"), f"KERNEL={release}"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise FairGVError(f"the kernel module cannot be built: {answer.stderr.strip()}")
    return PACKAGE_ROOT / f"build/kmod/{release}/fairgv.ko"
