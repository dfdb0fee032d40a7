"""Credit with guests that poll for answers, as FairGV's paper compares with it (section 5.3).

Good when: every guest has a processor of its own. Bad when: guests share processors; whoever waits keeps one from who could use it.
"""

from scheduler.credit import Credit


class CreditPoll(Credit):
    """The same order; guests that wait keep their processor busy, whoever else could use it."""

    name = "credit-poll"
    guest_waiting = "poll"
