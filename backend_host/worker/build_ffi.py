"""Builds `backend_host.worker._worker`: the worker and the control page, in C, for Python. Run as `python -m backend_host.worker.build_ffi`.

Everything is compiled into one extension module next to this file, but for backend_host/channels: that is a library by itself, since a worker
has it loaded before libc. CFLAGS and LDFLAGS of the environment are added, so that the same code builds with sanitizers. With
FAIRGV_DEBUG=1 there a worker stops at its own mistakes.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from cffi import FFI

from backend_host import channels

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


INCLUDES = [HERE, HERE / "generated", HERE.parent, ROOT / "cuda_api" / "include", ROOT / "ivshmem" / "include"]
WARNINGS = ["-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]
HIDDEN = "-fvisibility=hidden"
"""Calls between files of the module go straight, not through a table that another library could change."""
DEBUG = "-DFGW_DEBUG"
"""With it a worker stops at its own mistakes, where it otherwise counts them: when FAIRGV_DEBUG=1 is in the environment."""

HEADERS = (
    "page/grantee.h",
    "page/bell.h",
    "page/account.h",
    "page/allowance.h",
    "page/outlook.h",
    "page/motion.h",
    "page/sleep.h",
    "page/space.h",
    "page/room.h",
    "page/shares.h",
    "page/demand.h",
    "page/grant.h",
    "page/apart.h",
    "page/hand_over.h",
    "page/lives.h",
    "generated/counters.h",
    "page/control.h",
    "turn/phase.h",
    "turn/patience.h",
    "client/state.h",
    "client/printing.h",
    "client/taken.h",
    "client/attach.h",
    "calls/bound.h",
    "calls/fingerprint.h",
    "calls/image_memory.h",
    "calls/kept_image.h",
    "calls/span.h",
    "calls/space.h",
    "loop/face.h",
    "parts/grid.h",
    "parts/state.h",
    "parts/variant.h",
    "parts/making.h",
    "device/boost.h",
    "device/audit.h",
    "walls/start.h",
    "walls/enter.h",
    "walls/lend.h",
    "device/apart.h",
)
"""What Python calls, in an order in which each needs only those before it."""

CONSTANTS = """
#define FGW_MAX_VGPUS ...
#define FGW_MAX_WORKERS ...
#define FGW_CONTROL_VERSION ...
#define FGW_COUNTERS_LAYOUT ...
#define FGW_CONTROL_OBJECTS ...
#define FGW_NR_HAND_OVERS ...
#define FGW_NR_ROUNDS ...
#define FGW_BOOST_MAX_THREADS ...
#define FGW_GRANT_UNUSED_NS ...
#define FGW_SPLIT_WHOLE ...
struct fgw_control;
struct fgw_decided_vgpu;
struct fgw_account;
struct fgw_seat;
struct fgw_worker_slot;
extern "Python+C" uint64_t fgv_image_needs(const uint8_t *image, uint64_t image_bytes, uint32_t capability, bool is_exact);
struct fgw_grantee;
void fgw_grant_show_phase(const struct fgw_grantee *grantee, uint32_t phase);
extern "Python+C" uint32_t fgv_image_binds(const uint8_t *image, uint64_t image_bytes, uint32_t capability, uint64_t ticket);
extern "Python+C" bool fgv_image_nests(const uint8_t *image, uint64_t image_bytes, uint32_t capability);
extern "Python+C" int32_t fgv_image_inspect(const uint8_t *image, uint64_t image_bytes, uint32_t capability);
struct fgw_making;
extern "Python+C" void fgv_variants_keep(uint32_t owner_kind, uint64_t owner, const uint8_t *image, uint64_t image_bytes);
extern "Python+C" void fgv_variants_forget(uint32_t owner_kind, uint64_t owner);
extern "Python+C" void fgv_variants_read(struct fgw_making *making);
extern "Python+C" void fgv_variants_go_on(struct fgw_making *making);
"""

_BLOCK = re.compile(r"/\* cffi: begin \*/(.*?)/\* cffi: end \*/", re.DOTALL)


def sources() -> list[Path]:
    """Every C file of the worker, the generated ones, the booster of the daemon, the walls, and the transport that is compiled in."""
    beside = (HERE.parent / "device", HERE.parent / "walls", ROOT / "ivshmem" / "src")
    files = [*HERE.rglob("*.c"), *(path for folder in beside for path in folder.glob("*.c"))]
    return [*sorted(files), ROOT / "cuda_api" / "generated" / "call_info.c"]


def declarations() -> str:
    """What cffi is to know: the parts of our headers between the cffi marks, so that no declaration stands twice."""
    paths = [next(path for folder in INCLUDES if (path := folder / name).exists()) for name in HEADERS]
    texts = [path.read_text() for path in paths]
    return CONSTANTS + "".join(block for text in texts for block in _BLOCK.findall(text))


def make() -> FFI:
    """The cffi builder, with flags from the environment."""
    builder = FFI()
    builder.cdef(declarations())
    flags = shlex.split(os.environ.get("CFLAGS", ""))
    if os.environ.get("FAIRGV_DEBUG") == "1":
        flags.append(DEBUG)
    builder.set_source(
        "_worker",
        "".join(f'#include "{name}"\n' for name in HEADERS),
        sources=[str(path) for path in sources()],
        include_dirs=[str(path) for path in INCLUDES],
        extra_compile_args=[*WARNINGS, HIDDEN, *flags],
        extra_link_args=[
            *(flag for flag in flags if flag.startswith("-fsanitize")),
            *shlex.split(os.environ.get("LDFLAGS", "")),
        ],
        libraries=["dl"],
    )
    return builder


def build_channels(to: Path = channels.LIBRARY) -> Path:
    """Compiles the library that workers have loaded before libc, and returns `to`. The file is replaced whole, as below."""
    fresh = to.with_name(f".{to.name}.{os.getpid()}")
    flags = [*WARNINGS, "-D_GNU_SOURCE", "-fPIC", "-shared"]
    subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", str(fresh), str(channels.SOURCE)], check=True)
    fresh.replace(to)
    return to


def build(to: Path) -> Path:
    """Compiles into the folder `to` and returns the module's path. The file is replaced whole: running workers keep theirs."""
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        built = Path(make().compile(tmpdir=folder))
        target = to / built.name
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copyfile(built, fresh)
    fresh.replace(target)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--to", type=Path, default=HERE, metavar="DIR", help="where to put the module (default: beside this file)"
    )
    print(build(parser.parse_args().to))
    print(build_channels())


if __name__ == "__main__":
    main()
