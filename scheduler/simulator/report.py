"""What a simulation found, and what it is compared with: the fair shares.

Throughput is GPU work done in a second: the lengths of the kernels that were finished, as they would be with the device to themselves. What a
vGPU fairly has is, as in section 5.4.1, its weight's part of the device; one that asks for less, when alone, fairly has what it asks for,
and the rest goes to the others by weight. Where there are requests and limits, nobody fairly has less than its request, as far as it asks for
that, or more than its limit. The min-max ratio is the least over the largest of throughput / fair throughput.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class VgpuReport:
    """One vGPU. `share` and `fair_share` are parts of its GPU; `demand` is what its guest uses when it is alone."""

    vgpu: int
    gpu: int
    weight: int
    workload: str
    request: float
    limit: float
    gpu_ns: int
    held_ns: int
    """Kept from others without use: it counts as use for the policy and the limit, and is no part of `gpu_ns`."""
    normalised_ns: float
    """GPU time over weight."""
    share: float
    demand: float
    fair_share: float
    throughput: float
    """Work done over time: ns in a ns."""
    fairness: float
    """Throughput over fair throughput: 1 is fair."""
    nr_kernels: int
    nr_turns: int
    turn_ns: float
    """How long a turn of it might last while others waited, in the mean; 0: it had none."""
    overuse_ns: int
    """What its turns had beyond their ends while others waited."""
    nr_answered: int
    """Requests that its program answered, if that is what it does."""
    answer_ns: float
    """Mean time from when a request came until it was answered; 0 when none was."""
    wait_p50_ns: int
    wait_p95_ns: int
    wait_p99_ns: int
    wait_max_ns: int
    """From being backlogged to being granted the GPU; 0 when it never was granted. One that still waits at the end counts."""


@dataclass(frozen=True)
class Report:
    """One policy. `overhead` is fair over measured throughput, all vGPUs together: below 1 is better than fair sharing promises."""

    policy: str
    duration_ns: int
    nr_gpus: int
    min_max_ratio: float
    utilisation: float
    overhead: float
    nr_handovers: int
    vgpus: tuple[VgpuReport, ...]


def percentile(ordered: Sequence[int], percent: int) -> int:
    """The least value that at least `percent` of them do not exceed; 0 of none."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else 0


def fair_shares(weights: Sequence[int], demands: Sequence[float]) -> list[float]:
    """Parts of one device, by weight, nobody more than they ask for: max-min fairness. Demands are at least 0."""
    shares = [0.0] * len(weights)
    left = 1.0
    weight_left = sum(weights)
    for i in sorted(range(len(weights)), key=lambda i: demands[i] / weights[i]):
        shares[i] = min(demands[i], left * weights[i] / weight_left)
        left -= shares[i]
        weight_left -= weights[i]
    return shares


def min_max_ratio(values: Sequence[float]) -> float:
    """The least over the largest: 1 when all are equal, 0 when somebody got nothing."""
    largest = max(values, default=0.0)
    return min(values) / largest if largest else 0.0
