"""What vGPUs are entitled to of a GPU that they share: a part each, by weights, requests and limits; and who of them has nothing of that.

It is what an operator compares a share with. The arithmetic is the policy's (scheduler/elastic.py). Without requests and limits it is the
weight over the sum of weights.

Who is active changes at each look of a keeper, what they ask for together much less: what was computed for that is kept.

Wrong when: the policy is one that does not go by weights, first come, first served say.
"""

import functools
from collections.abc import Mapping
from fractions import Fraction

from backend_host.entitlement import FAIR, WHOLE, Entitlement
from scheduler.elastic import Claim, allotments
from scheduler.policy import exact_share

_Asked = tuple[int, float, float]
"""Weight, request and limit of one vGPU."""
_MOST_KEPT = 128
"""Of what vGPUs asked for together; 1 MB where each time 64 do, no two of them alike."""


def entitled_shares(entitlements: Mapping[int, Entitlement]) -> dict[int, float]:
    """The part of each, from 0 to 1, while all of them want the GPU and nobody else does."""
    asked = {vgpu: (each.weight, each.request, each.limit) for vgpu, each in entitlements.items()}
    parts = _parts(tuple(sorted(asked.values())))
    return {vgpu: parts[each] for vgpu, each in asked.items()}


def request_troubles(entitlements: Mapping[str, Entitlement], policy: str, *, takes_requests: bool) -> list[str]:
    """What does not come of requests of vGPUs on one Gpu, by name, under its policy: they are not kept, or leave nothing to others. One of
    another class than fair has turns by that."""
    requests = {name: each.request for name, each in sorted(entitlements.items()) if each.request}
    poor = [name for name, each in sorted(entitlements.items()) if not each.request and each.vgpu_class == FAIR]
    have = ", ".join(f"{name} {request:g} %" for name, request in requests.items())
    if requests and not takes_requests:
        return [
            f"the policy {policy} knows no requests, and does not keep those that are there ({have}): fairgv-host start --policy elastic "
            "does, and fairgv-host set NAME --request 0 takes one away"
        ]
    if poor and round(sum(requests.values()) * 10) >= round(WHOLE * 10):
        gets = "get" if len(poor) > 1 else "gets"
        return [
            f"requests take all of it ({have}): {', '.join(poor)} {gets} next to nothing while those have work: fairgv-host set NAME "
            "--request, to give one less or another some"
        ]
    return []


@functools.lru_cache(maxsize=_MOST_KEPT)
def _parts(asked: tuple[_Asked, ...]) -> Mapping[_Asked, float]:
    """By what a vGPU asks for, as all that ask for the same get the same."""
    claims = {
        number: Claim(Fraction(weight), exact_share(request / WHOLE), exact_share(limit / WHOLE))
        for number, (weight, request, limit) in enumerate(asked)
    }
    return {asked[number]: float(share) for number, share in allotments(claims).items()}
