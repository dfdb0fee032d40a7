"""What vGPUs are entitled to of a GPU that they share: a part each, by weights, requests and limits; and who of them is left without any.

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


def request_troubles(entitlements: Mapping[str, Entitlement]) -> list[str]:
    """What requests of vGPUs on one Gpu, by name, leave to none of them. One of another class than fair has turns by that."""
    requests = {name: each.request for name, each in sorted(entitlements.items()) if each.request}
    poor = [name for name, each in sorted(entitlements.items()) if not each.request and each.vgpu_class == FAIR]
    if not poor or round(sum(requests.values()) * 10) < round(WHOLE * 10):
        return []
    return [
        f"requests take all of it ({', '.join(f'{name} {request:g} %' for name, request in requests.items())}): {', '.join(poor)} "
        f"{'get' if len(poor) > 1 else 'gets'} next to nothing while those have work: fairgv-host set NAME --request, to give one less or "
        "another some"
    ]


@functools.lru_cache(maxsize=_MOST_KEPT)
def _parts(asked: tuple[_Asked, ...]) -> Mapping[_Asked, float]:
    """By what a vGPU asks for, as all that ask for the same get the same."""
    claims = {
        number: Claim(Fraction(weight), exact_share(request / WHOLE), exact_share(limit / WHOLE))
        for number, (weight, request, limit) in enumerate(asked)
    }
    return {asked[number]: float(share) for number, share in allotments(claims).items()}
