"""Device libraries that stand between a worker and softgpu: each passes on what it is asked, but for what its C file says."""

import subprocess
from pathlib import Path

from tests.backend_host.worker_guest import ROOT
from tests.backend_host.worker_harness import SOFTGPU


def build_between(name: str, folder: Path) -> Path:
    """NAME.c, beside this file, as a library in `folder`."""
    built = folder / f"libcuda_{name}.so"
    source = Path(__file__).with_name(f"{name}.c")
    command = ["cc", "-shared", "-fPIC", f"-I{ROOT / 'cuda_api' / 'include'}", str(source), "-Wl,--no-as-needed"]
    subprocess.run([*command, str(SOFTGPU), f"-Wl,-rpath,{SOFTGPU.parent}", "-o", str(built)], check=True)
    return built
