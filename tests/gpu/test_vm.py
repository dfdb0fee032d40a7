"""A program inside a virtual machine computes on a real GPU. QEMU alone, no libvirt: a host with a GPU need not have it.

The region is POSIX shared memory that QEMU maps as ivshmem-plain; the daemon's parts run in this process.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from backend_host.worker._worker import lib

from backend_host.config import PACKAGE_ROOT, load_config
from backend_host.device.gpu import serving
from backend_host.devices import choose
from backend_host.entitlement import PLAIN
from backend_host.vgpus import VGpuRegistry
from backend_host.vm.accelerator import find_emulator
from backend_host.vm.guest_output import GuestOutput
from backend_host.vm.initramfs import GUEST_LIBRARY_PATH, GuestCommand, build_image
from backend_host.vm.region_file import prepare_region_file, remove_region_file
from backend_host.walls import cgroups
from backend_host.walls.check import walls_of_host
from benchmarks.nvcc import find_nvcc
from tests.end_to_end.host import PROGRAMS

pytestmark = pytest.mark.gpu

REGION_BYTES = 256 << 20
BOOT_LIMIT_S = 240
PROGRAMS_IN_THE_VM = ("device_query", "vector_add", "matrix_mul", "simple_printf", "simple_streams", "threads")


@pytest.fixture
def region_name() -> Iterator[str]:
    name = f"fairgv-gpu-test-{os.getpid()}"
    prepare_region_file(name, REGION_BYTES)
    yield name
    remove_region_file(name)


@pytest.fixture
def registry(region_name: str, tmp_path: Path) -> Iterator[VGpuRegistry]:
    """A daemon's parts on NVIDIA's driver, with one vGPU whose region a virtual machine can map."""
    config = load_config(None, device="cuda", nr_warm_workers=1, state_dir=tmp_path)
    (device, *_), _ = choose(config)
    walls = walls_of_host(config.walls, is_lenient=True)
    with serving(0, device, config, walls, cgroups.find() if "cgroup" in walls else None) as gpu:
        vgpus = VGpuRegistry([gpu], lib.fgw_table_hash())
        vgpus.add_domain("vm", PLAIN, region_name, REGION_BYTES, lambda: False)
        yield vgpus
        vgpus.remove_all()


@pytest.fixture
def cublas_program(tmp_path: Path) -> Path:
    """cublas.cu, for the cuBLAS of the toolkit."""
    nvcc = find_nvcc()
    if not (nvcc.libraries / "libcublas.so").exists():
        pytest.skip(f"the toolkit has no cuBLAS in {nvcc.libraries}")
    program = tmp_path / "cublas"
    source = Path(__file__).with_name("cublas.cu")
    command = [str(nvcc.path), "-std=c++17", "-arch=sm_75", "-o", str(program), str(source), "-lcublas"]
    subprocess.run([*command, "-Xlinker", f"-rpath={nvcc.libraries}"], check=True)
    return program


def boot(folder: Path, commands: Sequence[GuestCommand], region_name: str, memory_mib: int) -> GuestOutput:
    """What an emulated machine that has these programs, our library and the region printed until it was done."""
    image = build_image(folder, commands, {GUEST_LIBRARY_PATH: PACKAGE_ROOT / "build/guest/libcuda.so.1"})
    memory = f"memory-backend-file,id=region,share=on,mem-path=/dev/shm/{region_name},size={REGION_BYTES}"
    machine = ["-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-machine", "q35"]
    machine += ["-m", str(memory_mib), "-accel", "tcg", "-cpu", "max"]
    machine += ["-object", memory, "-device", "ivshmem-plain,memdev=region"]
    kernel = ["-kernel", str(image.kernel), "-initrd", str(image.initramfs), "-append", image.kernel_parameters]
    qemu = subprocess.run(
        [str(find_emulator()), *machine, *kernel],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=BOOT_LIMIT_S,
        check=False,
    )
    output = GuestOutput(image.marker, commands)
    output.feed(qemu.stdout)
    assert output.is_done, output.console()
    return output


def assert_prints_what_it_prints_natively(output: GuestOutput) -> None:
    """Each command, with its exit status; white space apart."""
    for result in output.results():
        assert result.command.program
        native = subprocess.run([result.command.program], capture_output=True, text=True, check=False)
        assert (result.exit_code, result.output.split()) == (native.returncode, native.stdout.split()), result.output


def test_programs_in_a_vm_print_what_they_print_natively(
    registry: VGpuRegistry, region_name: str, tmp_path: Path
) -> None:
    commands = [GuestCommand(name, PROGRAMS / name) for name in PROGRAMS_IN_THE_VM]
    assert_prints_what_it_prints_natively(boot(tmp_path, commands, region_name, 512))
    [vgpu] = registry.statistics()
    assert vgpu.totals.nr_clients == len(commands)
    assert vgpu.totals.nr_launches > 0
    assert vgpu.used_ns > 0


def test_cublas_in_a_vm_prints_what_it_prints_natively(
    registry: VGpuRegistry, region_name: str, cublas_program: Path, tmp_path: Path
) -> None:
    """The machine's memory holds the libraries twice: as the initramfs, and unpacked."""
    output = boot(tmp_path, [GuestCommand("cublas", cublas_program)], region_name, 3072)
    assert_prints_what_it_prints_natively(output)
    [result] = output.results()
    assert result.output.split()[-1] == "PASS"
    [vgpu] = registry.statistics()
    assert vgpu.totals.nr_launches >= 2
