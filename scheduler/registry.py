"""The policies by name: what `--policy NAME` and the configuration accept."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from scheduler.credit import Credit, CreditPoll
from scheduler.fair import FairQueuing
from scheduler.first_come import FirstCome
from scheduler.policy import Policy
from scheduler.strict import StrictCoscheduling

POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {
        FairQueuing.name: FairQueuing,
        FirstCome.name: FirstCome,
        Credit.name: Credit,
        CreditPoll.name: CreditPoll,
        StrictCoscheduling.name: StrictCoscheduling,
    }
)
"""Name to constructor. A new policy adds one line here."""

DEFAULT_POLICY = FairQueuing.name


class UnknownPolicyError(ValueError):
    """No policy has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no scheduling policy is called {name!r}; there are: {', '.join(sorted(POLICIES))}")


def make_policy(name: str) -> Policy:
    """A fresh policy of that name; UnknownPolicyError names those that exist."""
    try:
        return POLICIES[name]()
    except KeyError:
        raise UnknownPolicyError(name) from None
