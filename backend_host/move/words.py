"""Ways and stages of a move by their names, as the daemon tells them and commands read them."""

REPLAY, CHECKPOINT = "replay", "checkpoint"
AUTO = "auto"
"""The best that there is."""
MOVERS = (AUTO, REPLAY, CHECKPOINT)

UNDER_WAY = frozenset({"preparing", "leaving", "changing", "returning"})
"""Stages of a move that is not over."""
