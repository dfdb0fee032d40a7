"""All policies by name, those of the daemon and those for comparison: what `fairgv-sim --policy NAME` accepts."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from scheduler.policy import Policy
from scheduler.registry import POLICIES
from scheduler.simulator.policies.credit_poll import CreditPoll
from scheduler.simulator.policies.strict import StrictCoscheduling

ALL_POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {**POLICIES, CreditPoll.name: CreditPoll, StrictCoscheduling.name: StrictCoscheduling}
)
"""Name to constructor. A new policy for comparison adds one line here, and its name to `SIMULATED` in scheduler/registry.py."""
