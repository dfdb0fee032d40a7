"""A guest's kernel cannot reach its worker: not the control page, not the stack, no library's data, no other region.

Each attack is a kernel that is told an address of the worker's, and stores there or loads from it. The addresses are those of the worker's own
mappings; what is there is looked at from outside.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ivshmem.region import Region
from tests.backend_host.test_worker_order import Kernels
from tests.backend_host.worker_guest import FUNCTION, MODULE, NO_CHUNK, Guest, kernel_image, make_region
from tests.backend_host.worker_harness import Host, Served

PTX = """
.version 7.0
.target sm_80
.address_size 64
.extern .func (.param .b32 answer) vprintf(.param .b64 format, .param .b64 arguments);
.visible .entry put(.param .u64 at)
{
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [at];
    mov.u64 %rd2, 0x5a5a5a5a5a5a5a5a;
    st.global.u64 [%rd1], %rd2;
    ret;
}
.visible .entry add(.param .u64 at)
{
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [at];
    atom.global.add.u64 %rd2, [%rd1], 1;
    ret;
}
.visible .entry get(.param .u64 at, .param .u64 out)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [at];
    ld.param.u64 %rd2, [out];
    ld.global.u64 %rd3, [%rd1];
    not.b64 %rd3, %rd3;
    st.global.u64 [%rd2], %rd3;
    ret;
}
.visible .entry spell(.param .u64 at)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<2>;
    .param .b64 format;
    .param .b64 arguments;
    .param .b32 answer;
    ld.param.u64 %rd1, [at];
    st.param.b64 [format], %rd1;
    st.param.b64 [arguments], %rd1;
    call.uni (answer), vprintf, (format, arguments);
    ret;
}
"""
ILLEGAL_ADDRESS = 700
KERNELS = {name: FUNCTION + 16 + i for i, name in enumerate(("put", "add", "get", "spell"))}
REGION_ADDRESS = 0x680000000000 + (7 << 40)
"""Where guests have it, within reach of softgpu's kernels."""
KINDS = ("page decided", "page grant", "page vgpu-0", "[stack]", "[heap]", "libc.so.6", "libcuda.so.1")
MARK = b"\x5a" * 8
"""What `put` stores."""
SHARED = ("fairgv-decided", "fairgv-grant", "fairgv-vgpu-", "fairgv-other")


@dataclass(frozen=True)
class Mapping:
    """Of a process; `what` is the file behind it, or a name of the kernel's."""

    start: int
    end: int
    access: str
    what: str


def mappings(pid: int) -> list[Mapping]:
    """All of a process."""
    found = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        place, access, _, _, _, *what = line.split(maxsplit=5)
        start, end = (int(part, 16) for part in place.split("-"))
        found.append(Mapping(start, end, access, what[0] if what else ""))
    return found


def targets(pid: int) -> dict[str, int]:
    """A word of each kind of memory that a worker has beside its client's; writable but for what the daemon decides."""
    found = {}
    for mapping in mappings(pid):
        middle = mapping.start + (mapping.end - mapping.start) // 2 // 64 * 64
        if "memfd:fairgv-" in mapping.what:
            found["page " + mapping.what.split("fairgv-")[1].split()[0]] = mapping.start + 64
        elif "w" not in mapping.access:
            continue
        elif mapping.what in ("[stack]", "[heap]"):
            found[mapping.what] = middle
        elif "libc.so" in mapping.what or "libcuda.so" in mapping.what:
            found[Path(mapping.what).name] = middle
    return found


def word_at(pid: int, address: int) -> bytes:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(8)


def ready(guest: Guest) -> int:
    """Loads the kernels; eight bytes of the guest's own memory, which it lent to the device."""
    assert guest.load(kernel_image(PTX), handle=MODULE + 16, blob=23).result == 0
    for name, handle in KERNELS.items():
        fields = {"module": MODULE + 16, "handle": handle, "name_bytes": len(name)}
        guest.ok("cuModuleGetFunction", name.encode(), chunk=NO_CHUNK, **fields)
    offset = guest.allocate(4096)
    guest.ok("host_register", address=guest.address + offset, bytes=4096)
    guest.write(offset, bytes(8))
    return offset


@pytest.fixture
def served(host: Host, region: Region) -> Iterator[Served]:
    served = Served(host, region, address=REGION_ADDRESS)
    yield served
    served.guest.close()


@pytest.fixture
def neighbour(host: Host) -> Iterator[Served]:
    with make_region() as region:
        served = Served(host, region)
        yield served
        served.guest.close()


@pytest.mark.parametrize("kernel", ["put", "add"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_store_into_the_worker(served: Served, neighbour: Served, kind: str, kernel: str) -> None:
    guest, pid = served.primary(), served.worker.process.pid
    ready(guest)
    found = targets(pid)
    before = word_at(pid, found[kind])
    guest.launch(KERNELS[kernel], struct.pack("<Q", found[kind]))
    assert guest.call("cuCtxSynchronize").result == ILLEGAL_ADDRESS
    assert before != MARK
    assert word_at(pid, found[kind]) != MARK
    assert not served.worker.process.has_ended()
    other = Kernels(neighbour.primary())
    other.late(7, ns=1000)
    assert other.value() == 7


@pytest.mark.parametrize("kind", KINDS)
def test_a_load_from_the_worker(served: Served, kind: str) -> None:
    """What was loaded goes to memory that the guest reads by itself, whatever becomes of the launch."""
    guest, pid = served.primary(), served.worker.process.pid
    out = ready(guest)
    found = targets(pid)
    guest.launch(KERNELS["get"], struct.pack("<QQ", found[kind], guest.address + out))
    assert guest.call("cuCtxSynchronize").result == ILLEGAL_ADDRESS
    if kind.startswith("page"):
        assert guest.read(out, 8) == bytes(8)


def test_printing_from_the_page(served: Served) -> None:
    """The runtime reads what a kernel names, too."""
    guest, pid = served.primary(), served.worker.process.pid
    ready(guest)
    guest.launch(KERNELS["spell"], struct.pack("<Q", targets(pid)["page grant"]))
    assert guest.call("cuCtxSynchronize").result == ILLEGAL_ADDRESS


def test_the_process_of_kernels_shares_the_clients_memory_alone(served: Served, region: Region) -> None:
    guest, pid = served.primary(), served.worker.process.pid
    kernels = Kernels(guest)
    kernels.late(3, ns=1000)
    assert kernels.value() == 3
    [child] = children(pid)
    shared = {mapping.what for mapping in mappings(child) if mapping.access.endswith("s")}
    assert not [what for what in shared if any(name in what for name in SHARED)]
    assert len(shared) <= 2, "the region, and device memory, which has no name of its own"
    assert sorted(path.name for path in Path(f"/proc/{child}/fd").iterdir())[0] == "2"
    assert len(list(Path(f"/proc/{child}/fd").iterdir())) == 2
    assert "Seccomp:\t2" in Path(f"/proc/{child}/status").read_text()
    served.worker.process.kill()
    served.worker.process.wait()
    assert not is_alive(child)


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(word) for word in (task / "children").read_text().split()]
    return found


def is_alive(pid: int) -> bool:
    """A process that was killed is gone when it has been reaped, or is waiting for that."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        if state in "ZX":
            return False
    return True
