"""All that `fairgv-bench` measures, by name."""

from collections.abc import Mapping

from benchmarks.experiment import Experiment
from benchmarks.experiments.accounting import Accounting
from benchmarks.experiments.adapter import Adapter
from benchmarks.experiments.ahead import Ahead
from benchmarks.experiments.allocation import Allocation
from benchmarks.experiments.arrivals import Arrivals
from benchmarks.experiments.balancing import Balancing
from benchmarks.experiments.bursts import Bursts
from benchmarks.experiments.clients import Clients
from benchmarks.experiments.decisions import Decisions
from benchmarks.experiments.elastic import ElasticShares
from benchmarks.experiments.energy import Energy
from benchmarks.experiments.gloop import GLoop
from benchmarks.experiments.kept_turns import KeptTurns
from benchmarks.experiments.loops import Loops
from benchmarks.experiments.migration import Migration
from benchmarks.experiments.mixed import Mixed
from benchmarks.experiments.mmr import MinMaxRatio
from benchmarks.experiments.overhead import Overhead
from benchmarks.experiments.oversubscription import Oversubscription
from benchmarks.experiments.shares_over_time import SharesOverTime
from benchmarks.experiments.slicing import Slicing
from benchmarks.experiments.space import Space
from benchmarks.experiments.work_conserving import WorkConserving

_ALL: tuple[Experiment, ...] = (
    Overhead(),
    MinMaxRatio(),
    SharesOverTime(),
    ElasticShares(),
    Bursts(),
    KeptTurns(),
    Clients(),
    Mixed(),
    WorkConserving(),
    Accounting(),
    Slicing(),
    Allocation(),
    Oversubscription(),
    Migration(),
    Ahead(),
    Balancing(),
    Arrivals(),
    Energy(),
    GLoop(),
    Space(),
    Adapter(),
    Loops(),
    Decisions(),
)
EXPERIMENTS: Mapping[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
"""In the order in which the help and the page of results have them."""
