"""What becomes of those whose kernels do not end: debts that double, then a ban, which an operator lifts.

Whose worker the watchdog ends kept others from the GPU. It is charged for that like any use, but then it comes again. So each time its vGPU
is charged for what it took once more, twice as much the next time, and so on; and after BAN_AFTER times its programs are refused. So it takes
from a neighbour no more than BAN_AFTER times the watchdog's time, ever.

A debtor is whoever is behind a vGPU: of a domain's the domain, of another machine's that, of a command's (fairgv-run) the user, as such a vGPU
goes with its last command and the next one would start without debt. What has been used of the Gpus since is worked off.

Wrong when: the daemon is stopped and started. It knows of no debts. A restart keeps them.
"""

import pwd
import threading
from dataclasses import dataclass

from backend_host.restart.record import Record

BAN_AFTER = 5
"""Times that a debtor's work was ended. The debts until then are 31 times what each took: a mistake in a program is found before.
From then on each is as much as all of these and one more: programs that run already may go on to be ended, and doubling has no end."""
MAX_DEBT_NS = 1 << 62
"""146 years. The next daemon refuses a record with a number of 64 bits or more, and would forgive everybody."""

MOST_DEBTORS = 200
"""The record of all of them is one message to the store, whose bytes are bounded. Beyond them the one is forgotten whose last time was longest
ago, who is banned last of all."""


@dataclass(frozen=True)
class DebtStatistics:
    """A debtor, "domain NAME", "machine NAME" or "user UID": how often its work was ended, and what of its debt was left when that was looked
    up."""

    debtor: str
    nr_timed_out: int
    debt_ns: int
    is_banned: bool


@dataclass(frozen=True)
class DebtsRecord(Record):
    """By debtors: times that its work was ended, what was left of its debt, and what all had used then."""

    nr: dict[str, int]
    left_ns: dict[str, int]
    at_used_ns: dict[str, int]


@dataclass
class _Debt:
    nr: int = 0
    left_ns: int = 0
    at_used_ns: int = 0
    """What all had used when `left_ns` was right."""

    def left(self, used_ns: int) -> int:
        return max(0, self.left_ns - max(0, used_ns - self.at_used_ns))


class Debts:
    """All debtors of one daemon. Thread-safe. `used_ns`: what all have used of the Gpus by now."""

    def __init__(self) -> None:
        self._debts: dict[str, _Debt] = {}
        self._lock = threading.Lock()

    def add(self, debtor: str, took_ns: int, used_ns: int) -> int:
        """Its work was ended, which took so long of others. Gives what it is to be charged for that."""
        with self._lock:
            if debtor not in self._debts and len(self._debts) >= MOST_DEBTORS:
                del self._debts[min(self._debts, key=self._worth)]
            debt = self._debts.setdefault(debtor, _Debt())
            more_ns = min(took_ns << min(debt.nr, BAN_AFTER), MAX_DEBT_NS)
            debt.left_ns = min(debt.left(used_ns) + more_ns, MAX_DEBT_NS)
            debt.at_used_ns = used_ns
            debt.nr += 1
            return more_ns

    def _worth(self, debtor: str) -> tuple[bool, int]:
        """The less, the sooner it is forgotten; with the lock held."""
        debt = self._debts[debtor]
        return debt.nr >= BAN_AFTER, debt.at_used_ns

    def left_ns(self, debtor: str, used_ns: int) -> int:
        """What a new vGPU of this debtor starts with."""
        with self._lock:
            debt = self._debts.get(debtor)
            return debt.left(used_ns) if debt is not None else 0

    def is_banned(self, debtor: str) -> bool:
        """Whether its programs are refused."""
        with self._lock:
            debt = self._debts.get(debtor)
            return debt is not None and debt.nr >= BAN_AFTER

    def lift(self, debtor: str) -> bool:
        """All is forgiven; False: there was nothing."""
        with self._lock:
            return self._debts.pop(debtor, None) is not None

    def record(self) -> DebtsRecord:
        """For the next daemon."""
        with self._lock:
            return DebtsRecord(
                nr={debtor: debt.nr for debtor, debt in self._debts.items()},
                left_ns={debtor: debt.left_ns for debtor, debt in self._debts.items()},
                at_used_ns={debtor: debt.at_used_ns for debtor, debt in self._debts.items()},
            )

    def recall(self, record: DebtsRecord) -> None:
        """What an earlier daemon wrote down."""
        with self._lock:
            self._debts = {
                debtor: _Debt(nr, record.left_ns.get(debtor, 0), record.at_used_ns.get(debtor, 0))
                for debtor, nr in record.nr.items()
            }

    def statistics(self, used_ns: int) -> tuple[DebtStatistics, ...]:
        """One entry for each debtor."""
        with self._lock:
            return tuple(
                DebtStatistics(debtor, debt.nr, debt.left(used_ns), debt.nr >= BAN_AFTER)
                for debtor, debt in sorted(self._debts.items())
            )


def debtors_called(name: str) -> tuple[str, ...]:
    """Whom a person may mean by it: a domain, another virtual machine, or a user of this host, by name or number."""
    try:
        uid: int | str = pwd.getpwnam(name).pw_uid
    except KeyError:
        uid = name
    return f"domain {name}", f"machine {name}", f"user {uid}"
