"""
Makes the PTX in this folder from the sources beside it.

    make_samples.py nvcc              nvcc of PATH
    make_samples.py nvrtc LIBRARY     libnvrtc.so; needs the toolkit's headers, found beside nvcc
    make_samples.py triton            needs the package triton, which is no dependency of the project

What is here was made by nvcc 13.0.88, NVRTC 13.0.88 and Triton 3.9.0. PTX of another version is as good a sample; the
test takes whatever files it finds. Sources are compiled in a folder of their own, so that no path of this machine gets
into debug information.
"""

import argparse
import ctypes
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORK = Path("/tmp/ptx_samples")

# Name of the sample: source, compute capability, options.
NVCC = {
    "language_75": ("language", "75", ()),
    "debug_75": ("debug", "75", ("-G",)),
    "lineinfo_90": ("debug", "90", ("-lineinfo",)),
    "textures_75": ("textures", "75", ()),
    "groups_75": ("groups", "75", ()),
    "groups_90": ("groups", "90", ("-DCLUSTERS",)),
    "tensor_80": ("tensor", "80", ()),
    "copies_80": ("copies", "80", ()),
    "copies_90": ("copies", "90", ()),
    "hopper_90a": ("hopper", "90a", ()),
    "blackwell_100a": ("blackwell", "100a", ()),
    "launches_75": ("launches", "75", ("-rdc=true",)),
}
NVRTC = {
    "debug_80": ("debug", "80", ("-G",)),
    "lineinfo_75": ("debug", "75", ("-lineinfo", "-use_fast_math")),
    "tensor_90": ("tensor", "90", ()),
    "blackwell_100a": ("blackwell", "100a", ("-rdc=true",)),
}


def with_nvcc() -> None:
    for name, (source, capability, options) in NVCC.items():
        command = ["nvcc", "-ptx", "-std=c++17", f"-arch=compute_{capability}", *options, "-o", f"{name}.ptx"]
        subprocess.run([*command, f"{source}.cu"], check=True, cwd=WORK)
        keep("nvcc", name, (WORK / f"{name}.ptx").read_text())


def with_nvrtc(library: str) -> None:
    nvcc = subprocess.run(["nvcc", "-dryrun", "-x", "cu", "/dev/null"], capture_output=True, text=True, check=True)
    home = re.search(r"^#\$ TOP=(.*)$", nvcc.stderr, re.MULTILINE)
    if home is None:
        sys.exit("nvcc does not say where its toolkit is")
    include = Path(home[1]).resolve() / "include"
    for name, (source, capability, options) in NVRTC.items():
        arguments = [f"--gpu-architecture=compute_{capability}", "--std=c++17", f"-I{include}", f"-I{include}/cccl"]
        keep("nvrtc", name, compile_at_run_time(ctypes.CDLL(library), source, [*arguments, *options]))


def compile_at_run_time(nvrtc: ctypes.CDLL, source: str, options: list[str]) -> str:
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    text = (WORK / f"{source}.cu").read_bytes()
    words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, f"{source}.cu".encode(), 0, None, None)
    if nvrtc.nvrtcCompileProgram(program, len(options), words):
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        sys.exit(log.value.decode())
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, ptx)
    return ptx.value.decode()


def with_triton() -> None:
    os.environ["TRITON_CACHE_DIR"] = str(WORK / "cache")
    sys.path.insert(0, str(WORK))
    for name, ptx in importlib.import_module("triton_kernels").compiled():
        keep("triton", name, ptx)


def keep(compiler: str, name: str, ptx: str) -> None:
    """Files are named without their folder: where a toolkit is installed is of no interest."""
    named = re.sub(r'(^\s*\.file\s+\d+ )"(?:[^"\n]*/)?([^"/\n]+)"(?:\s+"([^"\n]+)")?', _file, ptx, flags=re.MULTILINE)
    (HERE / f"{compiler}_{name}.ptx").write_text(named)


def _file(match: re.Match[str]) -> str:
    return f'{match[1]}"{match[3] or match[2]}"'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1] if __doc__ else None)
    parser.add_argument("compiler", choices=("nvcc", "nvrtc", "triton"))
    parser.add_argument("library", nargs="?", default="libnvrtc.so.13")
    arguments = parser.parse_args()
    WORK.mkdir()
    try:
        for source in [*HERE.glob("*.cu"), HERE / "triton_kernels.py"]:
            shutil.copy(source, WORK)
        if arguments.compiler == "nvcc":
            with_nvcc()
        elif arguments.compiler == "nvrtc":
            with_nvrtc(arguments.library)
        else:
            with_triton()
    finally:
        shutil.rmtree(WORK)


if __name__ == "__main__":
    main()
