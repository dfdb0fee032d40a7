"""The libnvidia-ml.so.1 of nvml_library.c, for processes that ask NVML."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml_library.c")


def build_library(folder: Path) -> None:
    """Into this folder."""
    command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)], check=True)
