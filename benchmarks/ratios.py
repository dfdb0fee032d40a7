"""The arithmetic of the evaluation: the ratios of the FairGV paper's section 5.4.1, and means with their confidence intervals."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t for 95 % on both sides, by degrees of freedom from 1."""


@dataclass(frozen=True)
class Estimate:
    """A mean of `nr` samples; the true one lies within `half_width` of it with 95 % confidence. None: one sample says nothing about that."""

    mean: float
    half_width: float | None
    nr: int

    def text(self, digits: int = 3) -> str:
        """For tables."""
        spread = "" if self.half_width is None else f" ± {self.half_width:.{digits}f}"
        return f"{self.mean:.{digits}f}{spread}"


def student_t(degrees: int) -> float:
    """The 97.5 % quantile of Student's distribution; ValueError below 1 degree of freedom."""
    if degrees < 1:
        raise ValueError("an interval needs two samples")
    return _T_975[degrees - 1] if degrees <= len(_T_975) else 1.96 + 2.4 / degrees


def estimate(samples: Sequence[float]) -> Estimate:
    """The mean with its 95 % confidence interval, after Student. ValueError without samples."""
    if len(samples) < 2:
        return Estimate(statistics.fmean(samples), None, len(samples))
    error = statistics.stdev(samples) / math.sqrt(len(samples))
    return Estimate(statistics.fmean(samples), student_t(len(samples) - 1) * error, len(samples))


def geometric_mean(ratios: Sequence[float]) -> float:
    """NaN without ratios."""
    return statistics.geometric_mean(ratios) if ratios else math.nan


def ideal_throughputs(alone: Sequence[float], weights: Sequence[float]) -> list[float]:
    """O of each guest: its part, by weight, of what it reaches alone."""
    return [throughput * weight / sum(weights) for throughput, weight in zip(alone, weights, strict=True)]


def min_max_ratio(normalised: Sequence[float]) -> float:
    """The least over the greatest of x = T / O; 0 when nobody got anything."""
    return min(normalised) / max(normalised) if max(normalised) > 0 else 0.0


def normalised_throughputs(
    throughputs: Sequence[float], alone: Sequence[float], weights: Sequence[float]
) -> list[float]:
    """x = T / O of each guest: below 1 it gets less than its fair part."""
    ideal = ideal_throughputs(alone, weights)
    return [measured / fair for measured, fair in zip(throughputs, ideal, strict=True)]


def throughput_min_max_ratio(throughputs: Sequence[float], alone: Sequence[float], weights: Sequence[float]) -> float:
    """The paper's MMR: of each guest's throughput over its ideal one."""
    return min_max_ratio(normalised_throughputs(throughputs, alone, weights))


def aggregated_overhead(throughputs: Sequence[float], alone: Sequence[float]) -> float:
    """Ideal aggregated throughput over the measured one: 1 when sharing cost nothing, infinite when nothing was done.

    Each throughput counts as a part of what its program reaches alone. Where all run the same program, as in the paper, that is the
    quotient of the sums.
    """
    together = sum(measured / reached for measured, reached in zip(throughputs, alone, strict=True))
    return 1 / together if together > 0 else math.inf


def completion_times(throughputs: Sequence[float], alone: Sequence[float], work_s: float) -> list[float]:
    """Seconds in which each guest, beside the others, does what takes it `work_s` alone; infinite for one that stood still."""
    return [
        work_s * reached / measured if measured > 0 else math.inf
        for measured, reached in zip(throughputs, alone, strict=True)
    ]
