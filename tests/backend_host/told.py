"""What a daemon tells, made up: for tests of what is shown."""

import json
import os
from dataclasses import asdict

from backend_host.ipc import Message
from backend_host.statistics import (
    ClientStatistics,
    CoschedulingStatistics,
    DaemonStatistics,
    DeviceStatistics,
    GpuStatistics,
    Totals,
    VGpuStatistics,
)

UUID = "GPU-5c7a0000-0000-0000-0000-000000000000"
BOOSTED = CoschedulingStatistics("real-time", True, 5, 0)
CLIENT = ClientStatistics("program", 0, 17, 5, 4, 3, 2, 1024, 2048, 4096, 7, 0)


def status_of(name: str = "vm", program: str = "program") -> Message:
    """What a daemon with one vGPU and one client answers."""
    client = ClientStatistics(**{**asdict(CLIENT), "program": program})
    vgpu = VGpuStatistics(
        name=name,
        kind="session",
        gpu_number=0,
        gpu_uuid=UUID,
        weight=2,
        quota_bytes=1 << 30,
        region_bytes=1 << 28,
        region_free_bytes=1 << 27,
        memory_bytes=4096,
        used_ns=10**9,
        held_ns=0,
        share=0.25,
        recent_shares={1: 0.5, 10: 0.4, 60: 0.3},
        entitled_share=2 / 3,
        demand=1.3,
        nr_grants=3,
        coscheduling=BOOSTED,
        totals=Totals(1),
        clients=(client,),
    )
    device = DeviceStatistics("[bold]device[/bold]", "soft", "/lib", "8.0", 4 << 30, 13000, False)
    gpu = GpuStatistics(
        **asdict(device),
        number=0,
        uuid=UUID,
        pci_bus_id="0000:f0:00.0",
        policy="first-come",
        slice_ns=6_000_000,
        used_ns=4 * 10**9,
        walls=("user", "mount"),
        vgpus=(name,),
        used_bytes=4096,
        demand=1.3,
        recent_shares={1: 0.9, 10: 0.8, 60: 0.7},
    )
    statistics = DaemonStatistics(os.getpid(), 10**9, "first-come", 6_000_000, device, (gpu,), (vgpu,))
    answer: Message = json.loads(json.dumps(asdict(statistics)))
    return answer
