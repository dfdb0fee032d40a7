"""Where benchmark programs run: natively, as processes that are guests, or in virtual machines. All offer the same `Session`."""

from benchmarks.guests.open import MPS, NATIVE, Setting, open_guests, open_session
from benchmarks.guests.pinning import Pinning
from benchmarks.guests.session import Account, Finished, Guests, Moved, Running, Session, run

__all__ = [
    "MPS",
    "NATIVE",
    "Account",
    "Finished",
    "Guests",
    "Moved",
    "Pinning",
    "Running",
    "Session",
    "Setting",
    "open_guests",
    "open_session",
    "run",
]
