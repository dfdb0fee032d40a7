"""A program inside a virtual machine computes on a real GPU. QEMU alone, no libvirt: a host with a GPU need not have it.

The region is POSIX shared memory that QEMU maps as ivshmem-plain; the daemon's parts run in this process.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from backend_host.worker._worker import lib

from backend_host.config import PACKAGE_ROOT, load_config
from backend_host.coscheduling import Coscheduler
from backend_host.devices import choose
from backend_host.grants import GrantKeeper
from backend_host.vgpus import VGpuRegistry
from backend_host.vm.accelerator import find_emulator
from backend_host.vm.guest_output import GuestOutput
from backend_host.vm.initramfs import GUEST_LIBRARY_PATH, GuestCommand, build_image
from backend_host.vm.region_file import prepare_region_file, remove_region_file
from backend_host.worker.control import ControlPage
from backend_host.workers import WorkerPool, worker_identity
from scheduler.registry import make_policy
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
def registry(region_name: str) -> Iterator[VGpuRegistry]:
    """A daemon's parts on NVIDIA's driver, with one vGPU whose region a virtual machine can map."""
    config = load_config(None, device="cuda")
    device, _ = choose(config)
    page_fd = os.memfd_create("control")
    page = ControlPage.format(page_fd, device.slice_ns, is_preemptive=device.preempts)
    keeper = GrantKeeper(page, make_policy(config.policy))
    pool = WorkerPool(page, page_fd, device.path, worker_identity(config.worker_user), 1)
    pool.start()
    keeper.start()
    coscheduler = Coscheduler(page)
    coscheduler.start()
    vgpus = VGpuRegistry(page, pool, keeper, lib.fgv_table_hash(), device.facts, coscheduler)
    vgpus.add_domain("vm", 1, 0, region_name, REGION_BYTES, lambda: False)
    yield vgpus
    vgpus.remove_all()
    coscheduler.stop()
    keeper.stop()
    pool.stop()
    page.close()
    os.close(page_fd)


def test_programs_in_a_vm_print_what_they_print_natively(
    registry: VGpuRegistry, region_name: str, tmp_path: Path
) -> None:
    commands = [GuestCommand(name, PROGRAMS / name) for name in PROGRAMS_IN_THE_VM]
    image = build_image(tmp_path, commands, {GUEST_LIBRARY_PATH: PACKAGE_ROOT / "build/guest/libcuda.so.1"})
    memory = f"memory-backend-file,id=region,share=on,mem-path=/dev/shm/{region_name},size={REGION_BYTES}"
    machine = ["-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-machine", "q35", "-m", "512"]
    machine += ["-accel", "tcg", "-cpu", "max", "-object", memory, "-device", "ivshmem-plain,memdev=region"]
    boot = ["-kernel", str(image.kernel), "-initrd", str(image.initramfs), "-append", image.kernel_parameters]
    qemu = subprocess.run(
        [str(find_emulator()), *machine, *boot],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=BOOT_LIMIT_S,
        check=False,
    )
    output = GuestOutput(image.marker, commands)
    output.feed(qemu.stdout)
    results = output.results()
    assert output.is_done, output.console()
    for result in results:
        native = subprocess.run([PROGRAMS / result.command.name], capture_output=True, text=True, check=False)
        assert (result.exit_code, result.output.split()) == (native.returncode, native.stdout.split()), result.output
    [vgpu] = registry.statistics()
    assert vgpu.totals.nr_clients == len(commands)
    assert vgpu.totals.nr_launches > 0
    assert vgpu.used_ns > 0
