"""All metrics there are, in the order in which they are told: of each vGPU, of each Gpu, of each space, and of the
daemon.

Most of a vGPU's come from the table of counters (metric.py). Here are those that no worker counts, and those that are put together of several
counters.
"""

from collections.abc import Callable, Mapping
from typing import Any

from backend_host import counters
from backend_host.entitlement import WHOLE
from backend_host.generated.counters import EACH
from backend_host.history import WINDOWS_S
from backend_host.metrics.metric import NS, PREFIX, Kind, Metric, of_counters
from backend_host.statistics import DaemonStatistics, GpuStatistics, SpaceStatistics, VGpuStatistics
from cuda_api.value import Value

INFO = "fairgv_vgpu_info"
INFO_HELP = (
    "1. What a vGPU is: kind is session (of commands), machine, or domain, whose name and UUID follow; gpu is the Gpu's number; class and "
    "space are as it is entitled to."
)
DEVICE_INFO = "fairgv_device_info"
DEVICE_INFO_HELP = "1. What a Gpu is."
BUILD_INFO = "fairgv_build_info"
BUILD_INFO_HELP = "1. Which FairGV serves."

_MINUTE = WINDOWS_S[-1]
_BY_HAND = ("nr_calls", "nr_round_trips", "nr_sent", "nr_refused", "memory_bytes")
"""Counters that metrics below tell of."""


def _vgpu(name: str, kind: Kind, help_: str, read: Callable[[VGpuStatistics], Any], label: str = "") -> Metric:
    return Metric(PREFIX + name, kind, help_, read, label)


def _calls(vgpu: VGpuStatistics) -> dict[str, int]:
    return {"sent": vgpu.totals.nr_sent, "waited": vgpu.totals.nr_round_trips}


def _refused(vgpu: VGpuStatistics) -> dict[str, int]:
    return {"request": vgpu.totals.nr_refused, **vgpu.refused}


def _enumerations() -> tuple[Value, ...]:
    """Those of whose members counters have a number each, as generated: to read the table of calls for them takes 40 ms at each start."""
    return tuple(
        Value(name, "", "", tuple((member.name.lower(), member.value) for member in members))
        for name, (_, members) in EACH.items()
    )


OF_VGPUS: tuple[Metric, ...] = (
    _vgpu(
        "gpu_seconds_total", "counter", "GPU time that it used: charge back by this.", lambda vgpu: vgpu.used_ns / NS
    ),
    _vgpu(
        "held_seconds_total",
        "counter",
        "Time that it kept the GPU from others without using it. It pays for that as for use.",
        lambda vgpu: vgpu.held_ns / NS,
    ),
    _vgpu(
        "share_ratio",
        "gauge",
        f"Its part of its Gpu's time in the last {_MINUTE} s, or since it came.",
        lambda vgpu: vgpu.recent_shares.get(_MINUTE, 0.0),
    ),
    _vgpu(
        "entitled_ratio",
        "gauge",
        f"The part of its Gpu's time that was its in the last {_MINUTE} s: its weight over those of all that were active, within its request "
        "and limit; nothing while it is not active.",
        lambda vgpu: vgpu.received.entitled,
    ),
    _vgpu(
        "active_ratio",
        "gauge",
        f"The part of the last {_MINUTE} s in which it held the GPU or waited for it.",
        lambda vgpu: vgpu.received.active,
    ),
    _vgpu(
        "received_ratio",
        "gauge",
        f"What it was charged in the last {_MINUTE} s over what was due to it of the time that all were charged: 1 is fair. None where "
        "nothing was due.",
        lambda vgpu: vgpu.received.of_due,
    ),
    _vgpu(
        "demand_ratio",
        "gauge",
        f"The part of the GPU that its programs would use, each alone, in the last {_MINUTE} s, up to its limit: above 1 they want more than "
        "there is. None where it is not known.",
        lambda vgpu: vgpu.demand,
    ),
    _vgpu("weight", "gauge", "Its weight.", lambda vgpu: vgpu.weight),
    _vgpu(
        "request_ratio",
        "gauge",
        "The part of the GPU that it gets while it has work for it; 0: none is requested.",
        lambda vgpu: vgpu.request / WHOLE,
    ),
    _vgpu("limit_ratio", "gauge", "The most of the GPU that it uses; 1: no limit.", lambda vgpu: vgpu.limit / WHOLE),
    _vgpu(
        "memory_bytes",
        "gauge",
        "Device memory that it has: what its programs allocated, and what the driver takes for them.",
        lambda vgpu: vgpu.memory_bytes,
    ),
    _vgpu(
        "memory_limit_bytes",
        "gauge",
        "Its memory quota. None where it has none.",
        lambda vgpu: vgpu.quota_bytes or None,
    ),
    _vgpu(
        "pinned_bytes",
        "gauge",
        "Host memory in its region and behind it that its programs hold: pinned memory above all, and buffers of copies. Up to 15 s old.",
        lambda vgpu: vgpu.heap_used_bytes,
    ),
    _vgpu("grants_total", "counter", "Turns that it got.", lambda vgpu: vgpu.nr_grants),
    _vgpu(
        "calls_total",
        "counter",
        "Calls that came to its workers: waited for by the guest, or sent and not waited for. A copy to the guest whose end alone is waited "
        "for counts as both.",
        _calls,
        "class",
    ),
    _vgpu("programs", "gauge", "Programs that are served now.", lambda vgpu: len(vgpu.clients)),
    _vgpu(
        "programs_total", "counter", "Programs that were served, those included.", lambda vgpu: vgpu.totals.nr_clients
    ),
    _vgpu(
        "refused_total",
        "counter",
        "What was refused, by reason. request: malformed or hostile requests. Programs that were not served: clients (it has as many as it "
        "may), banned, workers (all places for workers are taken), start (no worker could start), device (its Gpu has failed).",
        _refused,
        "reason",
    ),
    _vgpu(
        "timed_out_total",
        "counter",
        "Programs whose workers were ended as their work kept others from the GPU.",
        lambda vgpu: vgpu.nr_timed_out,
    ),
    _vgpu(
        "expelled_total",
        "counter",
        "Times that all its workers were ended because one of them was taken over.",
        lambda vgpu: vgpu.nr_expelled,
    ),
    _vgpu(
        "worker_deaths_total",
        "counter",
        "Workers that ended while their programs lived.",
        lambda vgpu: vgpu.nr_worker_deaths,
    ),
    *of_counters(counters.read(_enumerations()), _BY_HAND),
)
"""Of a VGpuStatistics each, and with the label vgpu, its name."""


def _device(name: str, kind: Kind, help_: str, read: Callable[[Any], Any]) -> Metric:
    return Metric("fairgv_" + name, kind, help_, read)


def _busy(gpu: GpuStatistics) -> float:
    return gpu.used_ns / NS


def _figure(name: str, unit: float) -> Callable[[GpuStatistics], float | None]:
    """`unit`: how much of the metric's one of the figure's is."""

    def read(gpu: GpuStatistics) -> float | None:
        value = getattr(gpu.figures, name)
        return None if value is None else value * unit

    return read


OF_DEVICES: tuple[Metric, ...] = (
    _device(
        "device_busy_seconds_total", "counter", "GPU time that all vGPUs used, those that are gone included.", _busy
    ),
    _device(
        "device_demand_ratio",
        "gauge",
        "Demand of all its vGPUs together: above 1 they want more than there is. None while it is not known of each.",
        lambda gpu: gpu.demand,
    ),
    _device("device_memory_bytes", "gauge", "Memory that the device has.", lambda gpu: gpu.memory_bytes),
    _device(
        "device_ready",
        "gauge",
        "1 while workers get a context on the device; 0 once three in a row ended before they had one: it may be lost.",
        lambda gpu: int(gpu.is_ready),
    ),
    _device(
        "device_failed",
        "gauge",
        "1 once the device has failed: it serves nobody until the daemon is started anew. fairgv-host devices has the reason.",
        lambda gpu: int(bool(gpu.failed)),
    ),
    _device(
        "device_drained",
        "gauge",
        "1 while the device is drained: no vGPU comes to it until fairgv-host undrain.",
        lambda gpu: int(gpu.is_drained),
    ),
    _device(
        "device_power_watts",
        "gauge",
        "Power that it draws, as NVML says. None where it does not.",
        _figure("power_mw", 1e-3),
    ),
    _device(
        "device_energy_joules_total",
        "counter",
        "Energy since its driver was loaded, as NVML says. None where it does not.",
        _figure("energy_mj", 1e-3),
    ),
    _device(
        "device_sm_clock_hertz",
        "gauge",
        "Clock of its multiprocessors, as NVML says. None where it does not.",
        _figure("sm_mhz", 1e6),
    ),
    _device(
        "device_memory_clock_hertz",
        "gauge",
        "Clock of its memory, as NVML says. None where it does not.",
        _figure("memory_mhz", 1e6),
    ),
    _device(
        "device_temperature_celsius",
        "gauge",
        "Temperature, as NVML says. None where it does not.",
        _figure("temperature_c", 1),
    ),
    _device(
        "device_ecc_errors_total",
        "counter",
        "Uncorrectable ECC errors since its driver was loaded, as NVML says. None where it does not.",
        _figure("nr_ecc_errors", 1),
    ),
    _device("device_xids_total", "counter", "Xids since the daemon started.", lambda gpu: gpu.figures.nr_xids),
    _device(
        "device_worker_deaths_total",
        "counter",
        "Workers that ended while their programs lived, those of vGPUs that are gone included.",
        lambda gpu: gpu.nr_worker_deaths,
    ),
    _device(
        "device_apart_total",
        "counter",
        "Times that vGPUs got a grant each, as somebody had written into that of all what no worker writes.",
        lambda gpu: gpu.nr_apart,
    ),
    _device(
        "fairness_min_max_ratio",
        "gauge",
        f"The least over the largest received_ratio of the vGPUs that wanted the GPU through the last {_MINUTE} s: 1 is fair. None where "
        "they are fewer than two.",
        lambda gpu: gpu.min_max_ratio,
    ),
)
"""Of a GpuStatistics each, and with the label gpu, its number."""


def _split(space: SpaceStatistics) -> dict[str, int] | None:
    return None if space.split is None else dict(zip(("multiprocessors", "blocks"), space.split, strict=True))


OF_SPACES: tuple[Metric, ...] = (
    _device(
        "space_faults_total",
        "counter",
        "Times that the space started anew, as the device served none of its programs any more.",
        lambda space: space.nr_faults,
    ),
    _device(
        "space_rounds_total",
        "counter",
        "Rounds of its critical vGPU that were compared with those that had all of the GPU, beside best effort.",
        lambda space: space.nr_rounds,
    ),
    _device("space_missed_rounds_total", "counter", "Of these, slower than the target.", lambda space: space.nr_missed),
    Metric(
        "fairgv_space_slowdown",
        "gauge",
        "Of the last 1,000 rounds, over what they take with all of the GPU: median, 95th and 99th percentile. None before the first.",
        lambda space: dict(space.slowdowns) or None,
        "percentile",
    ),
    Metric(
        "fairgv_space_split",
        "gauge",
        "While rounds last best effort has so many blocks fewer on each of so many multiprocessors. None where nothing is asked for.",
        _split,
        "of",
    ),
    _device(
        "space_progress_ratio",
        "gauge",
        "The part of best effort's blocks that the split leaves. None where there is none to leave.",
        lambda space: space.progress,
    ),
    _device(
        "space_gated_total",
        "counter",
        "Launches of best effort that cannot give way and waited for rounds to end, those of vGPUs that have left included.",
        lambda space: space.nr_gated,
    ),
    _device("space_gated_seconds_total", "counter", "Time that they waited so.", lambda space: space.gated_ns / NS),
)
"""Of a SpaceStatistics each, and with the labels gpu, its Gpu's number, and space, its name: two Gpus may each have one of a name."""


def _restarts(daemon: DaemonStatistics) -> int:
    return daemon.nr_restarts


OF_DAEMON: tuple[Metric, ...] = (
    _device(
        "daemon_restarts_total", "counter", "Starts of the daemon after its first in this state directory.", _restarts
    ),
    _device(
        "daemon_old_programs",
        "gauge",
        "Programs of an earlier release that still run. While there are any the daemon serves no other program.",
        lambda daemon: daemon.nr_old_programs,
    ),
    _device(
        "daemon_troubles",
        "gauge",
        "What of the configuration is not served by, and what does not come of requests: as many sentences as `fairgv-host status` has.",
        lambda daemon: len(daemon.troubles),
    ),
    _device(
        "daemon_uptime_seconds",
        "gauge",
        "Time since the daemon started.",
        lambda daemon: daemon.uptime_ns / NS,
    ),
)
"""Of the DaemonStatistics."""

OF_ALL: tuple[tuple[tuple[Metric, ...], tuple[str, ...]], ...] = (
    (OF_VGPUS, ("vgpu",)),
    (OF_DEVICES, ("gpu",)),
    (OF_SPACES, ("gpu", "space")),
    (OF_DAEMON, ()),
)
"""All of them, with the labels that tell things of a kind apart."""

INFOS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    INFO: (INFO_HELP, ("vgpu", "kind", "domain", "uuid", "gpu", "class", "space")),
    DEVICE_INFO: (DEVICE_INFO_HELP, ("gpu", "name", "uuid", "pci", "policy")),
    BUILD_INFO: (BUILD_INFO_HELP, ("version",)),
}
"""Metrics that are always 1, with what they tell in their labels."""
