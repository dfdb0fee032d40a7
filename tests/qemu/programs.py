"""Guest programs of these tests."""

import subprocess
from pathlib import Path

from backend_host.config import PACKAGE_ROOT


def build_program(name: str, folder: Path) -> Path:
    """Compiles NAME.c of this folder into `folder`."""
    program = folder / name
    options = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
    include = ["-I", str(PACKAGE_ROOT / "ivshmem/include")]
    subprocess.run(["cc", *options, *include, "-o", program, Path(__file__).with_name(f"{name}.c")], check=True)
    return program
