"""Whether a vGPU keeps count of its limit: its own word beside what its own charges make of it.

The word by which a vGPU's limit is kept lies in its own account (worker/page/allowance.h), which its workers write. A worker that its guest
took over could put it back, and go on for ever. So the auditor makes the word once more, of the charges that it sees. A word that stays behind
that has been put back, by one of the vGPU's own workers. What was charged between two looks is taken as charged at the first: so the word is
made no larger than honest workers make it, however late the second comes. A daemon that stood still blames nobody for it.
Each time that the daemon sets the limit, whatever it was before, it sets the word, too, and the count begins there.

Wrong when: a charge is left out as well. That is seen as a turn that is not paid for (auditor.py).
"""

from backend_host.device.audit import Claim
from scheduler.allowance import Allowance, has_limit

_BEHIND_MOST_NS = 1_000_000_000
"""A charge and its word are read one after the other."""
_FOR_NS = 1_000_000_000
"""Between a charge and its word a worker may lose its CPU: of the last looks so much time has to be wrong."""
_LOOK_MOST_NS = 200_000_000
"""Of that, a look that comes later tells no more than one that comes each time so late (auditor.py)."""
_FORGIVEN_DIVISOR = 4
"""A look that finds it right makes up for a quarter of its time: a word that is right now and then is still put back."""


class KeptLimit:
    """What is known of one vGPU."""

    def __init__(self) -> None:
        self._nr_limits: int | None = None
        self._twin: Allowance | None = None
        self._charged_ns = self._looked_ns = self._wrong_ns = 0

    def is_put_back(self, claim: Claim, slice_ns: int, now_ns: int) -> bool:
        """One look; whether the word has been behind for long enough."""
        more_ns, self._charged_ns = max(0, claim.charged_ns - self._charged_ns), claim.charged_ns
        before_ns, self._looked_ns = self._looked_ns, now_ns
        if claim.nr_limits != self._nr_limits:
            self._nr_limits, self._wrong_ns = claim.nr_limits, 0
            self._twin = Allowance(claim.limit_permille, slice_ns) if has_limit(claim.limit_permille) else None
            if self._twin is not None:
                self._twin.limited_until_ns = claim.limited_until_ns
            return False
        if self._twin is None:
            return False
        if more_ns:  # the word moves with a charge only; who sleeps has an old one
            self._twin.charge(more_ns, before_ns)
        is_behind = claim.limited_until_ns + _BEHIND_MOST_NS < self._twin.limited_until_ns
        passed_ns = min(now_ns - before_ns, _LOOK_MOST_NS)
        self._wrong_ns = max(0, self._wrong_ns + (passed_ns if is_behind else -passed_ns // _FORGIVEN_DIVISOR))
        return self._wrong_ns > _FOR_NS
