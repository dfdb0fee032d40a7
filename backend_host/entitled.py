"""What vGPUs are entitled to of a GPU that they share: a part each, by weights, requests and limits.

It is what an operator compares a share with. The arithmetic is the policy's (scheduler/elastic.py). Without requests and limits it is the
weight over the sum of weights.

Wrong when: the policy is one that does not go by weights, first come, first served say.
"""

from collections.abc import Mapping
from fractions import Fraction

from backend_host.entitlement import WHOLE, Entitlement
from scheduler.elastic import Claim, allotments
from scheduler.policy import exact_share


def entitled_shares(entitlements: Mapping[int, Entitlement]) -> dict[int, float]:
    """The part of each, from 0 to 1, while all of them want the GPU and nobody else does."""
    claims = {
        vgpu: Claim(Fraction(each.weight), exact_share(each.request / WHOLE), exact_share(each.limit / WHOLE))
        for vgpu, each in entitlements.items()
    }
    return {vgpu: float(share) for vgpu, share in allotments(claims).items()}
