"""`--request` and `--limit` of `fairgv-sim`: from percent with a decimal to shares of a GPU, and what is refused."""

import argparse
import re
from collections.abc import Sequence

from scheduler.policy import Bounded
from scheduler.simulator.policies.registry import ALL_POLICIES
from scheduler.simulator.simulation import place

_PERCENT = re.compile(r"(-?\d+)(\.\d)?")
_OPTIONS = ("--request", "--limit")

Permilles = Sequence[int | None]
"""One for each vGPU, or a single one for all; None: no bound."""


class BoundsError(ValueError):
    """Requests and limits that do not go together, or with the policy. The message begins with the option."""


def join_dashes(arguments: Sequence[str]) -> list[str]:
    """`--limit -:30` as `--limit=-:30`: argparse takes what begins with a dash for an option."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] in _OPTIONS and argument.startswith("-") and not argument.startswith("--"):
            joined[-1] += "=" + argument
        else:
            joined.append(argument)
    return joined


def percentages(text: str) -> list[int | None]:
    """`30:12.5:-`: permille, or None for no bound."""
    return [None if part == "-" else _permille(part) for part in text.split(":")]


def _permille(text: str) -> int:
    if _PERCENT.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no percentage: write 30:12.5:-, with at most one decimal and - for none"
        )
    permille = round(float(text) * 10)
    if not 0 <= permille <= 1000:
        raise argparse.ArgumentTypeError(f"{text} % is not between 0 and 100")
    return permille


def check_bounds(
    requests: Permilles | None, limits: Permilles | None, weights: list[int], nr_gpus: int, policy: str
) -> tuple[list[float], list[float]]:
    """Request and limit of each vGPU as shares from 0 to 1. BoundsError when they cannot be kept."""
    all_requests = [0 if permille is None else permille for permille in _for_all("--request", requests, len(weights))]
    all_limits = [1000 if permille is None else permille for permille in _for_all("--limit", limits, len(weights))]
    for vgpu, (request, limit) in enumerate(zip(all_requests, all_limits, strict=True)):
        if limit == 0:
            raise BoundsError(f"--limit: 0 % would leave vGPU {vgpu} nothing; - is no limit")
        if request > limit:
            raise BoundsError(f"--request: {request / 10:g} % of vGPU {vgpu} is above its limit, {limit / 10:g} %")
    _check_sums(all_requests, weights, nr_gpus)
    if any(all_requests) and not isinstance(ALL_POLICIES[policy](), Bounded):
        bounded = ", ".join(sorted(name for name, make in ALL_POLICIES.items() if isinstance(make(), Bounded)))
        raise BoundsError(f"--request: policy {policy} keeps none; use --policy {bounded}")
    return [permille / 1000 for permille in all_requests], [permille / 1000 for permille in all_limits]


def _for_all(option: str, permilles: Permilles | None, nr_vgpus: int) -> Permilles:
    if permilles is None:
        return [None] * nr_vgpus
    if len(permilles) == 1:
        return list(permilles) * nr_vgpus
    if len(permilles) != nr_vgpus:
        raise BoundsError(f"{option}: {len(permilles)} values for {nr_vgpus} vGPUs; give one for each, or one for all")
    return permilles


def _check_sums(requests: list[int], weights: list[int], nr_gpus: int) -> None:
    sums = [0] * nr_gpus
    if any(requests):
        for request, gpu in zip(requests, place(weights, nr_gpus), strict=True):
            sums[gpu] += request
    for gpu, total in enumerate(sums):
        if total > 1000:
            where = f" on GPU {gpu}" if nr_gpus > 1 else ""
            raise BoundsError(f"--request: they sum to {total / 10:g} %{where}, and there are 100")
