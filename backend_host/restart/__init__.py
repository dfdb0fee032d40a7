"""How programs outlive the daemon: what it leaves with the store, and how the next one adopts that (docs/restart.md)."""
