"""Whose memory is on the device, where programs have more than it holds.

A program runs only with all of its memory there, as nobody knows which of it a kernel uses. So those that want the device are admitted, in the
order in which their turns are due, as far as the room goes. What is left of it is for parts of the next ones, ahead of their turns, and for
parts of those that rest. Who gives way is thus the one whose next turn is farthest.

To admit others means to move memory, which takes time in which the device may have nothing to do. So who is admitted stays so for so long that
moving takes at most `cost` of the time, and for 5 s at most. They may rest meanwhile, as long as one of them works. Where none does, and
somebody waits, they stay for twice as long as the move takes: so much it costs if they come back at once (ski rental: at most twice what is
best in hindsight). One of them that pauses for as long as makes no sleep to the policy either (scheduler/fair.py) keeps its place among those
that are due: programs pause between their kernels, and who is owed three turns would lose two of them by a pause in the first.

Good when: a program's work keeps the device busy for many times what its memory takes to move. Bad when: several that do not fit together wait
for each other. Each of their waits is a move then.
Wrong when: memory that cannot be moved (`is_kept`) fills the room. Others wait until it goes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.fair import PAUSE_NS

MOST_STAY_NS = 5_000_000_000
STEP_BYTES = 2 << 20
"""Targets are multiples of this, as memory is."""
_BACK_AND_FORTH = 2
_FIRST_NS_PER_BYTE = 0.05
"""20 GB/s, until it is known."""
_REMEMBERED = 4
"""Moves."""


@dataclass(frozen=True)
class Holding:
    """One program's memory. Bytes: `allocated`, of which `resident` is on the device."""

    allocated: int
    resident: int
    standing: float
    """Of those that want the device, the least is due first."""
    wants: bool
    """It has work for the device."""
    is_kept: bool = False
    """What is resident cannot go now."""

    @property
    def lacking(self) -> int:
        """Bytes without which it does not run."""
        return max(0, self.allocated - self.resident)


class Plan:
    """What each program may have on the device, look after look. Programs go by keys of the caller's; times in ns of any one clock."""

    def __init__(self, cost: float) -> None:
        """`cost`: the most of the time that moving may take, above 0 and below 1."""
        self._cost = cost
        self._ns_per_byte = _FIRST_NS_PER_BYTE
        self._admitted: frozenset[int] = frozenset()
        self._coming: frozenset[int] = frozenset()
        """Of these who did not have their memory when they were admitted, at `_began_ns`, and have not got all of it yet."""
        self._began_ns = self._nr_bytes = 0
        self._until_ns = 0
        """They stay admitted until then, and as long as somebody is coming."""
        self._worked_ns = 0
        """When one that is admitted, and has all of its memory, last wanted the device."""
        self._resting_ns: dict[int, int] = {}
        """Since when who rests does so."""

    def targets(self, now_ns: int, room: int, holdings: Mapping[int, Holding]) -> dict[int, int]:
        """How many bytes of each may be resident, `room` together, but for what is kept: who is due first stands first."""
        self._note(now_ns, holdings)
        kept = {key: each.resident for key, each in holdings.items() if each.is_kept}
        left = max(0, room - sum(kept.values()))
        is_unused = self._is_unused(now_ns, holdings)
        stays = self._is_settled(now_ns) and not is_unused
        pausing = {key for key in self._admitted if not is_unused and now_ns < self._rests_ns(key)}
        order = sorted(
            holdings,
            key=lambda key: (stays and key not in self._admitted, *self._rank(key, holdings[key], key in pausing)),
        )
        more = {key: max(0, holdings[key].allocated - kept.get(key, 0)) for key in order}
        targets = {key: kept.get(key, 0) for key in order}
        for key in order:
            if more[key] <= left:
                targets[key] += more[key]
                left -= more.pop(key)
        self._admit(now_ns, {key: holdings[key] for key in order if key not in more})
        for key, lacking in more.items():  # who is not admitted
            part = min(lacking, left) // STEP_BYTES * STEP_BYTES
            targets[key] += part
            left -= part
        for key in order:  # for what they allocate next
            targets[key] += left // len(order) // STEP_BYTES * STEP_BYTES
        return targets

    def again_ns(self, now_ns: int, holdings: Mapping[int, Holding]) -> int:
        """When others may be admitted, if all stays as it is; not before `now_ns`."""
        times = [self._until_ns]
        if waiting := self._waiting(holdings):
            times += [self._worked_ns + _BACK_AND_FORTH * self._move_ns(waiting)]
            if not self._is_settled(now_ns):
                times += [self._rests_ns(key) for key in self._resting_ns.keys() & self._admitted]
        return min((time_ns for time_ns in times if time_ns > now_ns), default=now_ns)

    def _is_settled(self, now_ns: int) -> bool:
        return now_ns < (self._began_ns + MOST_STAY_NS if self._coming else self._until_ns)

    def _note(self, now_ns: int, holdings: Mapping[int, Holding]) -> None:
        self._resting_ns = {key: self._resting_ns.get(key, now_ns) for key, each in holdings.items() if not each.wants}
        if any(each.wants and not each.lacking for key, each in holdings.items() if key in self._admitted):
            self._worked_ns = now_ns
        if self._coming and not any(key in holdings and holdings[key].lacking for key in self._coming):
            self._come(now_ns)

    def _come(self, now_ns: int) -> None:
        """They have their memory: what that took tells how long they stay, and what the next move will take."""
        took_ns = now_ns - self._began_ns
        self._coming = frozenset()
        self._until_ns = now_ns + min(MOST_STAY_NS, int(took_ns / self._cost))
        self._worked_ns = now_ns
        self._ns_per_byte += (took_ns / self._nr_bytes - self._ns_per_byte) / _REMEMBERED

    def _rests_ns(self, key: int) -> int:
        """From when on its pause is a rest; 0 for one that does not pause."""
        return self._resting_ns[key] + PAUSE_NS if key in self._resting_ns else 0

    def _rank(self, key: int, each: Holding, pauses: bool) -> tuple[bool, float, bool, int]:
        """The least comes first: who wants the device, by its standing, and of programs that stand alike who lacks its memory; who rests, by
        how lately it did not."""
        if each.wants or pauses:
            return (False, each.standing, not each.lacking, 0)
        return (True, 0.0, each.lacking > 0, -self._resting_ns[key])

    def _waiting(self, holdings: Mapping[int, Holding]) -> int:
        """Bytes that are lacking to who wants the device."""
        return sum(each.lacking for each in holdings.values() if each.wants)

    def _is_unused(self, now_ns: int, holdings: Mapping[int, Holding]) -> bool:
        """Nobody that is admitted has worked for long, and somebody waits."""
        waiting = self._waiting(holdings)
        return waiting > 0 and now_ns - self._worked_ns > _BACK_AND_FORTH * self._move_ns(waiting)

    def _admit(self, now_ns: int, admitted: Mapping[int, Holding]) -> None:
        """Others than before who have to be waited for stay for a while."""
        coming = {key: each.lacking for key, each in admitted.items() if each.wants and key not in self._admitted}
        if nr_bytes := sum(coming.values()):
            self._coming, self._nr_bytes = frozenset(coming), nr_bytes
            self._began_ns = self._worked_ns = now_ns
        self._admitted = frozenset(admitted)

    def _move_ns(self, nr_bytes: int) -> int:
        return int(nr_bytes * self._ns_per_byte)


def stepwise(
    room: int, wanted: Mapping[int, int], now: Mapping[int, int], resident: Mapping[int, int]
) -> dict[int, int]:
    """Targets on the way from those that there are `now`, none of them above `wanted`, to those: each of these as far as what is `resident`, or
    may become so, leaves room, the first one first."""
    base = {key: max(now[key], resident[key]) for key in wanted}
    left = room - sum(base.values())
    targets = {}
    for key, most in wanted.items():
        targets[key] = max(now[key], min(most, base[key] + max(0, left)))
        left -= max(targets[key], base[key]) - base[key]
    return targets
