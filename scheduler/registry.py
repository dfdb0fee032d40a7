"""The policies by name: what `fairgv-host start --policy NAME` and the configuration accept."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from scheduler.credit import Credit
from scheduler.elastic import Elastic
from scheduler.fair import FairQueuing
from scheduler.first_come import FirstCome
from scheduler.policy import Policy

POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {
        Elastic.name: Elastic,
        FairQueuing.name: FairQueuing,
        FirstCome.name: FirstCome,
        Credit.name: Credit,
    }
)
"""Name to constructor. A new policy adds one line here."""

DEFAULT_POLICY = Elastic.name

SIMULATED = ("credit-poll", "strict")
"""Policies of the simulator alone (scheduler/simulator/policies), named here so that whoever asks a daemon for one can be told where it is."""


class UnknownPolicyError(ValueError):
    """No policy has this name."""

    def __init__(self, name: str, policies: Mapping[str, Callable[[], Policy]]) -> None:
        super().__init__(f"no scheduling policy is called {name!r}; there are: {', '.join(sorted(policies))}")


def make_policy(name: str, policies: Mapping[str, Callable[[], Policy]] = POLICIES) -> Policy:
    """A fresh policy of that name; UnknownPolicyError names those that exist."""
    try:
        return policies[name]()
    except KeyError:
        raise UnknownPolicyError(name, policies) from None


def where_simulated(name: str) -> str:
    """What whoever asks a daemon for one of `SIMULATED` is told."""
    return f"{name} is a policy of the simulator only: see fairgv-sim --policy {name}"
