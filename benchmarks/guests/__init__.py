"""Where benchmark programs run: natively, as processes that are guests, or in virtual machines. All offer the same `Session`."""

from benchmarks.guests.open import MPS, NATIVE, Setting, open_session
from benchmarks.guests.session import Account, Finished, Running, Session, run

__all__ = ["MPS", "NATIVE", "Account", "Finished", "Running", "Session", "Setting", "open_session", "run"]
