"""Fair queuing with requests and limits: each vGPU's weight is what makes its share at least its request, and at most its limit.

Shares follow `s = clamp(x * weight, request, limit)`, with the one x that hands out the whole GPU, or all limits if that is less. `FairQueuing`
does the rest, with weights in proportion to s. They are computed again when a vGPU becomes active or has not been so for a second, or when a
weight or a bound changes. Where no active vGPU has a bound the weights are those given, and all is as under `fair`.

The purpose is Gemini's (section 3.5.1), the rule is not. There, usage is what a sliding window of 10 s shows. Whoever is over its limit is not
picked, then the one farthest below its request goes first, then the one farthest below its limit. Weights are unknown there, and nothing bounds
how long one goes first: a tenant of 60 % that was idle for a window runs for 6 s, and the others stand still for the 4 s that are theirs.
Start tags keep a bound (docs/fairness.md): who was idle has saved nothing.

Good when: a vGPU must get a certain share whatever the others do or weigh. Bad when: requests sum to the whole GPU and somebody has none: it
gets next to nothing while all the others are active.
Wrong when: taken for what keeps the limit. Here a limit shapes shares alone, and a vGPU whose others sleep is picked beyond it; the caller
holds it back, under every policy.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from operator import itemgetter
from typing import NamedTuple

from scheduler.fair import OWED_NS, PARTS_OF_WEIGHT, PAUSE_NS, FairQueuing, _Account
from scheduler.policy import exact_share

ACTIVE_NS = 1_000_000_000
"""Whoever waited, held or used the GPU less than this ago counts as active. Programs that answer requests rest for up to hundreds of ms between
two of them: were each rest an end, weights would change at each. What such a one leaves goes to the others meanwhile, by their shares."""


class Claim(NamedTuple):
    """What one vGPU asks for: a weight above 0, and shares of the GPU from 0 to 1."""

    weight: Fraction
    request: Fraction = Fraction(0)
    limit: Fraction = Fraction(1)

    @property
    def is_bounded(self) -> bool:
        return self.request > 0 or self.limit < 1


def allotments(claims: Mapping[int, Claim]) -> dict[int, Fraction]:
    """The share of each vGPU: x * weight, but no less than its request and no more than its limit.

    x is such that the shares sum to 1, or to the sum of limits if that is less. Where all are at a bound many an x will do, and the shares are
    the same. A request above its own limit counts as the limit. Requests that sum to more than 1 are scaled down in proportion until they
    sum to 1; the daemon refuses such on a device. Exact; O(n log n).
    """
    requests = {vgpu: min(claim.request, claim.limit) for vgpu, claim in claims.items()}
    scale = max(Fraction(1), sum(requests.values(), Fraction(0)))
    ranges = [(claim.weight, requests[vgpu] / scale, claim.limit) for vgpu, claim in claims.items()]
    level = _level(ranges, min(Fraction(1), sum((limit for _, _, limit in ranges), Fraction(0))))
    return {
        vgpu: min(max(level * weight, least), most) for vgpu, (weight, least, most) in zip(claims, ranges, strict=True)
    }


def _level(ranges: Iterable[tuple[Fraction, Fraction, Fraction]], total: Fraction) -> Fraction:
    """The x at which `clamp(x * weight, least, most)` sum to `total`: between two bends the sum is `fixed + slope * x`."""
    fixed, slope, bend = Fraction(0), Fraction(0), Fraction(0)
    bends: list[tuple[Fraction, Fraction, Fraction]] = []
    for weight, least, most in ranges:
        fixed += least
        bends += [(least / weight, -least, weight), (most / weight, most, -weight)]
    for bend, to_fixed, to_slope in sorted(bends, key=itemgetter(0)):
        if fixed + slope * bend >= total:
            return (total - fixed) / slope if slope else bend
        fixed += to_fixed
        slope += to_slope
    return bend


class Elastic(FairQueuing):
    """Least start tag first, over computed weights. An event costs O(log vGPUs), and O(n log n) besides for n active ones when their weights
    have to be computed; without bounds they never are.

    One that is not active has its plain weight. Where weights are computed, a tag keeps what it leads by in GPU time: one that had next to
    nothing is not to pay for a turn with its later, larger weight.
    """

    name = "elastic"

    def __init__(self, pause_ns: int = PAUSE_NS, owed_ns: int = OWED_NS) -> None:
        super().__init__(pause_ns, owed_ns)
        self._claims: dict[int, Claim] = {}
        self._recent: set[int] = set()  # active, or so less than ACTIVE_NS ago
        self._resting: dict[int, int] = {}  # of these the ones that neither wait nor hold: since when, the oldest first
        self._nr_bounded = 0  # of the recent ones
        self._is_stale = False  # the weights of the recent ones are to be computed
        self._is_computed = False  # they are not the plain ones

    def joined(self, vgpu: int, weight: int, now_ns: int) -> None:
        if vgpu not in self._claims:
            self._claims[vgpu] = Claim(Fraction(weight))
        super().joined(vgpu, weight, now_ns)

    def left(self, vgpu: int, now_ns: int) -> None:
        super().left(vgpu, now_ns)
        self._resting.pop(vgpu, None)
        self._forget(vgpu)
        self._claims.pop(vgpu, None)
        self._refresh(now_ns)

    def weight_changed(self, vgpu: int, weight: int, now_ns: int) -> None:
        if vgpu in self._claims:
            self._claim(vgpu, self._claims[vgpu]._replace(weight=Fraction(weight)))
            if not (self._is_computed and vgpu in self._recent):
                super().weight_changed(vgpu, weight, now_ns)
            self._refresh(now_ns)

    def bounds_changed(self, vgpu: int, request: float, limit: float, now_ns: int) -> None:
        """See `Bounded`."""
        if vgpu in self._claims:
            self._claim(vgpu, self._claims[vgpu]._replace(request=exact_share(request), limit=exact_share(limit)))
            self._refresh(now_ns)

    def backlogged(self, vgpu: int, now_ns: int) -> None:
        self._resting.pop(vgpu, None)
        self._notice(vgpu)
        self._refresh(now_ns)
        super().backlogged(vgpu, now_ns)

    def blocked(self, vgpu: int, now_ns: int) -> None:
        self._refresh(now_ns)
        super().blocked(vgpu, now_ns)

    def dispatched(self, vgpu: int, now_ns: int) -> None:
        self._resting.pop(vgpu, None)
        self._notice(vgpu)
        self._refresh(now_ns)
        super().dispatched(vgpu, now_ns)

    def charged(self, vgpu: int, used_ns: int, now_ns: int) -> None:
        account = self._accounts.get(vgpu)
        if account is not None and used_ns > 0:
            if not self._is_active(vgpu, account):
                self._rests_from(vgpu, now_ns)
            self._notice(vgpu)
        self._refresh(now_ns)
        super().charged(vgpu, used_ns, now_ns)

    def _rest(self, vgpu: int, account: _Account, now_ns: int) -> None:
        super()._rest(vgpu, account, now_ns)
        self._rests_from(vgpu, now_ns)

    def _rests_from(self, vgpu: int, now_ns: int) -> None:
        self._resting.pop(vgpu, None)
        self._resting[vgpu] = now_ns

    def _claim(self, vgpu: int, claim: Claim) -> None:
        """It asks for something else from now on."""
        if vgpu in self._recent:
            self._nr_bounded += claim.is_bounded - self._claims[vgpu].is_bounded
            self._is_stale = True
        self._claims[vgpu] = claim

    def _notice(self, vgpu: int) -> None:
        """It is active. Strangers are not noticed."""
        if vgpu in self._claims and vgpu not in self._recent:
            self._recent.add(vgpu)
            self._nr_bounded += self._claims[vgpu].is_bounded
            self._is_stale = True

    def _forget(self, vgpu: int) -> None:
        """It is not active any more."""
        if vgpu in self._recent:
            self._recent.remove(vgpu)
            self._nr_bounded -= self._claims[vgpu].is_bounded
            self._is_stale = True

    def _refresh(self, now_ns: int) -> None:
        """Forgets those that have rested for long, and computes weights if anything has changed that they depend on."""
        forgotten = []
        while self._resting:
            vgpu, since_ns = next(iter(self._resting.items()))
            if now_ns - since_ns < ACTIVE_NS:
                break
            del self._resting[vgpu]
            self._forget(vgpu)
            forgotten.append(vgpu)
        if self._is_stale:
            self._is_stale = False
            if self._nr_bounded or self._is_computed:
                goes_back = self._go_back(now_ns)
                self._compute(forgotten)
                if goes_back:
                    self._measure()

    def _go_back(self, now_ns: int) -> bool:
        """Takes virtual time back to where nobody that is awake is owed more than is usual, and tells whether it was beyond. It went on with
        one that leads by a weight of next to nothing while all others paused. Put in new weights, they would be owed hours by each other."""
        before = self._virtual_time
        for vgpu in self._recent:
            account = self._accounts[vgpu]
            if self._is_awake(vgpu, account, now_ns):
                self._virtual_time = min(self._virtual_time, account.tag + self._usual(account))
        return self._virtual_time < before

    def _measure(self) -> None:
        """Leads, beyond where virtual time has gone back to."""
        most = 0
        for account in map(self._accounts.__getitem__, self._recent):
            lead = max(0, account.tag - account.debt - self._virtual_time)
            account.leads.measure(lead, self._virtual_time)
            most = max(most, lead)
        self._leads.measure(most, self._virtual_time)

    def _compute(self, forgotten: Iterable[int]) -> None:
        """Weights in proportion to shares; their sum stays what it is, but for what parts leave over. Who is forgotten has its own."""
        for vgpu in forgotten:
            self._reweigh(vgpu, _parts(self._claims[vgpu].weight))
        claims = {vgpu: self._claims[vgpu] for vgpu in self._recent}
        shares = allotments(claims) if self._nr_bounded else {}
        total = sum(shares.values(), Fraction(0))
        self._is_computed = total > 0  # else no bounds, or limits of 0 alone
        scale = sum((claim.weight for claim in claims.values()), Fraction(0)) / total if total else Fraction(0)
        for vgpu, claim in claims.items():
            self._reweigh(vgpu, _parts(shares[vgpu] * scale if self._is_computed else claim.weight))

    def _reweigh(self, vgpu: int, parts: int) -> None:
        """It overran, or is owed, the same GPU time as before: what its tag is away from virtual time is put in the new weight."""
        account = self._accounts[vgpu]
        tag = self._virtual_time + (account.tag - self._virtual_time) * account.parts // parts
        self._move(vgpu, account, tag)
        account.debt = account.debt * account.parts // parts
        account.leads.reweigh(account.parts, parts)
        self._set_parts(vgpu, parts)


def _parts(weight: Fraction) -> int:
    return max(1, int(weight * PARTS_OF_WEIGHT))
